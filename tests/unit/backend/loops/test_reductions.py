"""How reductions are made, decided before any code is written: (program, lanes, indices) ->
form."""

import re

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.loops.expression import Expression, Leaf
from hlo.backend.loops.printing import print_schedule
from hlo.backend.loops.reductions import (
    blocked_axes,
    reduction_form,
    sizes_of,
    window_forms,
)
from hlo.backend.loops.schedule import Join, LoopNest, LoopSchedule, Reduction, Source
from hlo.indexing import affine
from hlo.indexing.affine import Index, Variable
from hlo.ir.instruction import Instruction
from hlo.machine import NAMED

REDUCER = """{op} {{ a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] {op}(a, b) }}
"""
PICK = """pick { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  gt = pred[] compare(a, b), direction=GT
  eq = pred[] compare(a, b), direction=EQ
  lt = pred[] compare(i, j), direction=LT
  tie = pred[] and(eq, lt)
  odd = pred[] compare(a, a), direction=NE
  first = pred[] or(gt, odd)
  k = pred[] or(first, tie)
  v = f32[] select(first, a, b)
  p = s32[] select(k, i, j)
  ROOT r = (f32[], s32[]) tuple(v, p) }
"""
ZERO = {"c64": "(0, 0)", "pred": "true"}


def dims_of(text: str) -> list[int]:
    return [int(n) for n in re.findall(r"\d+", text)]


def program(op: str, shape: str, dims: str, *, before: str = "", after: str = "") -> str:
    """s: a reduction of x, or of the y that is made of it before."""
    t, extents = shape.rstrip("]").split("[")
    kept = [n for d, n in enumerate(dims_of(extents)) if d not in dims_of(dims)]
    result = f"{t}[{','.join(map(str, kept))}]"
    return f"""HloModule m
{REDUCER.format(op=op, t=t)}
ENTRY e {{
  z = {t}[] constant({ZERO.get(t, "0")})
  {before or f"y = {shape} parameter(0)"}
  s = {result} reduce(y, z), dimensions={{{dims}}}, to_apply={op}
  {after or f"ROOT r = {result} copy(s)"}
}}
"""


def picked(shape: str) -> str:
    """s: the largest element of each row, and its place."""
    rows, _ = dims_of(shape)
    return f"""HloModule m
{PICK}
ENTRY e {{
  x = f32[{shape}] parameter(0)
  i = s32[{shape}] iota(), iota_dimension=1
  n = f32[] constant(-inf)
  o = s32[] constant(0)
  ROOT s = (f32[{rows}], s32[{rows}]) reduce(x, i, n, o), dimensions={{1}}, to_apply=pick
}}
"""


def both(shape: str) -> str:
    """y: of two arrays."""
    return f"v = {shape} parameter(0) w = {shape} parameter(1) y = {shape} add(v, w)"


def windowed(op: str, shape: str, size: str) -> str:
    """s: a reduction over a window at every place at which it lies within x."""
    t, extents = shape.rstrip("]").split("[")
    places = [n - w + 1 for n, w in zip(dims_of(extents), dims_of(size), strict=True)]
    result = f"{t}[{','.join(map(str, places))}]"
    return f"""HloModule m
{REDUCER.format(op=op, t=t)}
ENTRY e {{
  x = {shape} parameter(0)
  z = {t}[] constant({ZERO.get(t, "0")})
  ROOT s = {result} reduce-window(x, z), window={{size={size}}}, to_apply={op}
}}
"""


def parsed(text: str) -> tuple[Expression, Instruction]:
    """The reduction named s; parameters are in memory."""
    entry = hlo.parse(text).entry
    expression = Expression(Target(NAMED["sapphirerapids"]))
    for k, p in enumerate(entry.parameters):
        expression.leaves[p, ()] = Leaf(p.shape.dtype, p.shape.size, k)
    return expression, next(i for i in entry.instructions if i.name == "s")


def indices_of(
    reduction: Instruction, count: int = 1, along: int = -1, lanes: int = 1
) -> list[Index]:
    """So many indices, one after the other along a dimension of the result, that may be anywhere.

    lanes: of the loop over that dimension.
    """
    dims = (reduction.shape.elements[0] if reduction.shape.is_tuple else reduction.shape).dims
    at = [affine.of(Variable(f"i{d}", 0, n - 1, d + 1)) for d, n in enumerate(dims)]
    if not dims:
        return [()] * count
    latest = dims[along] - 1 - (count - 1) * lanes
    at[along] = affine.of(Variable("v", 0, latest, len(dims), lanes))
    moved = along % len(dims)
    return [tuple(e + n * lanes * (d == moved) for d, e in enumerate(at)) for n in range(count)]


