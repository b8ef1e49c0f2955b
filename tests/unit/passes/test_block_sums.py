"""Sums over blocks: gradients of attention whose memory is linear in tokens."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.analysis.blocks.block import Block
from hlo.analysis.blocks.blocked import is_blocked
from hlo.analysis.blocks.cutting import Total, cut_computation
from hlo.analysis.blocks.size import block_of, sum_parts, units_of
from hlo.analysis.blocks.sums import is_summed
from hlo.backend.ir.kernel import KernelSequence
from hlo.backend.linking.toolchain import host_target
from hlo.backend.planning.families import kernel_makers
from hlo.backend.planning.implementations import implement
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from tests.support.attention_programs import attention, gradients
from tests.support.by_threads import for_threads


def blocked(module: Module) -> list[Instruction]:
    every = (i for c in module.computations for i in c.instructions if i.opcode == "fusion")
    return [fusion for fusion in every if is_blocked(fusion)]


def inputs(text: str) -> list[np.ndarray]:
    rng = np.random.default_rng(11)
    return [
        rng.standard_normal(p.shape.dims).astype(p.shape.dtype.numpy)
        for p in driver.parse(text).entry.parameters
    ]


def largest(module: Module) -> int:
    """The most elements of a value outside of fusions."""
    return max(leaf.size for i in module.entry.instructions for leaf in i.shape.leaves())


def test_gradients_are_one_fusion_that_adds_up_sums() -> None:
    module = driver.optimize(driver.parse(gradients(8, 512)))
    (fusion,) = blocked(module)
    assert largest(module) == 8 * 512 * 16
    block = block_of(fusion)
    assert block is not None
    assert (block.lead, block.sizes[0]) == ((8, 512), 1)
    (callee,) = fusion.called_computations()
    roots = callee.root.operands
    assert [root.name for root in roots if is_summed(root, block)] == ["dk", "dv"]
    assert units_of(roots, block) == 8


def test_a_sum_over_blocks_is_read_and_given_where_it_lies() -> None:
    (fusion,) = blocked(driver.optimize(driver.parse(gradients(8, 512))))
    (callee,) = fusion.called_computations()
    even = cut_computation(callee, Block((8, 512), (1, 128)))
    totals = [p for p in even.parameters if isinstance(p, Total)]
    assert totals == [r for r in even.results if isinstance(r, Total)]
    assert [t.in_last for t in totals] == [None, None]
    assert not even.turns
    odd = cut_computation(callee, Block((8, 512), (1, 176)))
    assert [r.in_last for r in odd.results if isinstance(r, Total)] == [False, True] * 2
    slices = [i for i in odd.turns if i.opcode == "slice"]
    assert [i.shape.dims[1] for i in slices] == [512 % 176] * 4


def test_a_product_that_is_no_sum_over_blocks() -> None:
    entry = driver.parse(gradients(8, 512)).entry
    dots = {i.name: i for i in entry.instructions if i.opcode == "dot"}
    by_rows, by_heads = Block((8, 512), (1, 128)), Block((8,), (1,))
    assert not any(is_summed(dots[name], by_rows) for name in ("s", "o", "dp", "dq"))
    assert not any(is_summed(dot, by_heads) for dot in dots.values())
    assert is_summed(dots["dk"], by_rows)
    assert not is_summed(dots["dk"], Block((8, 512, 16), (1, 1, 4)))


@pytest.mark.parametrize(("heads", "parts"), [(1, 8), (2, 4), (3, 3), (4, 1), (5, 2), (8, 1)])
def test_sums_of_few_heads_are_made_in_parts(heads: int, parts: int) -> None:
    """One thread would run each head's blocks: a part of them each, and then parts are added up."""
    module = driver.optimize(driver.parse(gradients(heads, 512)))
    (fusion,) = blocked(module)
    assert largest(module) == heads * 512 * 16
    block = block_of(fusion)
    assert block is not None
    assert sum_parts(block, in_order=False) == parts
    (callee,) = fusion.called_computations()
    assert units_of(callee.root.operands, block) == heads * parts
    made = implement(fusion, host_target(), kernel_makers)
    assert isinstance(made, KernelSequence)
    loop = max(made.calls, key=lambda call: len(call.buffers))
    assert loop.kernel.units == heads * parts
    before = made.calls.index(loop)  # calls that pack what all blocks share, an array each
    sums = [heads * parts * 512 * 16 * 4] * 2  # of keys' gradients and of values'
    assert [*made.temporaries][before:][:2] == (sums if parts > 1 else [])
    assert len(made.calls) - before == (3 if parts > 1 else 1)


