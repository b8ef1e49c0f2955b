"""Products and sums rounded once, and roundings to integers, on machines without them."""

from __future__ import annotations

import ctypes
import math
from fractions import Fraction

import numpy as np
import pytest

from hlo.backend.entry import float_libcalls_ir
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.procedure import Unit
from hlo.backend.linking.compile import objects
from hlo.backend.linking.jit import Code

SPECIAL = [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.5, math.inf, -math.inf, math.nan]


def away(x: np.floating) -> np.floating:
    """Rounded, halves away from 0."""
    with np.errstate(invalid="ignore"):
        whole = np.trunc(np.abs(x))
        return np.copysign(whole + (np.abs(x) - whole >= 0.5), x)


ROUNDINGS = {
    "floor": np.floor, "ceil": np.ceil, "trunc": np.trunc, "roundeven": np.rint, "round": away
}  # fmt: skip


@pytest.fixture(scope="module")
def code() -> Code:
    """All of them, under names that no library has."""
    unit = Unit()
    float_libcalls_ir.define(unit, float_libcalls_ir.NAMES)
    text = unit.text()
    for name in float_libcalls_ir.NAMES:
        text = text.replace(f"@{name}(", f"@own_{name}(")
    symbols = tuple(f"own_{name}" for name in float_libcalls_ir.NAMES)
    return Code(objects([IrModule(text, symbols)], cache=False))


def function(code: Code, name: str, count: int):  # type: ignore[no-untyped-def]
    type = ctypes.c_float if name.endswith("f") else ctypes.c_double
    return ctypes.CFUNCTYPE(type, *[type] * count)(code.address(f"own_{name}"))


def bits(x: float, kind: type) -> bytes:
    return kind(np.nan if math.isnan(x) else x).tobytes()  # type: ignore[no-any-return]


@pytest.mark.parametrize("name", ROUNDINGS)
@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_roundings(name: str, kind: type, code: Code) -> None:
    run = function(code, name + ("f" if kind is np.float32 else ""), 1)
    rng = np.random.default_rng(1)
    drawn = rng.normal(size=3000) * 10.0 ** rng.uniform(-3, 18, 3000)
    halves = rng.integers(-1000, 1000, 500) / 2
    for x in np.array([*SPECIAL, *drawn, *halves, 2.0**23 - 0.5, 2.0**52 - 0.5], kind):
        assert bits(run(x), kind) == bits(ROUNDINGS[name](x), kind), x


def exact(x: float, y: float, z: float, kind: type) -> float:
    """x y + z, rounded once: where two numbers are near, the nearer one, then the even one."""
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if total == 0:
        return float(kind(x) * kind(y) + kind(z)) if x == 0 or y == 0 else 0.0
    near = kind(float(total)) if kind is np.float64 else None
    if near is None:  # through odd f64: rounding twice would err
        wide = float(total)
        rest = total - Fraction(wide)
        if rest and not np.float64(wide).view(np.int64) & 1:
            wide = float(np.nextafter(wide, math.inf if rest > 0 else -math.inf))
        with np.errstate(over="ignore"):
            near = kind(wide)
    return float(near)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_products_and_sums(kind: type, code: Code) -> None:
    run = function(code, "fmaf" if kind is np.float32 else "fma", 3)
    rng = np.random.default_rng(2)
    info = np.finfo(kind)
    reach = {np.float32: (-40, 38), np.float64: (-318, 300)}[kind]
    with np.errstate(all="ignore"):
        for n in range(6000):
            sizes = 10.0 ** rng.uniform(*reach, 3) if n % 3 == 0 else np.array([1.0, 1.0, 1.0])
            x, y, z = (rng.normal(size=3) * sizes).astype(kind)
            if n % 3 == 1:  # nearly all is taken away
                z = kind(-float(x) * float(y))
            if n % 3 == 2:  # near the least numbers
                x, y = kind(x * info.tiny * 4), kind(y)
                z = kind(info.smallest_subnormal * rng.integers(-5, 5))
            if not np.isfinite([x, y, z]).all():
                continue
            try:
                wanted = exact(float(x), float(y), float(z), kind)
            except OverflowError:
                continue
            assert bits(run(x, y, z), kind) == bits(wanted, kind), (x, y, z)
        for x in SPECIAL:
            for y in SPECIAL:
                for z in SPECIAL:
                    wanted = float(kind(x) * kind(y) + kind(z))  # exact, of these
                    assert bits(run(x, y, z), kind) == bits(wanted, kind), (x, y, z)
    big = float(info.max)
    assert run(big, 2.0, 0.0) == math.inf
    assert run(big, 2.0, -big) == big
