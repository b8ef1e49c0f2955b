"""Random instructions of every family, compiled and interpreted: equal bits, floats within budget.

Twenty results make one module, so that a case costs a few milliseconds of compile time. Sums and
products are of small whole numbers, exact in any order, so that their bits have to agree as well.
"""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.ir.instruction import Instruction
from hlo.ir.layout import Layout
from hlo.ops.numerics.representation import codes
from hlo.ops.table import OPS, Trait
from hlo.tools.comparison.compare import Budget, compare
from tests.support.covering import sample
from tests.support.op_draws import FAMILIES, Draw, drawn

PER_MODULE = 20
BITWISE = {name for name, row in OPS.items() if row.traits & Trait.MOVEMENT} | {"sort", "iota"}


def problem(made: Instruction, actual: object, expected: object) -> str:
    """What distinguishes two results; empty where they agree."""
    joined = made.opcode == "bitcast-convert" and made.shape.dtype.is_float
    if made.opcode in BITWISE and not joined:  # a narrow float made of parts may lose NaN payloads
        return "" if _same_bits(actual, expected) else f"{actual}, expected {expected}"
    budget = Budget(2 * OPS[made.opcode].ulp, _tolerance(made.shape) if OPS[made.opcode].ulp else 0)
    report = compare(actual, expected, budget)
    exact = OPS[made.opcode].ulp == 0 and OPS[made.opcode].traits & Trait.ELEMENTWISE
    if exact and any(array.zero_signs for array in report.arrays):
        return f"zeros of another sign\n{report.text}"
    return "" if report.passed else report.text


def _tolerance(shape: hlo.Shape) -> float:
    """Complex numbers are close where their distance is small beside their size."""
    return {"c64": 1e-6, "c128": 2e-15}.get(shape.dtype.name, 0.0)


def _same_bits(actual: object, expected: object) -> bool:
    """Equal element bits; what a byte holds beside a narrow element is nobody's."""
    if isinstance(expected, tuple):
        assert isinstance(actual, tuple), "both are tuples"
        return all(map(_same_bits, actual, expected))
    return all(np.array_equal(a, b) for a, b in zip(_codes(actual), _codes(expected), strict=True))


def _codes(value: object) -> list[np.ndarray]:
    array = np.asarray(value)
    if array.dtype.kind == "c":
        return [codes(array.real.copy()), codes(array.imag.copy())]
    return [codes(array)]


def disagreements(family: str, seed: int, threads: int, passes: str = "default") -> list[str]:
    """Which of a module's results differ between the two engines.

    Without passes, arrays have layouts of all orders as well and lie beside forbidden pages: what a
    rewrite would remove reaches the kernels, and a stray access ends the process.
    """
    d = Draw(seed)
    made = [drawn(d, FAMILIES[family]) for _ in range(PER_MODULE)]
    if not passes:
        for instruction in (*d.parameters, *made):
            instruction.shape = reordered(d, instruction.shape)
    module = d.b.build(d.b.tuple(made))
    expected = hlo.evaluate(module, *d.arguments)
    executable = hlo.compile(module, passes, cache=False, threads=threads)
    actual = (executable if passes else executable.run_guarded)(*d.arguments)
    return [
        f"{k}: {describe(instruction)}\n{found}"
        for k, instruction in enumerate(made)
        if (found := problem(instruction, actual[k], expected[k]))
    ]


def reordered(d: Draw, shape: hlo.Shape) -> hlo.Shape:
    """The shape with its dimensions in some order in memory."""
    if shape.is_tuple:
        return hlo.Shape.tuple(reordered(d, element) for element in shape.elements)
    return shape.with_layout(
        replace(shape.layout or Layout(()), minor_to_major=d.order(shape.rank))
    )


def describe(instruction: Instruction) -> str:
    shapes = ", ".join(str(o.shape) for o in instruction.operands)
    attributes = ", ".join(f"{k}={v}" for k, v in instruction.attributes.items())
    return f"{instruction.shape} {instruction.opcode}({shapes}), {attributes}"


@pytest.mark.parametrize("seed", sample(range(12), 2))
@pytest.mark.parametrize("family", FAMILIES)
def test_compiled_ops_agree_with_the_interpreter(family: str, seed: int) -> None:
    assert disagreements(family, seed, threads=1 + seed % 3) == []


@pytest.mark.parametrize("seed", sample(range(100, 106), 2))
@pytest.mark.parametrize("family", FAMILIES)
def test_ops_without_passes_agree_and_stay_within_their_memory(family: str, seed: int) -> None:
    assert disagreements(family, seed, threads=1 + seed % 3, passes="") == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2000, 2200))
@pytest.mark.parametrize("family", FAMILIES)
def test_many_ops_without_passes_agree(family: str, seed: int) -> None:
    assert disagreements(family, seed, threads=1 + seed % 3, passes="") == []


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1040))
@pytest.mark.parametrize("family", FAMILIES)
def test_many_compiled_ops_agree_with_the_interpreter(family: str, seed: int) -> None:
    assert disagreements(family, seed, threads=1 + seed % 3) == []