def said(form: Reduction) -> str:
    """As --emit=loops prints it."""
    (line,) = print_schedule(LoopSchedule(1, 0, (LoopNest((), (), 1, 0, 1, (form,)),)))
    name, text = line.strip().split(" = ", 1)
    assert name == "s"
    return text


# "op shape over dims [in lanes] [at n]": made at n indices side by side, in 16 lanes or shared by
# all lanes of a vector of 16.
FORMS = {
    # Over lanes: vectors along the last axis, and how they end.
    "add f32[6,1024] over 1": "add over r in 1024 by 4 x 16 lanes, 4 accumulators",
    "add f32[6,300] over 1": "add over r in 300 by 4 x 16 lanes, masked tail, 4 accumulators",
    "add f32[6,336] over 1": "add over r in 336 by 4 x 16 lanes, short tail, 4 accumulators",
    "add f32[6,40] over 1": "add over r in 40 by 3 x 16 lanes, masked tail, 3 accumulators",
    "add f32[6,9] over 1": "add over r in 9 by 16 lanes, masked tail",
    "add f32[6,8] over 1": "add over r in 8 by 8 lanes",
    "add f32[6,7] over 1": "add over r in 7, written out, by pairs",
    "add s32[6,7] over 1": "add over r in 7, written out",
    "add c64[6,1024] over 1": "add over r in 1024 by 4 x 16 lanes, 4 accumulators",
    "maximum f32[6,1024] over 1": "maximum over r in 1024 by 4 x 16 lanes, 4 accumulators",
    # Side by side, results share the accumulators.
    "add f32[6,1024] over 1 at 2": (
        "add over r in 1024 by 2 x 16 lanes, 2 side by side, 2 accumulators, halved together"
    ),
    "add f32[6,1024] over 1 at 3": "add over r in 1024 by 16 lanes, 3 side by side",
    "add f32[6,1024] over 1 at 5": "add over r in 1024 by 16 lanes, 5 side by side",
    # Dimensions without a seam are one loop.
    "add f32[6,8,125] over 1,2": "add over r in 1000 by 4 x 16 lanes, masked tail, 4 accumulators",
    "add f32[12,6,1000] over 0,2": (
        "add over r in 12 and s in 1000 by 4 x 16 lanes, masked tail, 4 accumulators"
    ),
    # Steps whose order matters are taken one by one.
    "subtract f32[6,1024] over 1": "subtract over r in 1024",
    "subtract f32[6,8] over 1": "subtract over r in 8, written out",
    # Long sums: more than 256 rounds, in blocks of them; each row apart where it is no short chain.
    "add f32[24000] over 0": (
        "add over r in 24000 by 4 x 16 lanes, blocks of 16384, 4 accumulators"
    ),
    "add f32[524288] over 0": (
        "add over r in 524288 by 4 x 16 lanes, blocks of 262144 of 16384, 4 accumulators"
    ),
    "add c64[24000] over 0": (
        "add over r in 24000 by 4 x 16 lanes, blocks of 16384, 4 accumulators"
    ),
    "add f32[300,5,64] over 0,2": (
        "add over r in 300, blocks of 128 of 16 and s in 64 by 4 x 16 lanes, 4 accumulators"
    ),
    "add s32[524288] over 0": "add over r in 524288 by 4 x 16 lanes, 4 accumulators",
    "maximum f32[524288] over 0": "maximum over r in 524288 by 4 x 16 lanes, 4 accumulators",
    # In lanes, written out.
    "add f32[8,64] over 0 in lanes": "add over r in 8, written out, in each of 16 lanes, by pairs",
    "add c64[8,64] over 0 in lanes": "add over r in 8, written out, in each of 16 lanes, by pairs",
    "add s32[8,64] over 0 in lanes": "add over r in 8, written out, in each of 16 lanes",
    "maximum f32[8,64] over 0 in lanes": "maximum over r in 8, written out, in each of 16 lanes",
    "add f32[8,64] over 0 in lanes at 3": (
        "add over r in 8, written out, in each of 16 lanes, 3 side by side, by pairs"
    ),
    "add f32[2,64,3] over 0,2 in lanes": (
        "add over r in 2, written out and s in 3, written out, in each of 16 lanes, by pairs"
    ),
    # A block of sums of little code.
    "add f32[9,64] over 0 in lanes": "add over r in 9, written out, in each of 16 lanes, by pairs",
    "add f32[16,64] over 0 in lanes": (
        "add over r in 16, written out, in each of 16 lanes, by pairs"
    ),
    # In lanes, in loops: chains of 16, then blocks.
    "add s32[16,64] over 0 in lanes": "add over r in 16, in each of 16 lanes",
    "maximum f32[16,64] over 0 in lanes": "maximum over r in 16, in each of 16 lanes",
    "add f32[17,64] over 0 in lanes": "add over r in 17, blocks of 16, in each of 16 lanes",
    "add f32[60,64] over 0 in lanes": "add over r in 60, blocks of 16, in each of 16 lanes",
    "add c64[60,64] over 0 in lanes": "add over r in 60, blocks of 16, in each of 16 lanes",
    "add f32[600,64] over 0 in lanes": (
        "add over r in 600, blocks of 128 of 16, in each of 16 lanes"
    ),
    "add s32[600,64] over 0 in lanes": "add over r in 600, in each of 16 lanes",
    "maximum f32[600,64] over 0 in lanes": "maximum over r in 600, in each of 16 lanes",
    "subtract f32[600,64] over 0 in lanes": "subtract over r in 600, in each of 16 lanes",
    "add f32[40,64,8] over 0,2 in lanes": (
        "add over r in 40, blocks of 16 of 2 and s in 8, in each of 16 lanes"
    ),
    # In lanes of a row each.
    "add f32[64,3] over 1 in lanes": "add over r in 3, written out, in each of 16 lanes, by pairs",
    "add f32[64,4] over 1 in lanes": (
        "add over r in 4, written out, in each of 16 lanes, by pairs, rows turned in registers"
    ),
    "add f32[64,16] over 1 in lanes": (
        "add over r in 16, written out, in each of 16 lanes, by pairs, rows turned in registers"
    ),
    "maximum f32[64,16] over 1 in lanes": (
        "maximum over r in 16, written out, in each of 16 lanes, rows turned in registers"
    ),
    "add f32[64,17] over 1 in lanes": "add over r in 17, blocks of 16, in each of 16 lanes",
    "maximum f32[64,3,4] over 1,2 in lanes": "maximum over r in 12, in each of 16 lanes",
    # Nothing, or one element.
    "add f32[0,64] over 0 in lanes": "add over r in 0, written out, in each of 16 lanes, by pairs",
    "add f32[6,0] over 1": "add over r in 0, written out, by pairs",
    "add f32[6] over ": "add over one element, by pairs",
    "maximum f32[64] over  in lanes": "maximum over one element, in each of 16 lanes",
    "add f32[6,1] over 1": "add over r in 1, written out, by pairs",
    "add f32[1,1] over 0,1": "add over r in 1, written out and s in 1, written out, by pairs",
}


