"""What a kernel says of its work that runs others block by block."""

from __future__ import annotations

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.ir.kernel import Work
from hlo.machine import NAMED

PRODUCT = """HloModule m
ENTRY e {{
  x = bf16[512,512] parameter(0)
  y = bf16[512,512] parameter(1)
  ROOT r = {out}[512,512] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""
CHAIN = """HloModule m
ENTRY e {
  x = f32[64,2048,512] parameter(0)
  big = f32[64,2048,512] exponential(x)
  ROOT r = f32[64,2048,512] negate(big)
}"""


def works(text: str) -> list[Work]:
    """Those of kernels that multiply, or that say nothing but how much they move."""
    program = Compilation(hlo.parse(text), machine=NAMED["znver4"], threads=2).program
    said = [kernel.work for kernel in program.kernels if kernel.work is not None]
    return [work for work in said if work.instructions > 0]


def test_a_product_in_blocks_takes_as_many_instructions_as_one_at_once() -> None:
    """The last one is the product of few sums that makes it once more where it has to."""
    whole, _ = works(PRODUCT.format(out="f32"))
    (blocked, *_) = sorted(works(PRODUCT.format(out="bf16")), key=lambda w: w.instructions)
    assert 512**3 / 2 / 16 <= whole.instructions < 1.02 * 512**3 / 2 / 16
    assert 0.98 < blocked.instructions / whole.instructions < 1.1


def test_loops_say_no_work() -> None:
    assert not works(CHAIN)
