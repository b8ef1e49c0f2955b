"""Loops that are unrolled leave nothing behind: their bodies go with them."""

from __future__ import annotations

import numpy as np

import hlo
from tests.support.deep_programs import INPUT, whiles

LEVELS = 20


def test_bodies_of_nested_loops_go_with_their_loops() -> None:
    """Each holds all inner ones once they are unrolled: together many times what is left."""
    module = hlo.parse(whiles(LEVELS))
    made = hlo.optimize(module, passes="while-loop-unroller")
    assert [c.name for c in made.computations] == [made.entry.name]
    assert [i.opcode for i in made.entry.instructions].count("sine") == 1
    np.testing.assert_array_equal(hlo.evaluate(made, INPUT), hlo.evaluate(module, INPUT))
