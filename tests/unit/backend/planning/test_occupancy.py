"""Occupancy: what is planned may be forgotten, as often as wanted."""

from __future__ import annotations

import hlo
from hlo.backend.planning.cells import Region
from hlo.backend.planning.occupancy import Occupancy, Scope

ROOT = hlo.parse("HloModule m\nENTRY e { ROOT p = f32[4] parameter(0) }").entry.root


def test_a_mark_is_what_it_was_at_every_rewinding() -> None:
    at = Occupancy()
    cell = at.new(Region.ARENA, 16, ROOT)
    at.define(Scope({}), (ROOT, 0), cell)
    mark = at.mark()
    for _ in range(3):
        at.rewind(mark)
        assert at.is_free(cell)
        at.tick(ROOT)
        at.touch(cell)
        at.pin([cell], (ROOT, -1))
        at.bind(Scope({(ROOT, 0): 9}, position=1), (ROOT, 0), cell)
        at.new(Region.ARENA, 64, ROOT)
        assert not at.is_free(cell)
