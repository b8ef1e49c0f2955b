"""Doubles and wide integers as floats of 16 bits and fewer: rounded once, beside the reference."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.machine import named
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

MACHINES = (None, *that_run_here("x86-64", "x86-64-v3", "x86-64-v4"))
TARGETS = (dt.F16, dt.BF16, dt.F8E5M2, dt.F8E4M3FN, dt.F8E3M4, dt.F8E8M0FNU)
INTEGERS = (dt.S32, dt.U32, dt.S64, dt.U64)


def numbers_of(target: DType) -> np.ndarray:
    """All finite numbers of a type and what lies halfway between neighbours, as doubles."""
    assert target.numpy is not None, "a type with elements"
    codes = np.arange(1 << target.bits, dtype=f"u{target.bits // 8}").view(target.numpy)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        values = codes.astype(np.float64)
    found = np.unique(values[np.isfinite(values)])
    return np.concatenate([found, (found[1:] + found[:-1]) / 2])


def check(x: np.ndarray, source: DType, target: DType, machine: str | None) -> None:
    module = hlo.parse(
        f"HloModule m\nENTRY e {{\n  x = {source.name}[{x.size}] parameter(0)\n"
        f"  ROOT y = {target.name}[{x.size}] convert(x)\n}}\n"
    )
    made = hlo.compile(module, cache=False, machine=None if machine is None else named(machine))
    found, wanted = (np.asarray(f(x)) for f in (made, lambda v: hlo.evaluate(module, v)))
    same = found.view(f"u{target.bits // 8}") == wanted.view(f"u{target.bits // 8}")
    both_nan = np.isnan(found.astype(np.float32)) & np.isnan(wanted.astype(np.float32))
    wrong = ~(same | both_nan)
    assert not wrong.any(), (x[wrong][:5], found[wrong][:5], wanted[wrong][:5])


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("target", TARGETS, ids=lambda t: t.name)
def test_doubles_are_rounded_once(target: DType, machine: str | None) -> None:
    near = numbers_of(target)
    rng = np.random.default_rng(3)
    codes = rng.integers(0, 1 << 63, 4000, dtype=np.int64).view(np.float64)
    special = np.array([np.inf, -np.inf, np.nan, -0.0, 1e308, -1e308, 5e-324, 2.0**-140])
    x = np.concatenate([near, np.nextafter(near, np.inf), np.nextafter(near, -np.inf), special])
    with np.errstate(all="ignore"):
        check(np.concatenate([x, codes, -codes]), dt.F64, target, machine)


@pytest.mark.parametrize(("machine", "source", "target"), covering(MACHINES, INTEGERS, TARGETS))
def test_integers_are_rounded_once(target: DType, source: DType, machine: str | None) -> None:
    least, greatest = source.int_range
    whole = [int(v) for v in numbers_of(target) if abs(v) < 2.0**64]
    whole += [least, greatest, 65504, 65519, 65520, 65521, (1 << 24) + 1, (1 << 31) - 1]
    beside = {v + d for v in whole for d in (-12345, -1, 0, 1)}
    x = np.array(sorted(v for v in beside if least <= v <= greatest), source.numpy)
    check(x, source, target, machine)
