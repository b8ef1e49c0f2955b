"""Which products of few columns are made with their factors exchanged, and what they give."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.exchange import is_exchanged
from hlo.ir.instruction import Instruction
from hlo.machine import NAMED

V3 = Target(NAMED["x86-64-v3"])


def program(dtype: str, dims: tuple[int, int, int], lhs: str = "km", tail: str = "") -> str:
    m, n, k = dims
    left, axis = (f"{k},{m}", 0) if lhs == "km" else (f"{m},{k}", 1)
    return f"""HloModule m
    ENTRY e {{ x = {dtype}[{left}] parameter(0)
      y = {dtype}[{k},{n}] parameter(1)
      {"d" if tail else "ROOT d"} = {dtype}[{m},{n}] dot(x, y), lhs_contracting_dims={{{axis}}},
        rhs_contracting_dims={{0}}
      {tail} }}"""


def dot_of(text: str) -> Instruction:
    return next(i for i in hlo.parse(text).entry.instructions if i.opcode == "dot")


@pytest.mark.parametrize(("dtype", "dims", "lhs", "wanted"), [
    ("f32", (2048, 64, 2048), "km", True),
    ("f64", (1024, 64, 1024), "km", True),
    ("f32", (3072, 100, 768), "km", True),
    ("f32", (2048, 64, 2048), "mk", False),  # rows run along depth
    ("f32", (2050, 64, 2048), "km", False),  # lines lie in all sets
    ("f32", (512, 64, 512), "km", False),  # small
    ("f32", (2048, 256, 2048), "km", False),  # columns enough to pack rows for
    ("f32", (16384, 64, 128), "km", False),  # few depths: their lines stay
    ("s32", (2048, 64, 2048), "km", False),
    ("bf16", (2048, 64, 2048), "km", False),  # numbers of another type than the sums
])  # fmt: skip
def test_rows_that_lie_across_memory_a_power_of_two_apart(
    dtype: str, dims: tuple[int, int, int], lhs: str, *, wanted: bool
) -> None:
    root = dot_of(program(dtype, dims, lhs))
    ring = ring_of(root.shape.dtype, V3)
    assert is_exchanged(normal(dot_contraction(root), ring.lanes), ring) is wanted


@pytest.mark.parametrize(("dims", "tail"), [
    ((1024, 5, 1024), ""),
    ((1024, 37, 1100), ""),
    ((1024, 3, 1030), """b = f32[3] parameter(2)
      bb = f32[1024,3] broadcast(b), dimensions={1}
      s = f32[1024,3] add(d, bb)
      ROOT t = f32[1024,3] tanh(s)"""),
])  # fmt: skip
def test_the_product_is_that_of_the_factors(dims: tuple[int, int, int], tail: str) -> None:
    """Written across memory, alone and through what a fusion does to it, by one and by more
    threads."""
    m, n, k = dims
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(shape, np.float32) for shape in ((k, m), (k, n)))
    given = [x, y] + ([np.linspace(-1, 1, n, dtype=np.float32)] if tail else [])
    expected = x.T.astype(np.float64) @ y.astype(np.float64)
    expected = np.tanh(expected + given[2]) if tail else expected
    found = []
    for threads in (1, 2, 3):
        executable = hlo.compile(hlo.parse(program("f32", dims, tail=tail)), threads=threads)
        found.append(np.asarray(executable(*given)))
        np.testing.assert_allclose(found[-1], expected, rtol=1e-4, atol=2e-4)
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
