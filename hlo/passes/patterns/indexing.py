"""Dynamic slices and updates whose place or extent is known."""

from __future__ import annotations

from hlo.attributes.slices import SliceDim
from hlo.ir.instruction import Instruction
from hlo.ops.making import make
from hlo.passes.patterns.matching import ints, is_plain, same_array, splat_literal
from hlo.passes.rewriting import rewrite


@rewrite("dynamic-slice")
def dynamic_slice_everything(root: Instruction) -> Instruction | None:
    """dynamic-slice(x, i) => x  where the slice is as large as x"""
    x = root.operands[0]
    return x if same_array(x.shape, root.shape) else None


@rewrite("dynamic-slice")
def dynamic_slice_at_constants(root: Instruction) -> Instruction | None:
    """dynamic-slice(x, c) => slice(x, clamp(0, c, n - size))  for constant indices"""
    x, *indices = root.operands
    starts = [splat_literal(i) if i.shape.is_scalar else None for i in indices]
    known = [int(s) for s in starts if s is not None]
    if len(known) != x.shape.rank or not is_plain(root.shape):
        return None
    sizes = ints(root, "dynamic_slice_sizes")
    limits = zip(known, sizes, x.shape.dims, strict=True)
    begins = [max(0, min(s, n - size)) for s, size, n in limits]
    taken = tuple(SliceDim(b, b + size) for b, size in zip(begins, sizes, strict=True))
    return make(root, "slice", x, shape=root.shape, slice=taken)


@rewrite("dynamic-update-slice")
def dynamic_update_everything(root: Instruction) -> Instruction | None:
    """dynamic-update-slice(x, u, i) => u  where u is as large as x"""
    u = root.operands[1]
    return u if same_array(u.shape, root.shape) else None


@rewrite("dynamic-update-slice")
def dynamic_update_nothing(root: Instruction) -> Instruction | None:
    """dynamic-update-slice(x, u, i) => x  where u has no elements"""
    x, u = root.operands[:2]
    return x if not u.shape.size and same_array(x.shape, root.shape) else None


@rewrite("sort")
def sort_of_one(root: Instruction) -> Instruction | None:
    """sort(x, d) => x  where dimension d has at most one element"""
    (x, *others) = root.operands
    (dimension,) = ints(root, "dimensions")
    if others or x.shape.dims[dimension] > 1 or not same_array(x.shape, root.shape):
        return None
    return x
