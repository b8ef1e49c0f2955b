"""Columns that assembly without masks copies to panels row by row, and that it changes no bit."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.packing import assembly_copies
from hlo.backend.kernels.contraction.packing.assembly_copies import bytes_ahead, in_chunks, is_along
from hlo.backend.kernels.contraction.packing.form import Packing
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.planning import planned
from hlo.ir.instruction import Instruction
from hlo.machine import NAMED
from tests.support.contraction_harness import computed, levels, normal_factors


def product(dtype: str, dims: tuple[int, int, int], batch: str = "") -> Instruction:
    m, n, k = dims
    axes = "lhs_batch_dims={0}, rhs_batch_dims={0}, " * bool(batch)
    first = 1 if batch else 0
    return hlo.parse(f"""HloModule m
    ENTRY e {{ x = {dtype}[{batch}{m},{k}] parameter(0)
      y = {dtype}[{batch}{k},{n}] parameter(1)
      ROOT r = {dtype}[{batch}{m},{n}] dot(x, y), {axes}lhs_contracting_dims={{{first + 1}}},
        rhs_contracting_dims={{{first}}} }}""").entry.root


def columns(dims: tuple[int, int, int], machine: str, dtype: str = "f32") -> Packing:
    """How the product's columns are packed."""
    root = product(dtype, dims)
    ring = ring_of(root.shape.dtype, Target(NAMED[machine]))
    return planned(normal(dot_contraction(root), ring.lanes), ring).rhs_packing


@pytest.mark.parametrize(("machine", "dims", "way", "ahead"), [
    ("x86-64-v3", (200, 3072, 768), "rows", 8 * 3072 * 4),
    ("x86-64-v3", (200, 256, 512), "rows", 0),  # near: nobody waits for it
    ("x86-64-v3", (200, 3070, 768), "", 0),  # its last panel begins in the one before
    ("x86-64-v3", (20, 3 << 25, 64), "rows", 0),  # rows ahead are beyond a displacement
    ("x86-64-v4", (200, 3072, 768), "chunks", 0),
    ("x86-64", (200, 3072, 768), "", 0),  # no assembly
])  # fmt: skip
def test_how_rows_of_memory_go_to_panels(
    machine: str, dims: tuple[int, int, int], way: str, ahead: int
) -> None:
    packing = columns(dims, machine)
    assert (is_along(packing), in_chunks(packing)) == (bool(way), way == "chunks")
    assert bytes_ahead(packing) == ahead


def test_copies_are_assembly_with_hints() -> None:
    target = Target(NAMED["x86-64-v3"])
    (call,) = contraction_kernels(product("f32", (200, 3072, 768)), target).calls
    assert f"prefetcht1 {8 * 3072 * 4}($0)" in call.kernel.text
    assert "load <8 x float>" not in call.kernel.text
    assert not call.kernel.functions


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize(("dtype", "dims", "batch"), [
    ("f32", (37, 784, 1030), ""), ("f32", (197, 96, 3072), ""), ("f64", (40, 328, 2500), ""),
    ("f32", (21, 80, 130), "3,"),
])  # fmt: skip
def test_bits_are_those_of_the_loop_that_it_stands_for(
    monkeypatch: pytest.MonkeyPatch,
    level: str,
    dtype: str,
    dims: tuple[int, int, int],
    batch: str,
) -> None:
    root = product(dtype, dims, batch)
    factors, found = normal_factors(root), []
    for serves in (is_along, lambda _: False):
        monkeypatch.setattr(assembly_copies, "is_along", serves)
        found.append(computed(root, factors, level))
    assert found[0].tobytes() == found[1].tobytes()
    np.testing.assert_allclose(found[0], factors[0] @ factors[1], rtol=1e-3, atol=1e-3)