@pytest.mark.parametrize("asked", FORMS)
def test_a_reduce_is_made(asked: str) -> None:
    found = re.fullmatch(r"(\w+) (\S+) over ([\d,]*)( in lanes)?(?: at (\d+))?", asked)
    assert found is not None
    op, shape, dims, in_lanes, count = found.groups()
    expression, reduction = parsed(program(op, shape, dims))
    indices = indices_of(reduction, int(count or 1), 0, 16 if in_lanes else 1)
    assert said(reduction_form(expression, reduction, indices, 16)) == FORMS[asked]


# Of rows that are made of others, in 16 lanes of a row each.
ROWS = {
    "little code": (
        program(
            "add",
            "f32[64,8]",
            "1",
            before="x = f32[64,8] parameter(0) y = f32[64,8] exponential(x)",
        ),
        "add over r in 8, written out, in each of 16 lanes, by pairs, rows turned in registers",
    ),
    "much code": (
        program(
            "maximum",
            "f32[64,10]",
            "1",
            before="x = f32[64,10] parameter(0) e = f32[64,10] exponential(x) "
            "l = f32[64,10] log-plus-one(e) t = f32[64,10] tanh(l) y = f32[64,10] exponential(t)",
        ),
        "maximum over r in 10, in each of 16 lanes",
    ),
    "two arrays": (
        program("maximum", "f32[64,12]", "1", before=both("f32[64,12]")),
        "maximum over r in 12, written out, in each of 16 lanes, rows turned in registers",
    ),
    "many elements of two arrays": (
        program("maximum", "f32[64,13]", "1", before=both("f32[64,13]")),
        "maximum over r in 13, in each of 16 lanes",
    ),
    "one row for all": (
        program(
            "maximum",
            "f32[64,9]",
            "1",
            before="x = f32[9] parameter(0) y = f32[64,9] broadcast(x), dimensions={1}",
        ),
        "maximum over r in 9, in each of 16 lanes",
    ),
    "elements that lie apart": (
        program(
            "maximum",
            "f32[64,9]",
            "1",
            before="x = f32[64,18] parameter(0) y = f32[64,9] slice(x), slice={[0:64],[0:18:2]}",
        ),
        "maximum over r in 9, in each of 16 lanes",
    ),
    "folds": (
        program(
            "maximum",
            "f32[64,9]",
            "1",
            before="""x = f32[64,9,5] parameter(0)
  y = f32[64,9] reduce(x, z), dimensions={2}, to_apply=maximum""",
        ),
        "maximum over r in 9, in each of 16 lanes",
    ),
    "pairs": (
        picked("64,24"),
        "pick over r in 24, written out, in each of 16 lanes, rows turned in registers",
    ),
    "more pairs": (picked("64,25"), "pick over r in 25, in each of 16 lanes"),
}


