"""Integer division by numbers that the code knows: every type, both signs, the traps too."""

import numpy as np
import pytest

from hlo import driver
from hlo.driver import emit_stage
from hlo.interpreter.evaluate import evaluate

TYPES = {
    f"{sign}{bits}": np.dtype(f"{'int' if sign == 's' else 'uint'}{bits}")
    for sign in "su"
    for bits in (8, 16, 32, 64)
}


def text(dtype: str, divisors: list[int], opcode: str) -> str:
    lines = [f"x = {dtype}[300] parameter(0)"]
    for k, divisor in enumerate(divisors):
        lines += [
            f"k{k} = {dtype}[] constant({divisor})",
            f"n{k} = {dtype}[300] broadcast(k{k}), dimensions={{}}",
            f"r{k} = {dtype}[300] {opcode}(x, n{k})",
        ]
    results = ", ".join(f"r{k}" for k in range(len(divisors)))
    shapes = ", ".join(f"{dtype}[300]" for _ in divisors)
    root = f"ROOT t = ({shapes}) tuple({results})"
    body = "\n".join([*lines, root])
    return f"HloModule m\nENTRY e {{ {body} }}"


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("opcode", ["divide", "remainder"])
def test_known_divisors(dtype: str, opcode: str) -> None:
    limits = np.iinfo(TYPES[dtype])
    numbers = [0, 1, 3, 7, 64, 100, -1, -7, int(limits.max), int(limits.min)]
    divisors = [n for n in numbers if limits.min <= n <= limits.max]
    x = np.random.default_rng(0).integers(limits.min, limits.max, 300, TYPES[dtype], endpoint=True)
    x[:4] = limits.min, limits.max, 0, limits.max - 1
    x[4:90] = x[4:90] // 7 * 7
    module = driver.parse(text(dtype, divisors, opcode))
    found = driver.compile(module, passes="fusion", cache=False)(x)
    for a, b in zip(found, evaluate(module, x), strict=True):
        np.testing.assert_array_equal(a, b)


def test_no_division_is_left() -> None:
    code = emit_stage(driver.optimize(driver.parse(text("s32", [7], "divide"))), "asm")
    assert "div" not in code
