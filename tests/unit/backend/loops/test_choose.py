"""Loops are chosen without a writer: the axes of each shape of kernel, on which machine."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.fused_loops import enter_operands, lanes_of
from hlo.backend.loops.choose import schedules_of
from hlo.backend.loops.domain import Domain, domains_of
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.nest_schedule import NestSchedule
from hlo.backend.loops.outputs import Output, outputs_of
from hlo.backend.loops.printing import print_axis
from hlo.backend.loops.schedule import Source, Tail
from hlo.ir.instruction import Instruction
from hlo.machine import NAMED

AVX512 = Target(NAMED["sapphirerapids"])

ADD = "add { a = f32[] parameter(0)\n  b = f32[] parameter(1)\n  ROOT s = f32[] add(a, b) }\n"


def root_of(text: str) -> Instruction:
    """The one kernel of a program as given: its root."""
    given = text if "ENTRY" in text else f"ENTRY e {{\n{text}\n}}"
    return hlo.parse(f"HloModule m\n{ADD}{given}").entry.root


def expressed(text: str, target: Target) -> tuple[Expression, list[Output], int]:
    root, expression = root_of(text), Expression(target)
    outputs = outputs_of(expression, root, enter_operands(expression, root))
    return expression, outputs, lanes_of(root, target)


def schedules(text: str, machine: str = "sapphirerapids") -> list[NestSchedule]:
    return schedules_of(*expressed(text, Target(NAMED[machine])))


def axes(text: str, machine: str = "sapphirerapids") -> list[str]:
    (schedule,) = schedules(text, machine)
    return [print_axis(axis) for axis in schedule.axes]


def reduced(shape: str, result: str, dimensions: str) -> str:
    return (
        f"  x = f32[{shape}] parameter(0)\n  z = f32[] constant(0)\n"
        f"  ROOT r = f32[{result}] reduce(x, z), dimensions={{{dimensions}}}, to_apply=add"
    )


SHAPES = {
    "one loop": (
        "  x = f32[1000] parameter(0)\n  ROOT r = f32[1000] negate(x)",
        ["i in 1000 by 4 x 16 lanes, masked tail"],
    ),
    "blocks of one loop": (
        "  x = f32[20000] parameter(0)\n  ROOT r = f32[20000] negate(x)",
        ["i in 20000 by 2560, parallel, short tail",
         "i in 2560 of 20000 by 4 x 16 lanes, masked tail by 16"],
    ),
    "no loop": ("  x = f32[] parameter(0)\n  ROOT r = f32[] negate(x)", []),
    "a small transpose": (
        "  x = f32[70,50] parameter(0)\n  ROOT r = f32[50,70] transpose(x), dimensions={1,0}",
        ["i in 50 by 16 lanes, parallel, overlapping tail", "j in 70 by 16 lanes, masked tail"],
    ),
    "a large transpose": (
        "  x = f32[2048,1024] parameter(0)\n"
        "  ROOT r = f32[1024,2048] transpose(x), dimensions={1,0}",
        ["j in 2048 by 64, parallel", "i in 1024 by 256, parallel",
         "i in 256 of 1024 by 16 lanes", "j in 64 of 2048 by 16 lanes"],
    ),
    "folds along rows, side by side": (
        reduced("1000,128", "1000", "1"), ["i in 1000 by 4, parallel"],
    ),
    "short rows, turned": (
        reduced("1000,9", "1000", "1"), ["i in 1000 by 16 lanes, overlapping tail"],
    ),
    "reductions over columns": (
        reduced("4096,1024", "1024", "0"),
        ["i in 1024 by 256, parallel", "i in 256 of 1024 by 2 x 16 lanes"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPES)
def test_axes_of_a_shape(name: str) -> None:
    text, expected = SHAPES[name]
    assert axes(text) == expected


def test_a_narrower_machine_has_other_lanes() -> None:
    text, _ = SHAPES["one loop"]
    assert axes(text, "x86-64-v3") == ["i in 1000 by 4 x 8 lanes, short tail"]
    assert axes(text, "neoverse-n1") == ["i in 1000 by 4 x 4 lanes, short tail"]


HEAVY = "  x = f32[{0}] parameter(0)\n  ROOT r = f32[{0}] exponential(x)"


@pytest.mark.parametrize(("machine", "lanes"), [("x86-64-v3", 8), ("x86-64-v2", 4)])
def test_values_take_two_registers_where_few_hold_a_formula(machine: str, lanes: int) -> None:
    pairs, least = 2 * lanes, 4 * 2 * lanes
    assert axes(HEAVY.format(1000), machine)[0].startswith(f"i in 1000 by 2 x {pairs} lanes")
    assert axes(HEAVY.format(least), machine) == [f"i in {least} by 2 x {pairs} lanes"]
    # too short; few numbers; registers enough; a sum, whose order is that of its lanes
    assert f" {lanes} lanes" in axes(HEAVY.format(least - 1), machine)[0]
    assert f" {lanes} lanes" in axes(SHAPES["one loop"][0], machine)[0]
    assert " 4 lanes" in axes(HEAVY.format(1000), "neoverse-n1")[0]
    assert " 16 lanes" in axes(HEAVY.format(1000))[0]
    columns = reduced("300,1000", "1000", "0").replace("reduce(x", "reduce(y").replace(
        "  z =", "  y = f32[300,1000] exponential(x)\n  z =")  # fmt: skip
    assert not any(f" {pairs} lanes" in axis for axis in axes(columns, machine))


def test_rows_are_turned_by_their_source_and_reductions_walk() -> None:
    (turned,) = schedules(SHAPES["short rows, turned"][0])
    assert turned.source is Source.TURNED
    (streams,) = schedules(SHAPES["reductions over columns"][0])
    (walk,) = streams.walks
    (reduction,) = walk.reductions
    assert (walk.extents, walk.rows, walk.block) == ((4096,), 8, 128)
    assert (reduction.columns, reduction.accumulators) == (256, 3)


# Sums of |x_i - y_k| over k, which no array holds.
PAIRS = """pairs {{ x = f32[{n}] parameter(0)
  y = f32[{k}] parameter(1)
  xs = f32[{k},{n}] broadcast(x), dimensions={{1}}
  ys = f32[{k},{n}] broadcast(y), dimensions={{0}}
  d = f32[{k},{n}] subtract(xs, ys)
  a = f32[{k},{n}] abs(d)
  z = f32[] constant(0)
  ROOT r = f32[{n}] reduce(a, z), dimensions={{0}}, to_apply=add }}