def test_scores_that_fit_no_cache_are_computed_again_for_gradients() -> None:
    """The gradients need all results, and probabilities; from 4 MiB on."""
    module = driver.optimize(driver.parse(gradients(4, 1024, of_all=True)))
    assert len(blocked(module)) == 2
    assert largest(module) == 4 * 1024 * 16
    small = driver.optimize(driver.parse(gradients(4, 500, of_all=True)))
    assert len(blocked(small)) == 2
    assert largest(small) == 4 * 500 * 500


def test_narrow_sums_are_added_in_single_precision() -> None:
    module = driver.optimize(driver.parse(gradients(8, 512, dtype="bf16")))
    (fusion,) = blocked(module)
    (callee,) = fusion.called_computations()
    types = {root.name: root.shape.dtype.name for root in callee.root.operands}
    assert types == {"o": "bf16", "dq": "bf16", "dk": "f32", "dv": "f32"}
    assert not blocked(driver.optimize(driver.parse(gradients(8, 64, dtype="bf16"))))


def test_a_product_whose_right_side_is_large_is_exchanged() -> None:
    text = attention(4, 512)
    start = text.index("  ROOT o =")
    text = (
        text[:start]
        + """  ROOT o = f32[4,16,512] dot(v, p), lhs_batch_dims={0},
    lhs_contracting_dims={1}, rhs_batch_dims={0}, rhs_contracting_dims={2} }"""
    )
    module = driver.optimize(driver.parse(text))
    assert len(blocked(module)) == 1
    assert largest(module) == 512 * 512  # the mask
    before = driver.parse(text.replace("512", "64"))
    assert "dot(%v" in driver.to_text(driver.optimize(before))


@pytest.mark.parametrize(
    ("text", "tolerance"),
    [
        (gradients(4, 512), 1e-5),
        (gradients(5, 509), 1e-5),
        (gradients(1, 512), 1e-5),
        (gradients(2, 509), 1e-5),
        (gradients(3, 1031, of_all=True), 1e-4),
        (gradients(1, 640, dtype="bf16"), 0.05),
        (gradients(4, 1031, of_all=True), 1e-4),
        (gradients(4, 512, dtype="bf16"), 0.05),
        (gradients(4, 509, dtype="bf16"), 0.05),
        (gradients(8, 300, dtype="f64"), 1e-12),
    ],
    ids=[
        "even",
        "last block overlaps",
        "parts",
        "parts overlap",
        "parts computed again",
        "parts of bf16",
        "computed again",
        "bf16",
        "bf16 overlaps",
        "f64",
    ],
)
@pytest.mark.parametrize("unusual", [False, True], ids=["finite", "infinities, NaN, subnormal"])
def test_sums_over_blocks_are_what_the_whole_gives(
    text: str, tolerance: float, *, unusual: bool
) -> None:
    arrays = inputs(text)
    heads = len(arrays[0])
    if unusual:
        arrays[2][0, 5, 3] = np.inf
        arrays[2][-1, 7, 2] = np.nan
        arrays[3][heads // 2, 300 - 1, 4] = -np.inf
        arrays[0][-1] *= arrays[0].dtype.type(1e-38)
    module = driver.parse(text)
    whole = driver.compile(driver.optimize(module, "simplify,fusion"), passes="")
    expected = [np.asarray(part) for part in whole(*arrays)]
    first = None
    for threads in (1, 2, 3, 7):
        found = [np.asarray(part) for part in for_threads(module, threads=threads)(*arrays)]
        first = first or [part.tobytes() for part in found]
        assert [part.tobytes() for part in found] == first
    for a, b in zip(found, expected, strict=True):
        a, b = a.astype(np.float64), b.astype(np.float64)
        scale = np.abs(b[np.isfinite(b)]).max(initial=0)
        np.testing.assert_allclose(a, b, rtol=10 * tolerance, atol=tolerance * scale)


def test_the_first_step_of_a_block_may_be_one_that_not_every_block_runs() -> None:
    """The last block's rows that are new are cut out first: its label is no value's name."""
    text = """HloModule first
blocks { y = f32[4,509,16] parameter(0)
  x = f32[4,509,32] parameter(1)
  ROOT d = f32[4,16,32] dot(y, x), lhs_batch_dims={0}, lhs_contracting_dims={1},
    rhs_batch_dims={0}, rhs_contracting_dims={1} }
ENTRY e { y = f32[4,509,16] parameter(0)
  x = f32[4,509,32] parameter(1)
  ROOT r = f32[4,16,32] fusion(y, x), kind=kCustom, calls=blocks,
    backend_config={"hlo":{"block":[1,48]}} }"""
    y, x = inputs(text)
    found = driver.compile(driver.parse(text), passes="")(y, x)
    np.testing.assert_allclose(found, np.einsum("hrc,hrd->hcd", y, x), rtol=1e-4, atol=1e-4)
