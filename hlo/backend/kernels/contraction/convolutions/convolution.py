"""Convolution as a contraction: rows are positions, depth is the window and a group's features.

    out[n, y, c] = sum over w, i of padded[n, y * stride + w * dilation, i] * rhs[w, i, c]

Where a window never leaves the base this is affine already; otherwise the base is first copied
between zeros (padding, holes of base dilation), so that it is. Along a dimension whose window is
much larger than the base the two change roles: depth is the base, and the kernel lies between
zeros. The window's size there says neither how much memory the copy takes nor how long the sums
are.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from hlo.attributes.window import WindowDim
from hlo.backend.kernels.contraction.problem.axes import Axis, Contraction, Operand
from hlo.errors import HloError
from hlo.indexing.affine import row_major_strides
from hlo.indexing.reductions import is_inside
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.convolution import ConvolutionAttributes

Ints = tuple[int, ...]
# How copies between zeros hold elements: as they are, as numbers that are multiplied, or for
# instructions that multiply pairs.
AS_THEY_ARE: Mapping[DType, DType] = {}
NUMBERS: Mapping[DType, DType] = {dt.BF16: dt.F32, dt.F16: dt.F32}
PAIRS: Mapping[DType, DType] = dict.fromkeys((dt.S8, dt.U8, dt.S4, dt.U4), dt.S16)
FAR_LARGER = 2  # A window that is so many times as large as the base changes roles with it.


class PaddedDim(Struct, frozen=True):
    """size positions made of `source` elements, `base` apart, the first at position `low`."""

    size: int
    source: int
    low: int = 0
    base: int = 1

    @property
    def is_plain(self) -> bool:
        return (self.size, self.low, self.base) == (self.source, 0, 1)

    @property
    def has_zeros(self) -> bool:
        """Whether it is more than a part of the source."""
        return self.base > 1 or self.low > 0 or self.size - self.low > self.source


class Base(Struct, frozen=True):
    """An array that windows read. padded: how to copy it between zeros first, () if not at all.

    dims and strides are those after that copy; offset: of padded position 0; spare: elements of
    memory behind the copy.
    """

    padded: tuple[PaddedDim, ...]
    dims: Ints
    strides: Ints
    offset: int
    dtype: DType
    spare: int = 0

    @property
    def size_bytes(self) -> int:
        """Of the copy."""
        return (prod(self.dims) + self.spare) * self.dtype.item_bytes


class _Spatial(Struct, frozen=True):
    """A spatial dimension: its window, its dimensions in base, kernel and result, and their
    sizes."""

    window: WindowDim
    lhs: int
    rhs: int
    out: int
    base: int
    outputs: int

    @property
    def swapped(self) -> bool:
        """Whether depth runs over the base."""
        return is_swapped(self.window, self.base)

    @property
    def swapped_size(self) -> int:
        """Positions of the kernel that some element of the base meets at some output."""
        w = self.window
        return (self.base - 1) * w.base_dilation + (self.outputs - 1) * w.stride + 1

    def swapped_kernel(self) -> PaddedDim:
        """The kernel between zeros: tap t is met where t * dilation + stride * y = p * base + low;
        a reversed one lies the other way round."""
        w = self.window
        first = w.pad_low - (self.outputs - 1) * w.stride
        if w.reversed:
            first = (w.size - 1) * w.window_dilation - (first + self.swapped_size - 1)
        return PaddedDim(self.swapped_size, w.size, -first, w.window_dilation)

    def axes(self, ls: Ints, rs: Ints, os: Ints) -> tuple[Axis, Axis]:
        """The outputs' axis and depth's."""
        w, out, k = self.window, os[self.out], rs[self.rhs]
        if self.swapped:
            sign = -1 if w.reversed else 1
            outputs = Axis(self.outputs, rhs=-sign * w.stride * k, out=out)
            return outputs, Axis(self.base, ls[self.lhs], sign * w.base_dilation * k)
        depth = Axis(w.size, w.window_dilation * ls[self.lhs], -k if w.reversed else k)
        return Axis(self.outputs, lhs=w.stride * ls[self.lhs], out=out), depth

    def kernel_start(self) -> int:
        """The kernel's position at the first output and the first depth."""
        w = self.window
        if self.swapped:
            run = (self.base - 1) * w.base_dilation if w.reversed else 0
            return run if w.reversed else (self.outputs - 1) * w.stride
        return w.size - 1 if w.reversed else 0


def is_swapped(w: WindowDim, base: int) -> bool:
    """Whether a dimension's window is so much larger than the base that the base is walked."""
    return 0 < FAR_LARGER * base <= w.size


