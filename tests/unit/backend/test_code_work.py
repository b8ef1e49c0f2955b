"""Work is counted in code: loops as often as they run, what begins in a cycle, chains, bytes."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from hlo.analysis.legality import family_of
from hlo.backend.compilation import Compilation
from hlo.backend.ir.functions import Function
from hlo.backend.ir.kernel import Work
from hlo.backend.ir.values import Value
from hlo.backend.ir.writer import Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.fused_loops import function_of
from hlo.backend.lanes.nest import Nest
from hlo.backend.profiling.code_trips import Trips, Uncounted
from hlo.backend.profiling.code_work import code_work
from hlo.backend.profiling.plan_rows import LOOPS
from hlo.machine import Machine, named
from hlo.parser.parse import parse

WIDE = named("icelake-server")  # two operations, two loads and a shuffle in a cycle, of 64 bytes
SUM = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }"
ADD = "ENTRY e { x = f32[{n}] parameter(0) y = f32[{n}] parameter(1) ROOT r = f32[{n}] {op} }"


def elementwise(op: str, machine: Machine = WIDE, n: int = 4096) -> Work:
    text = f"HloModule m\n{ADD}".replace("{n}", str(n)).replace("{op}", op)
    return of_program(text, machine)


def of_program(text: str, machine: Machine = WIDE) -> Work:
    compilation = Compilation(parse(text), passes="", threads=1, machine=machine)
    (kernel,) = compilation.program.kernels
    work = code_work(kernel, compilation.target)
    assert work is not None
    return work


def body(write: Callable[[Nest], None]) -> Function:
    """A kernel's function."""
    w = Writer()
    write(Nest(w, Target(WIDE)))
    return function_of(w)


def often(function: Function, opcode: str, units: int = 10) -> float:
    """How often instructions run in a call for all units."""
    trips = Trips(function, {"%begin": 0, "%end": units})
    return sum(
        times * sum(record.opcode == opcode for record in block)
        for block, times in zip(trips.blocks, trips.often, strict=True)
    )


def test_loops_count_by_their_bounds() -> None:
    def nested(nest: Nest) -> None:
        w = nest.w

        def inner(j: Value, _: list[Value]) -> list[Value]:
            w.emit("store", j, Value("%place", "ptr"))
            return []

        def outer(i: Value, _: list[Value]) -> list[Value]:
            nest.loop(0, i, 1, [], inner)
            return []

        nest.loop(Value("%begin", "i64"), Value("%end", "i64"), 1, [], outer)

    assert often(body(nested), "store", 11) == 11 * 5, "as many as in the middle trip"
    assert often(body(nested), "store", 1) == 0, "an inner loop that is never entered"


def test_a_loop_that_data_ends_is_not_counted() -> None:
    def searching(nest: Nest) -> None:
        high = nest.w.load(Value("%buffers", "ptr"), "i64")
        nest.loop(0, high, 1, [], lambda _, carried: carried)

    with pytest.raises(Uncounted):
        often(body(searching), "store")


def test_branches_that_depend_on_data_lead_each_way_as_often() -> None:
    def branching(nest: Nest, then: str) -> None:
        w = nest.w
        seen = w.load(Value("%buffers", "ptr"), "i1")
        w.branch_if(seen, then, "end")
        w.label(then)
        w.emit("store", w.int(1), Value("%place", "ptr"))
        w.branch("end")
        w.label("end")

    assert often(body(partial(branching, then="then")), "store") == 0.5
    assert often(body(partial(branching, then="slow")), "store") == 0, "what is rare"


def test_the_unit_with_most_to_do_sets_the_time() -> None:
    vectors = 4096 // 16
    assert elementwise("add(x, y)").cycles == pytest.approx(vectors, rel=0.05), "two loads"
    long = elementwise("divide(x, y)").cycles
    assert long == pytest.approx(9 * vectors, rel=0.05), "the divider's nine cycles"
    narrow = elementwise("add(x, y)", named("x86-64-v3"))
    assert narrow.cycles == pytest.approx(2 * vectors, rel=0.1), "vectors of half the length"


def test_a_sum_waits_for_itself_where_few_are_side_by_side() -> None:
    text = (
        f"HloModule m\n{SUM}"
        "\nENTRY e { x = f32[1,65536] parameter(0) z = f32[] constant(0)"
        " ROOT r = f32[1] reduce(x, z), dimensions={1}, to_apply=add }"
    )
    assert of_program(text).cycles == pytest.approx(65536 / 16, rel=0.3), "four chains of four"


def test_bytes_that_a_loop_reads_again_come_from_what_holds_them() -> None:
    text = (
        f"HloModule m\n{SUM}"
        "\nf { x = f32[4,{n}] parameter(0) z = f32[] constant(0)"
        " s = f32[4] reduce(x, z), dimensions={1}, to_apply=add"
        " b = f32[4,{n}] broadcast(s), dimensions={0} ROOT d = f32[4,{n}] divide(x, b) }"
        "\nENTRY e { x = f32[4,{n}] parameter(0)"
        " ROOT r = f32[4,{n}] fusion(x), kind=kLoop, calls=f }"
    )
    near, far = (of_program(text.replace("{n}", str(n))) for n in (1024, 65536))
    assert not near.again, "4 KiB of a row lie in the first cache: loads count already"
    assert sum(size for size, _ in far.again) == pytest.approx(far.moved / 2, rel=0.01)
    assert {held for _, held in far.again} == {4 * 65536}


def test_elements_that_lie_apart_come_with_their_lines() -> None:
    text = (
        "HloModule m\nENTRY e { x = f32[{n}] parameter(0)"
        " ROOT r = f32[4096] slice(x), slice={[0:{n}:{step}]} }"
    )
    for step, line in ((21, 64), (9, 36)):
        n = str(4096 * step)
        work = of_program(text.replace("{n}", n).replace("{step}", str(step)))
        assert work.moved == pytest.approx(4096 * (4 + line), rel=0.01)


@pytest.mark.parametrize(("text", "counted"), [
    ("ROOT r = f32[8,64] sort(x), dimensions={1}, to_apply=less", False),
    ("ROOT r = f32[64,8] transpose(x), dimensions={1,0}", True),
    ("ROOT r = c64[8,33] fft(x), fft_type=RFFT, fft_length={64}", False),
])  # fmt: skip
def test_what_depends_on_data_or_sets_has_no_estimate(text: str, *, counted: bool) -> None:
    less = "less { a = f32[] parameter(0) b = f32[] parameter(1) ROOT l = pred[] compare(a, b)"
    module = parse(
        f"HloModule m\n{less}, direction=LT }}\nENTRY e {{ x = f32[8,64] parameter(0) {text} }}"
    )
    assert (family_of(module.entry.root) in LOOPS) is counted
