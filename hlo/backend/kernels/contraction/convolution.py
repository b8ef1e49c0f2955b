"""Convolution as a contraction: rows are positions, depth is the window and a group's features.

    out[n, y, c] = sum over w, i of padded[n, y * stride + w * dilation, i] * rhs[w, i, c]

Where a window never leaves the base this is affine already; otherwise the base is first copied
between zeros (padding, holes of base dilation), so that it is.
"""

from __future__ import annotations

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.window import Window, WindowDim
from hlo.backend.kernels.contraction.axes import Axis, Contraction, Operand, row_major_strides
from hlo.backend.kernels.contraction.padding import PaddedDim
from hlo.errors import HloError
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.table import attribute
from hlo.records import dataclass

Ints = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Base:
    """The array that windows read. padded: how to copy it between zeros first, () if not at all.

    dims and strides are those after that copy; offset: of padded position 0.
    """

    padded: tuple[PaddedDim, ...]
    dims: Ints
    strides: Ints
    offset: int
    dtype: DType


def convolution_contraction(instruction: Instruction) -> tuple[Contraction, Base]:
    """The contraction, and the base that is its lhs."""
    lhs, rhs = (o.shape for o in instruction.operands)
    labels: DimLabels = attribute(instruction, "dim_labels")  # type: ignore[assignment]  # its kind
    window: Window = attribute(instruction, "window") or Window()  # type: ignore[assignment]  # its kind
    groups: int = attribute(instruction, "feature_group_count")  # type: ignore[assignment]  # its kind
    batch_groups: int = attribute(instruction, "batch_group_count")  # type: ignore[assignment]  # its kind
    _check_supported(instruction)
    out_dims = instruction.shape.dims
    base = _base(lhs.dims, lhs.dtype, instruction.shape.dtype, labels, window, out_dims)
    ls, rs, os = base.strides, row_major_strides(rhs.dims), row_major_strides(out_dims)
    b, f = labels.lhs_batch, labels.lhs_feature
    i, o = labels.rhs_input_feature, labels.rhs_output_feature
    images, features = lhs.dims[b] // batch_groups, rhs.dims[i]
    outputs = rhs.dims[o] // (groups * batch_groups)
    spatial = list(
        zip(window.dims, labels.lhs_spatial, labels.rhs_spatial, labels.out_spatial, strict=True)
    )
    contraction = Contraction(
        batch=(
            Axis(groups, features * ls[f], outputs * rs[o], outputs * os[labels.out_feature]),
            Axis(batch_groups, images * ls[b], outputs * rs[o], outputs * os[labels.out_feature]),
        ),
        rows=(
            Axis(images, lhs=ls[b], out=os[labels.out_batch]),
            *(Axis(out_dims[y], lhs=w.stride * ls[d], out=os[y]) for w, d, _, y in spatial),
        ),
        columns=(Axis(outputs, rhs=rs[o], out=os[labels.out_feature]),),
        depth=(
            *(
                Axis(w.size, w.window_dilation * ls[d], -rs[k] if w.reversed else rs[k])
                for w, d, k, _ in spatial
            ),
            Axis(features, ls[f], rs[i]),
        ),
        lhs=Operand(base.dtype, 0, base.offset),
        rhs=Operand(
            rhs.dtype, 1, sum((w.size - 1) * rs[k] for w, _, k, _ in spatial if w.reversed)
        ),
        out=instruction.shape.dtype,
    )
    return contraction, base


def _check_supported(instruction: Instruction) -> None:
    kind = instruction.attributes.get("convolution_kind")
    if kind not in (None, "", "unset", "fprop") or len(instruction.operands) != 2:
        raise HloError(
            "unsupported", f"convolution: only fprop of two operands is compiled, found {kind}",
            instruction.span,
        )  # fmt: skip


def _base(
    dims: Ints, dtype: DType, out: DType, labels: DimLabels, window: Window, out_dims: Ints
) -> Base:
    """Positions that windows reach, per dimension; a copy if any of them is not an element."""
    padded = [PaddedDim(n, n) for n in dims]
    skipped = [0] * len(dims)
    needed = False
    for w, d, y in zip(window.dims, labels.lhs_spatial, labels.out_spatial, strict=True):
        reach = _reach(w, out_dims[y])
        if w.base_dilation == 1 and w.pad_low <= 0 and reach - w.pad_low <= dims[d]:
            skipped[d] = -w.pad_low
            continue
        needed = True
        padded[d] = PaddedDim(reach, dims[d], w.pad_low, w.base_dilation)
    if not needed:
        strides = row_major_strides(dims)
        return Base((), dims, strides, _dot(skipped, strides), dtype)
    sizes = tuple(p.size for p in padded)
    strides = row_major_strides(sizes)
    wide = dt.F32 if dtype in (dt.BF16, dt.F16) and out.is_float else dtype
    return Base(tuple(padded), sizes, strides, _dot(skipped, strides), wide)


def _reach(w: WindowDim, outputs: int) -> int:
    """Positions from the first window's start to the last window's end."""
    if outputs == 0 or w.size == 0:
        return 0
    return (outputs - 1) * w.stride + (w.size - 1) * w.window_dilation + 1


def _dot(a: list[int], b: Ints) -> int:
    return sum(x * y for x, y in zip(a, b, strict=True))
