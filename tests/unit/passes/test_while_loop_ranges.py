"""Comparisons of what a loop counts are decided where every trip comes out the same."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.passes.catalogue import CATALOGUE

RANGES = CATALOGUE["while-loop-ranges"]

TEXT = """HloModule m
body {
  s = (TYPE[], TYPE[], s32[]) parameter(0)
  i = TYPE[] get-tuple-element(s), index=0
  k = TYPE[] get-tuple-element(s), index=1
  sum = s32[] get-tuple-element(s), index=2
  one = TYPE[] constant(1)
  by = TYPE[] constant(BY)
  bound = TYPE[] constant(BOUND)
  j = TYPE[] add(i, one)
  l = TYPE[] add(k, by)
  p = pred[] compare(k, bound), direction=WAY
  n = s32[] convert(p)
  two = s32[] constant(2)
  m = s32[] multiply(sum, two)
  total = s32[] add(m, n)
  ROOT t = (TYPE[], TYPE[], s32[]) tuple(j, l, total)
}
condition {
  s = (TYPE[], TYPE[], s32[]) parameter(0)
  i = TYPE[] get-tuple-element(s), index=0
  n = TYPE[] constant(6)
  ROOT q = pred[] compare(i, n), direction=LT
}
ENTRY e {
  first = TYPE[] constant(1)
  start = TYPE[] constant(START)
  zero = s32[] constant(0)
  s = (TYPE[], TYPE[], s32[]) tuple(first, start, zero)
  w = (TYPE[], TYPE[], s32[]) while(s), condition=condition, body=body
  ROOT r = s32[] get-tuple-element(w), index=2
}
"""


def program(way: str, bound: int, start: int = 0, by: int = 2, kind: str = "s32") -> str:
    text = TEXT.replace("WAY", way).replace("BOUND", str(bound)).replace("TYPE", kind)
    return text.replace("START", str(start)).replace("BY", str(by))


# k goes 0, 2, 4, 6, 8.
@pytest.mark.parametrize("bound", [-1, 0, 4, 8, 9])
@pytest.mark.parametrize("way", ["LT", "LE", "GT", "GE", "EQ", "NE"])
def test_trips_that_come_out_the_same(way: str, bound: int) -> None:
    module = hlo.parse(program(way, bound))
    want = int(hlo.evaluate(hlo.parse(program(way, bound))))
    assert RANGES(module) == (bound in (-1, 9) or want in (0, 31))
    np.testing.assert_array_equal(hlo.evaluate(module), want)
    assert not RANGES(module)


@pytest.mark.parametrize(
    ("start", "by", "kind", "known"),
    [(100, 5, "s8", True), (100, 7, "s8", False), (250, 1, "u8", True), (250, 2, "u8", False)],
)
def test_numbers_that_wrap_say_nothing(start: int, by: int, kind: str, *, known: bool) -> None:
    text = program("GE", 100, start, by, kind)
    module = hlo.parse(text)
    assert RANGES(module) == known
    np.testing.assert_array_equal(hlo.evaluate(module), hlo.evaluate(hlo.parse(text)))


@pytest.mark.parametrize("trips", [6, 2])
@pytest.mark.parametrize(
    ("start", "by", "same"),
    [(1, 1, True), (5, -1, False), (1, 5, False), (1, -1, False), (0, 1, False)],
    ids=["same", "downwards", "faster", "away", "behind"],
)
def test_equal_counters_are_one(start: int, by: int, trips: int, *, same: bool) -> None:
    text = program("EQ", 3, start, by).replace("n = s32[] convert(p)", "n = s32[] add(k, one)")
    text = text.replace("n = s32[] constant(6)", f"n = s32[] constant({trips})")
    text = text.replace("ROOT r = s32[]", "last = s32[] get-tuple-element(w), index=1\n  r = s32[]")
    text = text.replace("index=2\n}\n", "index=2\n  ROOT e = (s32[], s32[]) tuple(r, last)\n}\n")
    module = hlo.parse(text)
    want = hlo.evaluate(hlo.parse(text))
    RANGES(module)
    (loop,) = [i for i in module.entry.instructions if i.opcode == "while"]
    root = loop.called_computations()[0].root
    assert (root.operands[0] is root.operands[1]) == same
    np.testing.assert_array_equal(hlo.evaluate(module), want)


@pytest.mark.parametrize("is_root", [True, False])
@pytest.mark.parametrize(("start", "by", "end"), [(3, 2, 13), (100, 5, 125), (100, 7, None)])
def test_what_a_counter_ends_with_is_a_constant(
    start: int, by: int, end: int | None, *, is_root: bool
) -> None:
    """One that wraps is asked for."""
    text = program("LT", 0, start, by, "s8")
    if is_root:
        text = text.replace("  w = (", "  ROOT w = (").split("  ROOT r = s32[]")[0] + "}\n"
    else:
        text = text.replace("ROOT r = s32[] get-tuple-element(w), index=2", "RESULT")
        text = text.replace("RESULT", "ROOT r = s8[] get-tuple-element(w), index=1")
    module = hlo.parse(text)
    want = hlo.evaluate(hlo.parse(text))
    RANGES(module)
    root = module.entry.root
    found = root.operands[1] if root.opcode == "tuple" else root
    assert (found.opcode == "constant") == (end is not None)
    if end is not None:
        assert int(hlo.evaluate(module)[1] if is_root else hlo.evaluate(module)) == end
    for a, b in zip(*(v if is_root else (v,) for v in (hlo.evaluate(module), want)), strict=True):
        np.testing.assert_array_equal(a, b)