def convolution_contraction(
    instruction: Instruction, held: Mapping[DType, DType] = NUMBERS
) -> tuple[Contraction, Base, Base]:
    """The contraction, the base that is its lhs, and its rhs likewise. held: how copies hold what
    is not held as it was.
    """
    lhs, rhs = (o.shape for o in instruction.operands)
    attrs = ConvolutionAttributes.of(instruction.attributes)
    labels, window = attrs.dim_labels, attrs.window
    groups, batch_groups = attrs.feature_group_count, attrs.batch_group_count
    _check_supported(instruction)
    out = instruction.shape
    dims_of_each = zip(
        window.dims, labels.lhs_spatial, labels.rhs_spatial, labels.out_spatial, strict=True
    )
    spatial = [_Spatial(w, d, k, y, lhs.dims[d], out.dims[y]) for w, d, k, y in dims_of_each]
    if held is NUMBERS and not out.dtype.is_float:
        held = AS_THEY_ARE
    base = _base(lhs.dims, lhs.dtype, held, spatial)
    kernel = _kernel(rhs.dims, rhs.dtype, held, spatial)
    ls, rs, os = base.strides, kernel.strides, row_major_strides(out.dims)
    b, f = labels.lhs_batch, labels.lhs_feature
    i, o = labels.rhs_input_feature, labels.rhs_output_feature
    images, features = lhs.dims[b] // batch_groups, rhs.dims[i]
    outputs = rhs.dims[o] // (groups * batch_groups)
    axes = [s.axes(ls, rs, os) for s in spatial]
    contraction = Contraction(
        batch=(
            Axis(groups, features * ls[f], outputs * rs[o], outputs * os[labels.out_feature]),
            Axis(batch_groups, images * ls[b], outputs * rs[o], outputs * os[labels.out_feature]),
        ),
        rows=(
            Axis(images, lhs=ls[b], out=os[labels.out_batch]),
            *(a for (a, _), s in zip(axes, spatial, strict=True) if not s.swapped),
        ),
        columns=(
            Axis(outputs, rhs=rs[o], out=os[labels.out_feature]),
            *(a for (a, _), s in zip(axes, spatial, strict=True) if s.swapped),
        ),
        depth=(*(a for _, a in axes), Axis(features, ls[f], rs[i])),
        lhs=Operand(base.dtype, 0, base.offset, spare=base.spare),
        rhs=Operand(kernel.dtype, 1, kernel.offset, spare=kernel.spare),
        out=out.dtype,
    )
    return contraction, base, kernel


def _check_supported(instruction: Instruction) -> None:
    kind = instruction.attributes.get("convolution_kind")
    if kind not in (None, "", "unset", "fprop") or len(instruction.operands) != 2:
        raise HloError(
            "unsupported", f"convolution: only fprop of two operands is compiled, found {kind}",
            instruction.span,
        )  # fmt: skip


def _base(dims: Ints, dtype: DType, held: Mapping[DType, DType], spatial: list[_Spatial]) -> Base:
    """Positions that windows reach, per dimension; a copy if any of them is not an element."""
    padded = [PaddedDim(n, n) for n in dims]
    skipped = [0] * len(dims)
    needed = False
    for s in spatial:
        w = s.window
        if s.swapped:
            continue
        if w.base_dilation == 1 and is_inside(w, s.outputs, s.base):
            skipped[s.lhs] = -w.pad_low
            continue
        needed = True
        padded[s.lhs] = PaddedDim(_reach(w, s.outputs), s.base, w.pad_low, w.base_dilation)
    if not needed:
        strides = row_major_strides(dims)
        return Base((), dims, strides, _dot(skipped, strides), dtype)
    made = _copied(padded, skipped, held.get(dtype, dtype))
    steps = [s.window.window_dilation * made.strides[s.lhs] for s in spatial]
    return replace(made, spare=2 * min(steps))  # two steps along depth, for words


def _kernel(dims: Ints, dtype: DType, held: Mapping[DType, DType], spatial: list[_Spatial]) -> Base:
    """The kernel; a copy if the base is walked along some dimension."""
    padded = [PaddedDim(n, n) for n in dims]
    first = [0] * len(dims)
    for s in spatial:
        first[s.rhs] = s.kernel_start()
        if s.swapped:
            padded[s.rhs] = s.swapped_kernel()
    if not any(s.swapped for s in spatial):
        strides = row_major_strides(dims)
        return Base((), dims, strides, _dot(first, strides), dtype)
    return _copied(padded, first, held.get(dtype, dtype))


def _copied(padded: list[PaddedDim], first: list[int], dtype: DType) -> Base:
    """An array between zeros, with position `first` as the one that counts from 0."""
    sizes = tuple(p.size for p in padded)
    strides = row_major_strides(sizes)
    return Base(tuple(padded), sizes, strides, _dot(first, strides), dtype)


def _reach(w: WindowDim, outputs: int) -> int:
    """Positions from the first window's start to the last window's end."""
    if outputs == 0 or w.size == 0:
        return 0
    return (outputs - 1) * w.stride + (w.size - 1) * w.window_dilation + 1


def _dot(a: list[int], b: Ints) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))
