"""Which reducers are arg-max and the like, and in which order their elements may be reduced."""

from __future__ import annotations

import pytest

from hlo.analysis.selections import ascends, is_symmetric_selection, ordering_index
from hlo.ir.instruction import Instruction
from hlo.parser.parse import parse

SIDES = """  a = {v}[] parameter(0)
  i = s32[] parameter(1)
  b = {v}[] parameter(2)
  j = s32[] parameter(3)
"""
# The earlier of two NaNs, else the greater value, else the smaller index: as JAX writes it.
JAX = """  greater = pred[] compare(a, b), direction=GT
  lost = pred[] compare(a, a), direction=NE
  c = pred[] or(greater, lost)
  same = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, before)
  d = pred[] or(c, tie)
"""
FIRST = """  c = pred[] compare(a, b), direction=GE
  d = pred[] or(c, c)
"""
LAST = """  c = pred[] compare(a, b), direction=GT
  d = pred[] or(c, c)
"""
LOSER = """  c = pred[] compare(a, b), direction=GE
  d = pred[] compare(a, b), direction=LT
"""
TOTAL = """  greater = pred[] compare(a, b), direction=GT, type=TOTALORDER
  same = pred[] compare(a, b), direction=EQ, type=TOTALORDER
  before = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, before)
  c = pred[] or(greater, tie)
  d = pred[] or(c, c)
"""


def reduction(
    reducer: str, kind: str = "f32", index: str = "iota(), iota_dimension=1"
) -> Instruction:
    sides = SIDES.format(v=kind)
    return parse(f"""HloModule m
best {{
{sides}{reducer}  v = {kind}[] select(c, a, b)
  k = s32[] select(d, i, j)
  ROOT t = ({kind}[], s32[]) tuple(v, k)
}}
ENTRY e {{
  x = {kind}[4,9] parameter(0)
  given = s32[4,9] parameter(1)
  z = {kind}[] parameter(2)
  n = s32[] parameter(3)
  places = s32[4,9] {index}
  ROOT r = ({kind}[4], s32[4]) reduce(x, places, z, n), dimensions={{1}}, to_apply=best
}}""").entry.root


@pytest.mark.parametrize("kind", ["f32", "f64", "bf16", "f8e4m3fn", "s32", "u8"])
def test_argmax_is_ordered_by_its_index(kind: str) -> None:
    assert ordering_index(reduction(JAX, kind)) == 1


def test_argmax_of_floats_is_not_symmetric() -> None:
    assert not is_symmetric_selection(reduction(JAX)["to_apply"])  # type: ignore[arg-type]
    assert is_symmetric_selection(reduction(JAX, "s32")["to_apply"])  # type: ignore[arg-type]
    assert is_symmetric_selection(reduction(TOTAL)["to_apply"])  # type: ignore[arg-type]


def test_first_is_ordered_where_nothing_is_unordered() -> None:
    assert ordering_index(reduction(FIRST, "s32")) == 1
    assert ordering_index(reduction(FIRST, "f32")) is None  # a NaN on the way is forgotten


def test_last_depends_on_how_often_it_starts() -> None:
    # a start with a great index would come last
    assert ordering_index(reduction(LAST, "s32")) is None


def test_the_index_of_the_loser_is_not_an_order() -> None:
    assert ordering_index(reduction(LOSER, "s32")) is None


@pytest.mark.parametrize(
    "index", ["iota(), iota_dimension=0", "add(given, given)", "copy(given)", "negate(given)"]
)
def test_other_indices_order_nothing(index: str) -> None:
    assert ordering_index(reduction(JAX, index=index)) is None


def test_what_ascends() -> None:
    entry = parse("""HloModule m
ENTRY e {
  i = s32[24] iota(), iota_dimension=0
  r = s32[4,6] reshape(i)
  q = s32[2,2,6] reshape(r)
  b = s32[3,4,6] broadcast(r), dimensions={1,2}
  short = s8[200] iota(), iota_dimension=0
  c = s32[4,6] iota(), iota_dimension=0
  m = s32[24] reshape(c)
  v = s32[24] reverse(i), dimensions={0}
  w = s32[6,4] transpose(r), dimensions={1,0}
  ROOT t = (s32[2,2,6], s32[3,4,6], s8[200], s32[24], s32[24], s32[6,4])
    tuple(q, b, short, m, v, w)
}""").entry
    found = {i.name: i for i in entry.instructions}
    assert ascends(found["i"], 0)
    assert ascends(found["r"], 1)
    assert ascends(found["r"], 0)
    assert ascends(found["q"], 2)
    assert ascends(found["b"], 2)
    assert not ascends(found["b"], 0)
    assert not ascends(found["short"], 0)
    assert not ascends(found["m"], 0)
    assert not ascends(found["v"], 0)
    assert ascends(found["w"], 0)
    assert ascends(found["w"], 1)
    assert ascends(found["c"], 0)
    assert not ascends(found["c"], 1)
