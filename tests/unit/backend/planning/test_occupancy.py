"""Occupancy: what is planned may be forgotten, as often as wanted."""

from __future__ import annotations

import hlo
from hlo.backend.planning.allocations import AllocationKind
from hlo.backend.planning.occupancy import Occupancy, Scope

ROOT = hlo.parse("HloModule m\nENTRY e { ROOT p = f32[4] parameter(0) }").entry.root


def test_a_snapshot_is_what_it_was_at_every_rewinding() -> None:
    at = Occupancy()
    allocation = at.new(AllocationKind.ARENA, 16, ROOT)
    at.define(Scope({}), (ROOT, 0), allocation)
    snapshot = at.snapshot()
    for _ in range(3):
        at.rewind(snapshot)
        assert at.is_free(allocation)
        at.tick(ROOT)
        at.touch(allocation)
        at.pin([allocation], (ROOT, -1))
        at.bind(Scope({(ROOT, 0): 9}, position=1), (ROOT, 0), allocation)
        at.new(AllocationKind.ARENA, 64, ROOT)
        assert not at.is_free(allocation)
