"""Operations, transcendentals and bytes of loop-free programs are those of XLA's cost analysis.

Tuples aside, of which XLA counts a pointer for each element, and but for what REASONS lists.
"""

from __future__ import annotations

import pytest

from hlo import driver
from hlo.backend.profiling.limits import Limits
from hlo.ir.computation import Computation
from hlo.ir.module import Module
from hlo.tools.inspection.cost import cost
from tests.differential.test_conformance import FOLDER, PROGRAMS
from tests.support import oracle

pytestmark = [
    pytest.mark.oracle,
    pytest.mark.corpus,
    pytest.mark.skipif(not oracle.available(), reason="needs jaxlib 0.10.2"),
    pytest.mark.skipif(not PROGRAMS, reason="shared/suites is not there"),
]

LIMITS = Limits(1, 1e10, 1e10, 1e11)
POINTER_BYTES = 8
REASONS = {
    "custom-call": "XLA subtracts one operation and one byte where it does not know the target",
    "conditional": "ours is one branch, XLA's the most of each figure over all branches",
    "sort": "ours compares within each row, XLA over all elements together",
    "fft": "ours adds the halvings of all lengths, XLA multiplies them",
    "bitcast-convert": "moves bits: no operation here, one for each element in XLA",
    "opt-barrier": "moves nothing here, in XLA all that passes",
    "cholesky": "XLA counts half of what is read and written for the other triangle",
    "triangular-solve": "XLA counts half of the matrix",
    "ragged-dot": "not counted here, and said so",
    "scan": "not counted here, and said so",
    "rng-bit-generator": "not counted here, and said so",
    "set-dimension-size": "moves nothing here but the array",
    "dynamic-slice": "XLA leaves out the indices after the first",
    "all-gather-start": "XLA counts the result of a start as its own memory once only",
    "collective-permute-start": "the same",
    "all-reduce-start": "XLA counts the sum at the start, here it is the synchronous form's",
    "async-start": "XLA counts starts, updates and ends by what they hand on",
    "gather": "of a fusion that gathers and scatters, XLA reads the gathered array as a whole",
    "dynamic-update-slice": "XLA leaves out the indices after the first",
}
PROGRAM_REASONS = {
    "fusion_custom_nested": "XLA reads an operand again for a fusion inside a fusion",
    "zero_sized_f32": "XLA counts fewer than no operations for reductions of nothing",
}


def pointers(computation: Computation) -> int:
    """Bytes of the tuples that a run makes."""
    total = 0
    for i in computation.instructions:
        if i.opcode == "tuple":
            total += POINTER_BYTES * len(i.operands)
        elif i.opcode == "call":
            total += sum(pointers(c) for c in i.called_computations())
    return total


def opcodes(module: Module) -> set[str]:
    return {i.opcode for c in module.computations for i in c.instructions}


def test_as_xla_counts(xla: oracle.Oracle) -> None:
    """All 236 programs but those with loops: most are equal, each other one has its reason."""
    equal, wrong, used = 0, [], set()
    for name in PROGRAMS:
        text = (FOLDER / f"{name}.hlo").read_text()
        module = driver.parse(text, f"{name}.hlo")
        found = opcodes(module)
        if "while" in found:
            continue
        total = cost(module, LIMITS, "opcode").total
        ours = (total.flops, total.transcendentals, total.bytes)
        theirs = xla.cost(text)
        assert theirs is not None
        expected = (*theirs[:2], theirs[2] - pointers(module.entry))
        reasons = found & REASONS.keys() | ({name} & PROGRAM_REASONS.keys())
        if ours == expected:
            equal += 1
        elif reasons:
            used |= reasons
        else:
            wrong.append((name, ours, expected))
    assert not wrong
    assert used == REASONS.keys() | PROGRAM_REASONS.keys()
    assert equal > 3 * 42
