"""Epilogues of sums over blocks: the sum is a product of its own, so that blocks add it up."""

from __future__ import annotations

from hlo import driver
from hlo.analysis.blocks.blocked import is_blocked
from hlo.ir.module import Module
from tests.support.attention_programs import gradients

HEADS, LENGTH = 8, 512


def ended(end: str, shape: str, *, length: int = LENGTH) -> Module:
    """Gradients of which that of keys goes on."""
    inputs = f"{HEADS},{length},16"
    text = gradients(HEADS, length)
    old = f"(f32[{inputs}], f32[{inputs}], f32[{inputs}], f32[{inputs}]) tuple(o, dq, dk, dv)"
    new = f"(f32[{inputs}], f32[{inputs}], f32[{shape}], f32[{inputs}]) tuple(o, dq, x, dv)"
    text = text.replace(f"ROOT r = {old}", f"x = f32[{shape}] {end}\n  ROOT r = {new}")
    return driver.optimize(driver.parse(text))


def largest(module: Module) -> int:
    """The most elements of a value outside of fusions."""
    return max(leaf.size for i in module.entry.instructions for leaf in i.shape.leaves())


def opcodes(module: Module) -> list[str]:
    return [i.opcode for i in module.entry.instructions]


def test_what_moves_a_sum_stands_behind_the_blocks() -> None:
    module = ended("reshape(dk)", f"1,{HEADS},{LENGTH},16")
    assert largest(module) == HEADS * LENGTH * 16
    assert opcodes(module).count("reshape") == 1


def test_what_is_made_of_a_sum_is_a_kernel_behind_the_blocks() -> None:
    module = ended("add(dk, k)", f"{HEADS},{LENGTH},16")
    assert largest(module) == HEADS * LENGTH * 16
    kinds = [is_blocked(i) for i in module.entry.instructions if i.opcode == "fusion"]
    assert sorted(kinds) == [False, True]


def test_small_scores_keep_their_products_in_fusions() -> None:
    module = ended("add(dk, k)", f"{HEADS},64,16", length=64)
    (fusion,) = (
        i
        for i in module.entry.instructions
        if i.opcode == "fusion" and i.attributes["kind"] == "kOutput"
    )
    (body,) = fusion.called_computations()
    assert body.root.opcode == "add"
