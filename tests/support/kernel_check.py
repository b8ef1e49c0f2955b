"""Compares a lone instruction's kernel with the reference interpreter on made-up operands."""

from __future__ import annotations

import numpy as np

from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.planning.implementations import KernelMaker
from hlo.interpreter.evaluate import evaluate
from hlo.ir.computation import Computation
from hlo.ir.graph import clone_instruction
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from tests.support.kernel_runner import TARGET, leaves, run


def alone(instruction: Instruction) -> Module:
    """A module whose entry is the instruction over parameters."""
    module = Module("alone")
    computation = Computation("main")
    parameters = [
        computation.new("parameter", o.shape, (), {"parameter_number": k}, name=f"p{k}")
        for k, o in enumerate(instruction.operands)
    ]
    root = clone_instruction(instruction, tuple(parameters))
    computation.add(root)
    computation.root = root
    module.add(computation, entry=True)
    return module


def made_up(shape: Shape, rng: np.random.Generator) -> object:
    """Values of the shape: normal floats, small integers, fair coins."""
    if shape.is_tuple:
        return tuple(made_up(e, rng) for e in shape.elements)
    dtype, dims = shape.dtype, shape.dims
    if dtype.is_pred:
        return rng.integers(0, 2, dims).astype(bool)
    if dtype.is_integral:
        low, high = dtype.int_range
        return rng.integers(max(low, -4), min(high, 40) + 1, dims).astype(dtype.numpy)
    if dtype.is_complex:
        return (rng.standard_normal(dims) + 1j * rng.standard_normal(dims)).astype(dtype.numpy)
    return rng.standard_normal(dims).astype(np.float64).astype(dtype.numpy)


def difference(got: np.ndarray, want: np.ndarray, rtol: float) -> str:
    """Empty where they agree: bits for integers, relative to the largest magnitude for floats."""
    want = np.asarray(want)
    if got.shape != want.shape or got.dtype != want.dtype:
        return f"{got.dtype}{got.shape} instead of {want.dtype}{want.shape}"
    if got.dtype.kind in "biu" or got.dtype.name.startswith(("int", "uint")):
        bad = got != want
    else:
        wide = np.complex128 if got.dtype.kind == "c" else np.float64
        with np.errstate(all="ignore"):
            a, b = got.astype(wide), want.astype(wide)
            finite = np.isfinite(b)
            scale = np.abs(b[finite]).max() if finite.any() else 1.0
            close = np.abs(a - b) <= rtol * np.maximum(np.abs(b), scale * 0.05)
            bad = ~(close | (a == b) | (np.isnan(a) & np.isnan(b)))
    if not bad.any():
        return ""
    where = tuple(int(i[0]) for i in np.nonzero(np.atleast_1d(bad)))
    first = np.atleast_1d(got)[where], np.atleast_1d(want)[where]
    return f"{int(bad.sum())} of {bad.size} differ, at {where}: {first[0]}, expected {first[1]}"


def check(
    instruction: Instruction, seed: int = 0, *, splits: int = 3, kernel: KernelMaker = fused_kernel
) -> str:
    """What differs between the kernel and the reference, empty if nothing does."""
    module = alone(instruction)
    root = module.entry.root
    rng = np.random.default_rng(seed)
    values = [made_up(p.shape, rng) for p in module.entry.parameters]
    want = leaves(evaluate(module, *values))
    got = run(root, values, splits=splits, kernel=kernel)
    rtol = _tolerance(root)
    for k, (a, b) in enumerate(zip(got, want, strict=True)):
        found = difference(a, b, rtol)
        if found:
            return f"result {k}: {found}"
    return _check_in_place(root, values, got) if kernel is fused_kernel else ""


def _check_in_place(root: Instruction, values: list[object], want: list[np.ndarray]) -> str:
    """Bits are the same when a result lies over an operand that the kernel offers for it."""
    for pair in sorted(fused_kernel(root, TARGET).in_place):
        got = run(root, values, over=pair)
        if any(a.tobytes() != b.tobytes() for a, b in zip(got, want, strict=True)):
            return f"in place {pair}"
    return ""


def _tolerance(root: Instruction) -> float:
    narrow = any(
        s.is_array and s.dtype.is_float and s.dtype.bits <= 16 for s in root.shape.leaves()
    )
    return 4e-2 if narrow else 2e-5
