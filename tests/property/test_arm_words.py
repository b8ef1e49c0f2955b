"""Products on words of 8-bit integers and of bf16, as 64-bit Arm multiplies them, run by QEMU."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo import driver
from hlo.ir.module import Module
from hlo.machine import NAMED, Machine
from tests.support import emulated_arm

WITHOUT, DOT, MATRICES = (NAMED[n] for n in ("armv8-a", "neoverse-n1", "neoverse-v1"))
SIGNS = [("s8", "s8"), ("u8", "u8"), ("u8", "s8"), ("s8", "u8"), ("s4", "s8"), ("u8", "s4"),
         ("u4", "u4"), ("s2", "u8")]  # fmt: skip
SIZES = [(32, 64, 64), (19, 61, 35), (7, 301, 18)]
BF16 = ml_dtypes.bfloat16

is_run = pytest.mark.skipif(
    not emulated_arm.IS_THERE, reason="qemu-aarch64 and aarch64-linux-gnu-gcc are not there"
)


def text(types: tuple[str, str, str], dims: tuple[int, int, int], lhs: int, rhs: int) -> str:
    """A product of m x k and k x n. lhs, rhs: the dimension that is contracted."""
    (m, k, n), (left, right, out) = dims, types
    x, y = ([m, k] if lhs else [k, m]), ([n, k] if rhs else [k, n])
    return f"""HloModule m
    ENTRY e {{ x = {left}[{x[0]},{x[1]}] parameter(0)
      y = {right}[{y[0]},{y[1]}] parameter(1)
      ROOT r = {out}[{m},{n}] dot(x, y), lhs_contracting_dims={{{lhs}}},
        rhs_contracting_dims={{{rhs}}} }}"""


def extremes(module: Module) -> list[object]:
    """Numbers of all sizes; rows and columns of the least, of the greatest, and of zeros."""
    rng = np.random.default_rng(0)
    made: list[object] = []
    for parameter in module.entry.parameters:
        low, high = parameter.shape.dtype.int_range
        array = rng.integers(low, high + 1, parameter.shape.dims)
        array[..., 0], array[..., 1], array[..., 2] = low, high, 0
        array[0], array[1] = low, high
        made.append(array.astype(parameter.shape.dtype.numpy))
    return made


def result_on(machine: Machine, module: Module, values: list[object]) -> np.ndarray:
    found = emulated_arm.run(module, values, machine)
    assert found is not None
    return found[0]


@is_run
@pytest.mark.parametrize("machine", [DOT, MATRICES], ids=lambda m: m.name)
@pytest.mark.parametrize("signs", SIGNS, ids="-".join)
def test_integers_are_exact(signs: tuple[str, str], machine: Machine) -> None:
    for number, dims in enumerate(SIZES):
        module = hlo.parse(text((*signs, "s32"), dims, number % 2, number // 2))
        values = extremes(module)
        exact = hlo.evaluate(module, *values)
        np.testing.assert_array_equal(result_on(machine, module, values), exact)


@is_run
@pytest.mark.parametrize("signs", SIGNS[:4], ids="-".join)
def test_sums_wrap_where_they_leave_32_bits(signs: tuple[str, str]) -> None:
    module = hlo.parse(text((*signs, "s32"), (4, 140_000, 16), 1, 0))
    values: list[object] = []
    for parameter in module.entry.parameters:
        low, high = parameter.shape.dtype.int_range
        extreme = low or high  # -128, 255
        values.append(np.full(parameter.shape.dims, extreme, parameter.shape.dtype.numpy))
    product = int(np.prod([int(np.asarray(v).flat[0]) for v in values]))
    wrapped = (140_000 * product + 2**31) % 2**32 - 2**31
    for machine in (DOT, MATRICES):
        assert (result_on(machine, module, values) == wrapped).all()


@is_run
@pytest.mark.parametrize("orders", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_bf16_within_the_bound_of_its_sums(orders: tuple[int, int]) -> None:
    """All numbers are positive: sums that were rounded one way would show it."""
    rng = np.random.default_rng(1)
    for dims in (*SIZES, (4, 3000, 16)):
        module = hlo.parse(text(("bf16", "bf16", "f32"), dims, *orders))
        values: list[object] = [
            rng.uniform(0.5, 2, p.shape.dims).astype(BF16) for p in module.entry.parameters
        ]
        exact = hlo.evaluate(hlo.parse(text(("f64", "f64", "f64"), dims, *orders)),
                             *(np.asarray(v).astype(np.float64) for v in values))  # fmt: skip
        result = result_on(MATRICES, module, values).astype(np.float64)
        assert (np.abs(result - exact) <= 2.0**-20 * np.abs(exact)).all()


@is_run
@pytest.mark.parametrize("side", [0, 1])
def test_subnormal_factors_count(side: int) -> None:
    module = hlo.parse(text(("bf16", "bf16", "f32"), (33, 61, 20), 1, 0))
    values = [np.ones(p.shape.dims, BF16) for p in module.entry.parameters]
    values[1 - side][:] = 1e30
    values[side][:] = 0
    values[side][-1, -1] = -1e-39
    for special in (None, np.inf, np.nan):
        if special is not None:
            values[1 - side][2, 3] = special
        exact = hlo.evaluate(module, *values)
        np.testing.assert_allclose(result_on(MATRICES, module, [*values]), exact, rtol=1e-6)


@pytest.mark.parametrize(("machine", "types", "instruction"), [
    (DOT, ("s8", "s8", "s32"), "sdot"), (DOT, ("u8", "u8", "s32"), "udot"),
    (DOT, ("u8", "s8", "s32"), "sdot"), (DOT, ("s8", "u8", "s32"), "udot"),
    (DOT, ("u4", "s4", "s32"), "sdot"), (MATRICES, ("s4", "s8", "s32"), "sdot"),
    (MATRICES, ("u8", "s8", "s32"), "usdot"), (MATRICES, ("s8", "u8", "s32"), "usdot"),
    (MATRICES, ("bf16", "bf16", "f32"), "bfdot"),
])  # fmt: skip
def test_the_machines_instruction(
    machine: Machine, types: tuple[str, str, str], instruction: str
) -> None:
    code = driver.emit_stage(hlo.parse(text(types, (64, 64, 64), 1, 0)), "asm", machine=machine)
    assert f"\t{instruction}\t" in code


def test_without_the_feature_there_is_none() -> None:
    named = {"dotprod": "sdot", "i8mm": "usdot", "bf16": "bfdot"}
    types = {"dotprod": ("s8", "s8", "s32"), "i8mm": ("u8", "s8", "s32"),
             "bf16": ("bf16", "bf16", "f32")}  # fmt: skip
    for feature, instruction in named.items():
        machine = replace(MATRICES, features=MATRICES.features - {feature})
        module = hlo.parse(text(types[feature], (64, 64, 64), 1, 0))
        assert f"\t{instruction}\t" not in driver.emit_stage(module, "asm", machine=machine)
    module = hlo.parse(text(("s8", "s8", "s32"), (64, 64, 64), 1, 0))
    assert "dot\t" not in driver.emit_stage(module, "asm", machine=WITHOUT)