ENTRY e {{ x = f32[{n}] parameter(0)
  y = f32[{k}] parameter(1)
  ROOT r = f32[{n}] fusion(x, y), kind=kInput, calls=pairs }}"""


@pytest.mark.parametrize("machine", ["x86-64-v3", "sapphirerapids"])
def test_columns_of_what_no_array_holds_are_sums_in_registers_shared_by_units(machine: str) -> None:
    (schedule,) = schedules(PAIRS.format(n=120, k=4000), machine)
    assert not schedule.walks
    outer, inner = [print_axis(axis) for axis in schedule.axes]
    assert outer.startswith("i in 120 by " + ("32" if machine == "x86-64-v3" else "64"))
    assert "parallel" in outer
    assert " by 4 x " in inner
    (few,) = schedules(PAIRS.format(n=120, k=100), machine)
    assert few.units < schedule.units


def test_holes_of_holes_leave_rows_whole_for_lanes_if_no_step_fills_a_vector() -> None:
    text = """holes {{ a = f32[64,{0}] parameter(0)
  b = f32[64,{1}] parameter(1)
  c = f32[64,{2}] parameter(2)
  z = f32[] constant(0)
  p = f32[64,{1}] pad(a, z), padding=0_0x1_1_1
  s = f32[64,{1}] add(p, b)
  q = f32[64,{2}] pad(s, z), padding=0_0x0_1_1
  ROOT r = f32[64,{2}] add(q, c) }}
