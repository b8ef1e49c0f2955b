"""Products of floats of 8 bits and less on words of bf16, which hold all their numbers."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlo
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.words.words import in_words
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.module import Module
from hlo.machine import NAMED
from tests.support import emulated_arm
from tests.support.contraction_harness import Compiled, target_of
from tests.support.covering import covering

SMALL = [t for t in dt.ARRAY_TYPES if t.is_float and t.bits <= 8 and not t.is_scale]
SIZES = [(64, 64, 64), (33, 61, 47), (7, 301, 90)]
has_words = pytest.mark.skipif(
    target_of().isa.dot_product(dt.BF16, dt.BF16) is None, reason="no dot products of bf16 here"
)


def text(
    types: tuple[str, str, str], dims: tuple[int, int, int], lhs: int = 1, rhs: int = 0
) -> str:
    """A product of m x k and k x n. lhs, rhs: the dimension that is contracted."""
    (m, k, n), (left, right, out) = dims, types
    x, y = ([m, k] if lhs else [k, m]), ([n, k] if rhs else [k, n])
    return f"""HloModule m
    ENTRY e {{ x = {left}[{x[0]},{x[1]}] parameter(0)
      y = {right}[{y[0]},{y[1]}] parameter(1)
      ROOT r = {out}[{m},{n}] dot(x, y), lhs_contracting_dims={{{lhs}}},
        rhs_contracting_dims={{{rhs}}} }}"""


def codes(dtype: DType) -> np.ndarray:
    """All finite numbers of a type."""
    assert dtype.numpy is not None
    every = np.arange(1 << dtype.bits, dtype=np.uint8).view(dtype.numpy)
    return every[np.isfinite(every.astype(np.float64))]


def drawn(module: Module) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.choice(codes(p.shape.dtype), p.shape.dims) for p in module.entry.parameters]


def check(result: np.ndarray, values: list[np.ndarray], lhs: int = 1, rhs: int = 0) -> None:
    """Within the bound of sums of products, which are exact. lhs, rhs: as for `text`."""
    left, right = (v.astype(np.float64) for v in values)
    left, right = (left if lhs else left.T), (right.T if rhs else right)
    error = np.abs(result.astype(np.float64) - left @ right)
    assert (error <= 2.0**-20 * (np.abs(left) @ np.abs(right))).all()


@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_bf16_holds_every_number(dtype: DType) -> None:
    numbers = codes(dtype).astype(np.float32)
    assert (numbers.astype(ml_dtypes.bfloat16).astype(np.float32) == numbers).all()
    assert np.abs(numbers[numbers != 0]).min() >= 2.0**-126


@has_words
@pytest.mark.parametrize(("other", "dtype"), covering(["", "bf16", "f8e5m2"], SMALL, strength=1))
def test_every_order_and_number_of_threads(dtype: DType, other: str) -> None:
    types = (dtype.name, other or dtype.name, "f32")
    for number, dims in enumerate(SIZES):
        orders = (number % 2, number // 2)
        module = hlo.parse(text(types, dims, *orders))
        root = module.entry.root
        values = [v.astype(p.shape.dtype.numpy) for p, v in zip(
            module.entry.parameters, _numbers(module), strict=True)]  # fmt: skip
        compiled = Compiled(contraction_kernels(root, target_of()))
        made = []
        for threads in (1, 2, 3, 7):
            result = np.zeros(root.shape.dims, np.float32)
            compiled(values, result, threads)
            made.append(result)
        check(made[0], values, *orders)
        assert all(r.tobytes() == made[0].tobytes() for r in made)


def _numbers(module: Module) -> list[np.ndarray]:
    """All numbers of the small types, and of bf16 normal ones of a few sizes."""
    rng = np.random.default_rng(1)
    return [
        rng.standard_normal(p.shape.dims) if p.shape.dtype is dt.BF16
        else rng.choice(codes(p.shape.dtype), p.shape.dims)
        for p in module.entry.parameters
    ]  # fmt: skip


@has_words
@pytest.mark.parametrize("dtype", ["f8e5m2", "f8e4m3fn", "f8e4m3b11fnuz"])
def test_what_is_not_finite_stays_so(dtype: str) -> None:
    module = hlo.parse(text((dtype, dtype, "f32"), (33, 61, 47)))
    values = drawn(module)
    values[0][2, 3], values[1][5, 7] = np.nan, np.inf  # of a type without infinities NaN
    result = hlo.compile(module, cache=False).run_guarded(*values)
    np.testing.assert_allclose(result, hlo.evaluate(module, *values), rtol=1e-4, atol=0.1)


@pytest.mark.parametrize("dtype", SMALL, ids=str)
@pytest.mark.parametrize(("name", "instruction"), [
    ("cooperlake", "vdpbf16ps"), ("znver4", "vdpbf16ps"), ("neoverse-v1", "bfmmla"),
])  # fmt: skip
def test_the_machines_instruction(name: str, instruction: str, dtype: DType) -> None:
    module = hlo.parse(text((dtype.name, dtype.name, "f32"), (64, 64, 64)))
    assert instruction in hlo.driver.emit_stage(module, "asm", machine=NAMED[name])


@pytest.mark.parametrize("types", [("f8e8m0fnu", "f8e4m3fn"), ("f16", "f16"), ("f8e5m2", "f16")])
def test_other_floats_stay_as_they_are(types: tuple[str, str]) -> None:
    root = hlo.parse(text((*types, "f32"), (64, 64, 64))).entry.root
    ring = ring_of(root.shape.dtype, target_of())
    assert in_words(normal(dot_contraction(root), ring.lanes), ring) is None


@has_words
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_constants_are_words_when_the_program_is_compiled(dtype: DType) -> None:
    numbers = np.resize(codes(dtype), (64, 64)).astype(np.float64)
    rows = ", ".join("{" + ", ".join(repr(float(x)) for x in row) + "}" for row in numbers)
    module = hlo.parse(f"""HloModule m
    ENTRY e {{ x = {dtype.name}[64,64] parameter(0)
      k = {dtype.name}[64,64] constant({{ {rows} }})
      ROOT r = f32[64,64] dot(x, k), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}""")
    values = drawn(module)
    made = hlo.compile(module, cache=False).run_guarded(*values)
    check(np.asarray(made), [*values, numbers])


@pytest.mark.skipif(not emulated_arm.IS_THERE, reason="no emulator and compiler of 64-bit Arm")
@pytest.mark.parametrize("dtype", SMALL, ids=str)
def test_on_64_bit_arm(dtype: DType) -> None:
    module = hlo.parse(text((dtype.name, dtype.name, "f32"), (19, 61, 35)))
    values = drawn(module)
    found = emulated_arm.run(module, values, NAMED["neoverse-v1"])
    assert found is not None
    check(found[0], values)