@pytest.mark.parametrize("name", ROWS)
def test_lanes_take_a_row_each_of(name: str) -> None:
    text, expected = ROWS[name]
    expression, reduction = parsed(text)
    assert (
        said(reduction_form(expression, reduction, indices_of(reduction, lanes=16), 16)) == expected
    )


def test_rows_that_stages_keep_are_not_turned() -> None:
    expression, reduction = parsed(program("add", "f32[64,8]", "1"))
    indices = indices_of(reduction, lanes=16)
    assert reduction_form(expression, reduction, indices, 16).source is Source.TURNED
    kept = {reduction.operands[0]: None}
    assert reduction_form(expression, reduction, indices, 16, kept).source is Source.DIRECT


def test_lanes_are_those_of_the_machine() -> None:
    expression, reduction = parsed(program("add", "f32[6,1024]", "1"))
    form = reduction_form(expression, reduction, indices_of(reduction), 8)
    assert said(form) == "add over r in 1024 by 4 x 8 lanes, 4 accumulators"
    form = reduction_form(expression, reduction, indices_of(reduction), 1)
    assert said(form) == "add over r in 1024 by 4 x 1 lane, 4 accumulators"
    assert form.join is Join.NONE


def test_long_code_has_fewer_accumulators() -> None:
    expression, reduction = parsed(picked("50,1000"))
    form = reduction_form(expression, reduction, indices_of(reduction), 16)
    assert said(form) == "pick over r in 1000 by 2 x 16 lanes, masked tail, 2 accumulators"


def test_a_dimension_that_is_met_in_pieces_is_two_loops() -> None:
    text = program(
        "maximum",
        "f32[210]",
        "0",
        before="""x = f32[7,30] parameter(0)
  t = f32[30,7] transpose(x), dimensions={1,0}
  y = f32[210] reshape(t)""",
    )
    expression, reduction = parsed(text)
    form = reduction_form(expression, reduction, indices_of(reduction), 16)
    expected = "maximum over r in 30 and s in 7 by 8 lanes, masked tail"
    assert said(form) == expected


# What follows a reduction -> how the lanes of four results side by side meet.
JOINS = {
    "": Join.TOGETHER,
    "ROOT r = f32[8] negate(s)": Join.TOGETHER,
    "ROOT r = f32[8] exponential(s)": Join.HALVED,
    "n = f32[8] negate(s) ROOT r = f32[8,64] broadcast(n), dimensions={0}": Join.HALVED,
    "ROOT r = f32[] reduce(s, z), dimensions={0}, to_apply=add": Join.TOGETHER,
}


@pytest.mark.parametrize("after", JOINS)
def test_lanes_meet_together_unless_one_result_is_waited_for(after: str) -> None:
    expression, reduction = parsed(program("add", "f32[8,64]", "1", after=after))

    def join(count: int) -> Join:
        return reduction_form(expression, reduction, indices_of(reduction, count), 16).join

    assert [join(count) for count in (1, 2, 3)] == [Join.HALVED, JOINS[after], Join.HALVED]
    form = reduction_form(expression, reduction, indices_of(reduction, 4), 16)
    together = ", halved together" if JOINS[after] is Join.TOGETHER else ""
    assert said(form) == f"add over r in 64 by 16 lanes, 4 side by side{together}"


@pytest.mark.parametrize(("op", "join"), [("and", Join.TESTED), ("xor", Join.HALVED)])
def test_truths_are_tested_where_one_may_be_taken_twice(op: str, join: Join) -> None:
    expression, reduction = parsed(program(op, "pred[8,64]", "1"))
    assert reduction_form(expression, reduction, indices_of(reduction), 16).join is join