ENTRY e {{ a = f32[64,{0}] parameter(0)
  b = f32[64,{1}] parameter(1)
  c = f32[64,{2}] parameter(2)
  ROOT r = f32[64,{2}] fusion(a, b, c), kind=kLoop, calls=holes }}"""
    whole = [s.domain.extents for s in schedules(text.format(12, 25, 50))]
    parted = [s.domain.extents for s in schedules(text.format(511, 1023, 2046))]
    assert whole[0] == (64, 48)
    assert parted[0] == (64, 511, 2, 2)


def test_every_decision_has_its_reason() -> None:
    for text, _ in SHAPES.values():
        for schedule in schedules(text):
            assert all(": " in remark for remark in schedule.remarks)
    (squares,) = schedules(SHAPES["a large transpose"][0])
    assert [r.split(":")[0] for r in squares.remarks] == ["tile", "squares"]


def boxes(text: str) -> Iterator[Domain]:
    expression, outputs, _ = expressed(text, AVX512)
    yield from domains_of(expression, outputs, 16)


def test_seams_of_a_pad_are_edges_of_boxes() -> None:
    text = """  x = f32[100] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[130] pad(x, z), padding=10_20"""
    spans = [(box.low, box.dims) for box in boxes(text)]
    assert spans == [((0,), (10,)), ((10,), (100,)), ((110,), (20,))]


def test_results_of_other_dimensions_have_domains_of_their_own() -> None:
    text = """  x = f32[100] parameter(0)
  y = f32[7,3] parameter(1)
  a = f32[100] negate(x)
  b = f32[7,3] negate(y)
  ROOT r = (f32[100], f32[7,3]) tuple(a, b)"""
    assert [box.dims for box in boxes(text)] == [(100,), (7, 3)]


def chained(machine: str, kind: str, steps: int, asked: int = 0) -> NestSchedule:
    """Of a fusion in which each step, v y - u, asks for the two before it, v and u, and what comes
    of the last one for `asked` of the first.
    """
    t = f"{kind}[20000]"
    lines = [f"v0 = {t} parameter(0)", f"y = {t} parameter(1)", f"v1 = {t} multiply(v0, y)"]
    for n in range(1, steps):
        lines += [f"m{n} = {t} multiply(v{n}, y)", f"v{n + 1} = {t} subtract(m{n}, v{n - 1})"]
    last = f"v{steps}"
    for n in range(1, asked + 1):
        lines.append(f"r{n} = {t} add({last}, v{n + 4})")
        last = f"r{n}"
    return schedule_of([*lines, f"ROOT r = {t} negate({last})"], t, machine)


def schedule_of(lines: list[str], t: str, machine: str) -> NestSchedule:
    """Of a fusion of two operands of a type."""
    body = "\n".join(lines)
    text = (
        f"HloModule m\nf {{ {body} }}\nENTRY e {{ a = {t} parameter(0)\n b = {t} parameter(1)\n"
        f" ROOT r = {t} fusion(a, b), kind=kLoop, calls=f }}"
    )
    root, target = hlo.parse(text).entry.root, Target(NAMED[machine])
    expression = Expression(target)
    outputs = outputs_of(expression, root, enter_operands(expression, root))
    (schedule,) = schedules_of(expression, outputs, lanes_of(root, target))
    return schedule


@pytest.mark.parametrize(("digits", "role"), [(2, "unrolled"), (8, "")])
def test_few_steps_that_conditions_ask_for_are_written_out(digits: int, role: str) -> None:
    """Which half of a pair a place is of; or of longer rows whether it is the first part."""
    t, parts = f"f32[300,{32 * digits}]", f"f32[300,2,{digits},16]"
    lines = [
        f"x = {t} parameter(0)", f"y = {t} parameter(1)", f"s = {t} add(x, y)",
        f"a = {parts} reshape(s)",
        "f = f32[300,2,1,16] slice(a), slice={[0:300], [0:2], [0:1], [0:16]}",
        f"l = f32[300,2,{digits - 1},16] slice(a), "
        f"slice={{[0:300], [0:2], [1:{digits}], [0:16]}}",
        "n = f32[300,2,1,16] negate(f)", f"c = {parts} concatenate(n, l), dimensions={{2}}",
        f"ROOT r = {t} reshape(c)",
    ]  # fmt: skip
    _, axis, lanes = map(print_axis, schedule_of(lines, t, "sapphirerapids").axes)
    assert axis == ", ".join(filter(None, [f"j in {digits}", role]))
    assert lanes == "k in 16 by 16 lanes"


@pytest.mark.parametrize(
    ("kind", "machine", "asked", "step"),
    [
        ("f64", "znver4", 0, 32),
        ("f32", "znver4", 0, 64),
        ("f64", "x86-64-v3", 0, 32),  # values of two registers
        ("f64", "x86-64-v3", 10, 16),  # spilled
        ("f64", "x86-64-v3", 20, 8),  # more numbers than registers
    ],
)
def test_vectors_go_together_through_a_chain_that_cannot_be_parted(
    kind: str, machine: str, asked: int, step: int
) -> None:
    schedule = chained(machine, kind, 60, asked)
    assert not schedule.stages
    assert schedule.vector is not None
    assert schedule.vector.step == step


@pytest.mark.parametrize(("machine", "step"), [("znver4", 32), ("x86-64-v3", 16)])
def test_vectors_go_together_through_functions_if_registers_hold_them(
    machine: str, step: int
) -> None:
    t = "f32[20000]"
    lines = [f"v0 = {t} parameter(0)", f"y = {t} parameter(1)"]
    for n in range(9):
        lines += [f"m{n} = {t} multiply(v{n}, y)", f"t{n} = {t} tanh(m{n})"]
        lines += [f"own{n} = {t} tanh(v{n})", f"v{n + 1} = {t} add(t{n}, own{n})"]
    schedule = schedule_of([*lines, f"ROOT r = {t} negate(v9)"], t, machine)
    assert not schedule.stages
    assert schedule.vector is not None
    assert schedule.vector.step == step


@pytest.mark.parametrize(("steps", "stages"), [(30, 2), (16, 1), (8, 0)])
def test_chains_that_can_be_parted_or_are_short_go_alone(steps: int, stages: int) -> None:
    schedule = chained("znver4", "f64", steps)
    assert len(schedule.stages) == stages
    assert not any("a round, a chain" in remark for remark in schedule.remarks)


@pytest.mark.parametrize(
    ("shape", "is_little"), [("1000", True), ("20000", False), ("4000,64", False)]
)
def test_little_work_of_one_run_has_little_code(shape: str, *, is_little: bool) -> None:
    """The same loop in a loop of the program, or over more, is written for speed."""
    text = f"  x = f32[{shape}] parameter(0)\n  ROOT r = f32[{shape}] copy(x)"
    expression, outputs, lanes = expressed(text, AVX512)
    again = schedules_of(expression, outputs, lanes)
    expression.runs_once = True
    once = schedules_of(expression, outputs, lanes)
    assert [s.is_small for s in once] == [is_little]
    assert [s.is_small for s in again] == [False]


@pytest.mark.parametrize(
    ("machine", "flags", "tail"),
    [
        ("x86-64-v3", 4, Tail.SHORT),
        ("x86-64-v3", 3, Tail.PREDICATED),
        ("znver4", 4, Tail.PREDICATED),
    ],
)
def test_rounds_are_not_masked_where_many_elements_are_too_narrow_for_it(
    machine: str, flags: int, tail: Tail
) -> None:
    """Sturm sequences: quotients in turn, and whether each is below zero."""
    lines = ["v0 = f32[500] parameter(0)", "y = f32[500] parameter(1)"]
    for n in range(flags):
        lines += [
            f"e{n} = f32[500] exponential(v{n})",
            f"l{n} = f32[500] log(e{n})",
            f"v{n + 1} = f32[500] divide(l{n}, y)",
            f"c{n} = pred[500] compare(v{n + 1}, y), direction=LE",
        ]
    names = ", ".join([*(f"c{n}" for n in range(flags)), f"v{flags}"])
    types = ", ".join([*["pred[500]"] * flags, "f32[500]"])
    body = "\n".join([*lines, f"ROOT t = ({types}) tuple({names})"])
    text = f"""  a = f32[500] parameter(0)
  b = f32[500] parameter(1)
  ROOT r = ({types}) fusion(a, b), kind=kLoop, calls={{ {body} }}"""
    (schedule,) = schedules(text, machine)
    assert schedule.vector is not None
    assert schedule.vector.tail is tail
