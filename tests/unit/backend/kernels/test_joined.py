"""Concatenates of very many operands: the bits of the reference, in a text that does not grow."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from tests.support.covering import covering
from tests.support.growing_modules import FAMILIES, computation
from tests.support.growing_modules import module as module_text


def program(dtype: str, widths: list[int], outer: int, inner: int, repeats: int) -> str:
    operands = [f"p{k % len(widths)}" for k in range(repeats)]
    total = sum(widths[k % len(widths)] for k in range(repeats))
    lines = [
        f"  p{k} = {dtype}[{outer},{width},{inner}] parameter({k})"
        for k, width in enumerate(widths)
    ]
    root = f"  ROOT r = {dtype}[{outer},{total},{inner}] concatenate({', '.join(operands)})"
    return "\n".join(["HloModule m", "ENTRY e {", *lines, f"{root}, dimensions={{1}}", "}", ""])


@pytest.mark.parametrize(
    ("threads", "dtype", "outer", "inner"),
    covering(
        [1, 2],
        [
            ("f32", 1, 1),
            ("f32", 3, 2),
            ("pred", 2, 3),
            ("bf16", 5, 1),
            ("c128", 2, 1),
            ("f32", 64, 400),
        ],
        strength=1,
        several=(1,),
    ),
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


COUNT = 130
REPEATED = computation(
    "fused",
    ["p = f32[3,2] parameter(0)",
     f"ROOT r = f32[3,{2 * COUNT}] concatenate({', '.join(['p'] * COUNT)}), dimensions={{1}}"],
)  # fmt: skip
AROUND = computation(
    "around",
    ["q = f32[3,2] parameter(0)", "s = f32[3,2] sine(q)",
     f"f = f32[3,{2 * COUNT}] fusion(s), kind=kLoop, calls=fused",
     f"ROOT n = f32[3,{2 * COUNT}] negate(f)"],
)  # fmt: skip
CALL = f"ROOT o = f32[3,{2 * COUNT}] fusion(p), kind=kLoop, calls="
TEXTS = {
    "of values": FAMILIES["concatenated_in_a_fusion"].text(COUNT),
    "of one value": module_text(["p = f32[3,2] parameter(0)", CALL + "fused"], REPEATED),
    "in a fusion in a fusion": module_text(
        ["p = f32[3,2] parameter(0)", CALL + "around"], REPEATED, AROUND
    ),
}


@pytest.mark.parametrize("passes", ["default", ""])
@pytest.mark.parametrize("name", TEXTS)
def test_given_fusions_that_join_many_arrays(name: str, passes: str) -> None:
    parsed = driver.parse(TEXTS[name])
    draw = np.random.default_rng(1)
    arguments = [
        draw.standard_normal(p.shape.dims).astype(np.float32) for p in parsed.entry.parameters
    ]
    found = driver.compile(parsed, passes=passes, cache=False)(*arguments)
    np.testing.assert_allclose(found, driver.evaluate(parsed, *arguments), rtol=1e-6)
    optimized = driver.optimize(parsed, passes=passes)
    assert "hlo.joined" in driver.emit_stage(optimized, "llvm")
