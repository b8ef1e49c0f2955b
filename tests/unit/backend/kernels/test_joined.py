"""Concatenates of very many operands: the bits of the reference, in a text that does not grow."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver


def program(dtype: str, widths: list[int], outer: int, inner: int, repeats: int) -> str:
    operands = [f"p{k % len(widths)}" for k in range(repeats)]
    total = sum(widths[k % len(widths)] for k in range(repeats))
    lines = [
        f"  p{k} = {dtype}[{outer},{width},{inner}] parameter({k})"
        for k, width in enumerate(widths)
    ]
    root = f"  ROOT r = {dtype}[{outer},{total},{inner}] concatenate({', '.join(operands)})"
    return "\n".join(["HloModule m", "ENTRY e {", *lines, f"{root}, dimensions={{1}}", "}", ""])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("dtype", "outer", "inner"),
    [
        ("f32", 1, 1),
        ("f32", 3, 2),
        ("pred", 2, 3),
        ("bf16", 5, 1),
        ("c128", 2, 1),
        ("f32", 64, 400),
    ],
)
def test_many_operands(dtype: str, outer: int, inner: int, threads: int) -> None:
    module = driver.parse(program(dtype, [2, 3, 0, 1], outer, inner, 70))
    rng = np.random.default_rng(0)
    arguments = [
        rng.integers(0, 2, p.shape.dims).astype(p.shape.dtype.numpy)
        for p in module.entry.parameters
    ]
    executable = driver.compile(module, threads=threads, cache=False)
    wanted = driver.evaluate(module, *arguments)
    for run in (executable, executable.run_guarded):
        assert run(*arguments).tobytes() == wanted.tobytes()


def test_the_text_has_no_loop_for_each_operand() -> None:
    texts = [
        driver.emit_stage(driver.parse(program("f32", [2, 3], 2, 1, count)), "llvm")
        for count in (100, 400)
    ]
    assert texts[0].count("\n") == texts[1].count("\n")
