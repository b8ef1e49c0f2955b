"""Quotients and signs of c64: rounded nearly once; zeros and infinities as C99 has them."""

import numpy as np
import pytest

import hlo
from hlo.interpreter.evaluate import evaluate

PARTS = [0.0, -0.0, 1.0, -1.0, 3e38, 1e-45, np.inf, -np.inf, np.nan]


def text(opcode: str, count: int, arity: int) -> str:
    names = [f"p{i}" for i in range(arity)]
    lines = [f"{name} = c64[{count}] parameter({i})" for i, name in enumerate(names)]
    lines.append(f"ROOT r = c64[{count}] {opcode}({', '.join(names)})")
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n"


def drawn(count: int, seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    parts = rng.standard_normal((2, count)) * np.exp(rng.standard_normal((2, count)) * 8)
    return (parts[0] + 1j * parts[1]).astype(np.complex64)


def grid() -> np.ndarray:
    with np.errstate(all="ignore"):
        return np.array([complex(a, b) for a in PARTS for b in PARTS]).astype(np.complex64)


@pytest.mark.parametrize("opcode", ["divide", "sign"])
def test_parts_are_rounded_nearly_once(opcode: str) -> None:
    x, y = drawn(20011, 1), drawn(20011, 2)
    operands = (x, y) if opcode == "divide" else (x,)
    found = hlo.compile(hlo.parse(text(opcode, x.size, len(operands))), cache=False)(*operands)
    wide, other = x.astype(np.clongdouble), y.astype(np.clongdouble)
    with np.errstate(all="ignore"):
        exact = wide / other if opcode == "divide" else wide / np.abs(wide)
        for got, want in ((found.real, exact.real), (found.imag, exact.imag)):
            rounded = want.astype(np.float32)
            error = np.abs(got - want) / np.spacing(np.abs(rounded))
            usual = np.isfinite(rounded) & (np.abs(rounded) > 1e-37)
            assert error[usual].max() < 0.51


@pytest.mark.parametrize("opcode", ["divide", "sign"])
def test_special_parts(opcode: str) -> None:
    values = [v.ravel() for v in np.meshgrid(grid(), grid())]
    operands = values if opcode == "divide" else values[:1]
    module = hlo.parse(text(opcode, values[0].size, len(operands)))
    found = hlo.compile(module, cache=False)(*operands)
    with np.errstate(all="ignore"):
        expected = np.asarray(evaluate(hlo.parse(text(opcode, values[0].size, len(operands))),
                                       *operands))  # fmt: skip
    for got, want in ((found.real, expected.real), (found.imag, expected.imag)):
        assert np.array_equal(np.isnan(got), np.isnan(want))
        number = ~np.isnan(want)
        assert np.array_equal(np.signbit(got[number]), np.signbit(want[number]))
        special = number & (np.isinf(want) | (want == 0))
        assert np.array_equal(got[special], want[special])
