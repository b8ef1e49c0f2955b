"""Broken graphs that no text can say, made in Python."""

import pytest

from hlo.errors import HloErrors
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.verifier.verify import verify

F32 = Shape.array("f32", (2,))


def module_of(*computations: Computation) -> Module:
    """A module whose last computation is the entry."""
    module = Module("m")
    for computation in computations:
        module.add(computation, entry=computation is computations[-1])
    return module


def with_parameter(name: str = "e", number: int = 0) -> tuple[Computation, Instruction]:
    computation = Computation(name)
    parameter = computation.new("parameter", F32, (), {"parameter_number": number}, name="p")
    return computation, parameter


def problems(module: Module) -> list[str]:
    try:
        verify(module)
    except HloErrors as errors:
        return [e.message for e in errors.errors]
    return []


def test_sound_module_verifies() -> None:
    entry, p = with_parameter()
    entry.new("negate", F32, (p,))
    assert problems(module_of(entry)) == []


def test_operand_of_another_computation() -> None:
    _, foreign = with_parameter("other")
    entry, _ = with_parameter()
    entry.new("negate", F32, (foreign,))
    assert any("of another computation" in m for m in problems(module_of(entry)))


def test_cycle() -> None:
    entry, p = with_parameter()
    a = entry.new("negate", F32, (p,), name="a")
    b = entry.new("negate", F32, (a,), name="b")
    entry.set_operand(a, 0, b)
    assert any("one of a cycle" in m for m in problems(module_of(entry)))


def test_control_edge_that_closes_a_cycle() -> None:
    entry, p = with_parameter()
    a = entry.new("negate", F32, (p,), name="a")
    b = entry.new("negate", F32, (a,), name="b")
    entry.set_attributes(a, {"control-predecessors": (b,)})
    assert any("one of a cycle" in m for m in problems(module_of(entry)))


def test_parameter_gap() -> None:
    entry, _ = with_parameter(number=1)
    assert any("number 1, expected the numbers 0 to 0" in m for m in problems(module_of(entry)))


def test_recursion() -> None:
    callee, p = with_parameter("callee")
    callee.new("call", F32, (p,), {"to_apply": callee}, name="again")
    entry, q = with_parameter()
    entry.new("call", F32, (q,), {"to_apply": callee})
    assert any(
        "a call of callee from inside of it" in m for m in problems(module_of(callee, entry))
    )


def test_callee_of_another_module() -> None:
    callee, _ = with_parameter("callee")
    entry, q = with_parameter()
    entry.new("call", F32, (q,), {"to_apply": callee})
    assert any("callee, of another module" in m for m in problems(module_of(entry)))


def test_names_that_meet() -> None:
    entry, p = with_parameter()
    entry.add(Instruction("p", "negate", F32, (p,)))
    found = problems(module_of(entry))
    assert not found or any("the second of the name p" in m for m in found)


def test_missing_attribute() -> None:
    entry, p = with_parameter()
    entry.new("transpose", F32, (p,))
    assert problems(module_of(entry)) == [
        "transpose: no attribute dimensions, expected it to be given (V8)"
    ]


def test_wrong_number_of_operands() -> None:
    entry, p = with_parameter()
    entry.new("negate", F32, (p, p))
    assert problems(module_of(entry)) == ["negate: 2 operands, expected 1 (V9)"]


def test_schedule_out_of_order() -> None:
    entry, p = with_parameter()
    a = entry.new("negate", F32, (p,), name="a")
    b = entry.new("negate", F32, (a,), name="b")
    entry.reorder([p, b, a])
    entry.root = b
    module = module_of(entry)
    module.attributes = {"is_scheduled": True}
    assert problems(module) == [
        "negate: before a in the schedule, expected after what it needs (V64)"
    ]


def test_deep_module_does_not_recurse() -> None:
    entry, last = with_parameter()
    for i in range(20_000):
        last = entry.new("negate", F32, (last,), name=f"n{i}")
    assert problems(module_of(entry)) == []


@pytest.mark.parametrize("depth", [5_000])
def test_deep_call_chain_does_not_recurse(depth: int) -> None:
    computations = []
    callee: Computation | None = None
    for i in range(depth):
        computation, p = with_parameter(f"c{i}")
        if callee is not None:
            computation.new("call", F32, (p,), {"to_apply": callee}, name="call")
        computations.append(computation)
        callee = computation
    assert problems(module_of(*computations)) == []
