"""AVX-VNNI-INT8 and -INT16: which kinds of elements have an instruction, and that words suit it."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.isa import avx2
from hlo.backend.isa.dot_products import DotProduct, words_of_kinds
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.linking.toolchain import host_machine
from hlo.ir.dtype import DType
from hlo.machine import NAMED
from tests.support.contraction_harness import Compiled
from tests.support.emulated_words import emulated
from tests.unit.backend.kernels.contraction.test_words import extremes, text

KINDS = [
    ("s8", "s8", "vpdpbssd"), ("u8", "u8", "vpdpbuud"), ("s4", "s8", "vpdpbssd"),
    ("u4", "u8", "vpdpbuud"), ("u16", "s16", "vpdpwusd"), ("s16", "u16", "vpdpwusd"),
    ("u16", "u16", "vpdpwuud"), ("u16", "s8", "vpdpwusd"),
]  # fmt: skip
SIZES = [(64, 64, 64), (33, 61, 47), (7, 301, 90)]
LUNAR, ARROW, ALDER = (NAMED[name] for name in ("lunarlake", "arrowlake", "alderlake"))


@pytest.mark.parametrize(("lhs", "rhs", "instruction"), KINDS)
def test_the_machines_instruction(lhs: str, rhs: str, instruction: str) -> None:
    module = hlo.parse(text((lhs, rhs, "s32"), (64, 64, 64), 1, 0))
    code = hlo.driver.emit_stage(module, "asm", machine=LUNAR)
    assert instruction in code
    assert "0x80808080" not in code  # nothing is moved
    assert instruction not in hlo.driver.emit_stage(module, "asm", machine=ALDER)
    is_short = instruction.startswith("vpdpb")
    assert (instruction in hlo.driver.emit_stage(module, "asm", machine=ARROW)) == is_short


def test_kinds_that_one_instruction_more_serves_have_it() -> None:
    """u8 by s8 is AVX-VNNI's own, s16 by s16 too."""
    for types, instruction in ((("u8", "s8"), "vpdpbusd"), (("s16", "s16"), "vpdpwssd")):
        module = hlo.parse(text((*types, "s32"), (64, 64, 64), 1, 0))
        assert instruction in hlo.driver.emit_stage(module, "asm", machine=LUNAR)


@pytest.mark.skipif("avx2" not in host_machine().features, reason="vectors of 32 bytes")
@pytest.mark.parametrize(("lhs", "rhs", "instruction"), KINDS)
def test_sums_are_exact(
    monkeypatch: pytest.MonkeyPatch, lhs: str, rhs: str, instruction: str
) -> None:
    """The same words, by functions that do what the instructions do."""

    def without_assembly(lhs: DType, rhs: DType) -> DotProduct:
        return replace(words_of_kinds(lhs, rhs), assembly=None)

    monkeypatch.setattr(avx2, "words_of_kinds", without_assembly)
    for number, dims in enumerate(SIZES):
        module = hlo.parse(text((lhs, rhs, "s32"), dims, number % 2, number // 2))
        root, values = module.entry.root, extremes(module)
        sequence = contraction_kernels(root, Target(LUNAR))
        assert any(instruction in call.kernel.text for call in sequence.calls)
        result = np.zeros(root.shape.dims, np.int32)
        Compiled(emulated(sequence))(values, result, 3)
        np.testing.assert_array_equal(result, hlo.evaluate(module, *values))