def test_lanes_of_their_own_do_not_meet() -> None:
    expression, reduction = parsed(program("add", "f32[60,64]", "0"))
    assert (
        reduction_form(expression, reduction, indices_of(reduction, lanes=16), 16).join is Join.NONE
    )


# -- windows ---------------------------------------------------------------------------------

# "op shape size", in 16 lanes.
WINDOWS = {
    "maximum f32[8,64] 2x2": "maximum over r in 2, written out and s in 2, written out",
    "add f32[8,64] 1x2": "add over r in 2, written out",
    "add f32[8,64] 1x1": "add over one element",
    "add f32[40,64] 4x8": "add over r in 4, written out and s in 8, written out",
    "add f32[40,64] 3x11": "add over r in 3, blocks of 1 and s in 11",
    "add f32[40,164] 10x40": "add over r in 10, blocks of 1 and s in 40, blocks of 16",
    "add c64[164] 40": "add over r in 40, blocks of 16",
    "add s32[164] 40": "add over r in 40",
    "maximum f32[164] 40": "maximum over r in 40",
    "subtract f32[164] 4": "subtract over r in 4, written out",
    "subtract f32[164] 5": "subtract over r in 5",
}


@pytest.mark.parametrize("asked", WINDOWS)
def test_a_window_is_made(asked: str) -> None:
    _, reduction = parsed(windowed(*asked.split()))
    ((group, form),) = window_forms(reduction, indices_of(reduction, 2, lanes=16))
    assert group == range(2)
    assert said(form) == f"{WINDOWS[asked]}, in each of 16 lanes, 2 side by side"


def test_windows_that_lanes_share_have_a_loop_each() -> None:
    _, reduction = parsed(windowed("add", "f32[164]", "40"))
    forms = window_forms(reduction, indices_of(reduction, 3))
    assert [group for group, _ in forms] == [range(1), range(1, 2), range(2, 3)]
    assert {said(form) for _, form in forms} == {"add over r in 40, blocks of 16"}


def test_windows_that_are_written_out_are_made_together() -> None:
    _, reduction = parsed(windowed("add", "f32[164]", "4"))
    ((group, form),) = window_forms(reduction, indices_of(reduction, 3))
    assert (group, form.results, form.lanes) == (range(3), 3, 1)


# -- blocks ----------------------------------------------------------------------------------


def test_blocks_are_sixteen_terms_or_eight_blocks() -> None:
    assert [sizes_of(n) for n in (1, 16, 17, 128, 129, 1025)] == [
        (), (), (16,), (16,), (128, 16), (1024, 128, 16)
    ]  # fmt: skip


def test_steps_of_sixteen_terms_and_more_are_added_apart() -> None:
    assert [axis.apart for axis in blocked_axes((5, 4, 3))] == [False, False, False]
    assert [axis.apart for axis in blocked_axes((5, 4, 4))] == [True, False, False]
    assert [axis.apart for axis in blocked_axes((5, 4, 4), terms=4)] == [True, True, False]
    assert [axis.apart for axis in blocked_axes((5,), terms=16)] == [True]


def test_steps_of_fewer_terms_are_blocks_of_sixteen_terms() -> None:
    assert [axis.blocks for axis in blocked_axes((8, 8))] == [(2,), ()]
    assert [axis.blocks for axis in blocked_axes((40, 5))] == [(24, 3), ()]
    assert [axis.blocks for axis in blocked_axes((40,), terms=16)] == [(16,)]


READ_ANYWHERE = """HloModule m
first { ROOT a = s16[] parameter(0) b = s16[] parameter(1) }
fn {
  x = s16[1,4,2,2] parameter(0)
  z = s16[] constant(9)
  sums = s16[1,4,2] reduce(x, z), dimensions={3}, to_apply=first
  i = s8[1,1,1] constant({{{1}}})
  u = s16[1,1,1,2] constant({{{{3, 4}}}})
  ROOT r = s16[1,4,2] scatter(sums, i, u), update_window_dims={0,3}, inserted_window_dims={1},
    scatter_dims_to_operand_dims={1}, index_vector_dim=1, to_apply=first
}
ENTRY e {
  x = s16[1,4,2,2] parameter(0)
  ROOT r = s16[1,4,2] fusion(x), kind=kLoop, calls=fn
}"""


def test_a_reduction_that_is_read_anywhere_is_no_stage() -> None:
    module, x = hlo.parse(READ_ANYWHERE), np.arange(16, dtype=np.int16).reshape(1, 4, 2, 2)
    found = hlo.compile(module, passes="", cache=False)(x)
    np.testing.assert_array_equal(found, hlo.evaluate(module, x))
