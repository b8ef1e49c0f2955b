"""maximum and minimum of all pairs of numbers that differ in kind, and beside constants."""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import pytest

import hlo
from hlo.machine import Machine, named
from hlo.tools.cases.arrays import leaves
from tests.support.machines_here import that_run_here

MACHINES = (None, *that_run_here("x86-64", "x86-64-v3", "x86-64-v4"))
TYPES = {"f64": np.float64, "f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}
NUMBERS = (0.0, -0.0, 1.5, -2.25, np.inf, -np.inf, np.nan, -np.nan, 1e-7, 1e-40)
BOUNDS = ("0.0", "-0.0", "1.5", "-2.25", "inf", "-inf", "nan")


def machine(name: str | None) -> Machine | None:
    return None if name is None else named(name)


def check(text: str, values: Sequence[np.ndarray], name: str | None) -> None:
    module = hlo.parse(text)
    wanted = leaves(hlo.evaluate(module, *values))
    found = leaves(hlo.compile(module, cache=False, machine=machine(name))(*values))
    for a, b in zip(found, wanted, strict=True):
        x, y = np.asarray(a).astype(np.float64), np.asarray(b).astype(np.float64)
        np.testing.assert_array_equal(x, y)  # NaN where NaN is
        number = ~np.isnan(y)
        np.testing.assert_array_equal(np.signbit(x)[number], np.signbit(y)[number])


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", TYPES)
def test_all_pairs(kind: str, name: str | None) -> None:
    """In vectors, in what is left of them, and as scalars."""
    pairs = np.array([(a, b) for a in NUMBERS for b in NUMBERS]).astype(TYPES[kind])
    body = "  g = {t} maximum(x, y)\n  l = {t} minimum(x, y)\n  ROOT r = ({t}, {t}) tuple(g, l)\n}}"
    many, one = f"{kind}[{len(pairs)}]", f"{kind}[]"
    for shape, cases in ((many, [tuple(pairs.T.copy())]), (one, [tuple(p) for p in pairs[::7]])):
        head = f"ENTRY e {{\n  x = {shape} parameter(0)\n  y = {shape} parameter(1)\n"
        text = f"HloModule m\n{head}{body.format(t=shape)}\n"
        for x, y in cases:
            check(text, [np.asarray(x), np.asarray(y)], name)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("kind", TYPES)
def test_beside_constants(kind: str, name: str | None) -> None:
    """The number on either side."""
    x = np.array(NUMBERS * 2).astype(TYPES[kind])
    shape = f"{kind}[{len(x)}]"
    lines = [f"  x = {shape} parameter(0)"]
    for k, bound in enumerate(BOUNDS):
        lines += [f"  c{k} = {kind}[] constant({bound})",
                  f"  b{k} = {shape} broadcast(c{k}), dimensions={{}}",
                  f"  g{k} = {shape} maximum(x, b{k})",
                  f"  l{k} = {shape} minimum(b{k}, x)"]  # fmt: skip
    names = [f"{a}{k}" for a in "gl" for k in range(len(BOUNDS))]
    types = ", ".join(shape for _ in names)
    lines.append(f"  ROOT r = ({types}) tuple({', '.join(names)})")
    check("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n", [x], name)


@pytest.mark.parametrize("name", MACHINES)
@pytest.mark.parametrize("opcode", ["maximum", "minimum"])
@pytest.mark.parametrize("along", [0, 1])
def test_reduced(along: int, opcode: str, name: str | None) -> None:
    rng = np.random.default_rng(3)
    x = rng.choice([0.0, -0.0, -1.0, 1.0], (37, 41), p=[0.45, 0.45, 0.05, 0.05])
    x[:, :8] = np.where(rng.random((37, 8)) < 0.5, 0.0, -0.0)
    x[5, 7] = x[20, 40] = np.nan
    text = f"""HloModule m
f {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] {opcode}(a, b)
}}
ENTRY e {{
  x = f32[37,41] parameter(0)
  z = f32[] constant({"-inf" if opcode == "maximum" else "inf"})
  ROOT r = f32[{41 if along == 0 else 37}] reduce(x, z), dimensions={{{along}}}, to_apply=f
}}
"""
    check(text, [x.astype(np.float32)], name)
