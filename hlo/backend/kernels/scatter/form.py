"""The form of a scatter: its loops over positions and windows, and the units that share them."""

from __future__ import annotations

import math
from collections.abc import Sequence

from msgspec import Struct

from hlo.backend.kernels.scatter.computed import COMPUTED_PART, computed_parts
from hlo.backend.kernels.scatter.window import Loop, joined
from hlo.indexing.affine import row_major_strides
from hlo.indexing.queries import written_dims
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ops.indexing import ScatterAttributes

_PART = 128  # Elements of the innermost window dimension that are worth a unit.
_MOST_PARTS = 16
# Positions in runs are shared out where there are so many elements, a unit for so many. With fewer,
# the next run's begin is foreseen when the same indices come again.
_LEAST_OF_RUNS, _RUNS_PART, _MOST_RUNS = 1 << 15, 1 << 12, 64


class Start(Struct, frozen=True):
    """Where operand dimension `dim` starts: an index component, or a batch coordinate.

    limit: the greatest start with the window inside; negative: the window never fits. is_alone:
    whether the window is one element of the dimension.
    """

    stride: int
    limit: int
    component: int | None
    position: int  # Where the batch coordinate stands among the scatter loops.
    is_alone: bool = True


class ScatterForm(Struct, frozen=True):
    """A scatter as loops over positions and windows.

    positions: the scatter loops' sizes; update_strides, index_strides: per scatter loop;
    update_dims: the updates' dimensions that they are.
    """

    positions: tuple[int, ...]
    update_dims: tuple[int, ...]
    update_strides: tuple[int, ...]
    index_strides: tuple[int, ...]
    component_stride: int
    starts: tuple[Start, ...]
    window: tuple[Loop, ...]
    is_plain: bool  # One operand, of real numbers.
    is_sorted: bool
    is_computing: bool  # Updates are made here.
    has_runs: bool = False  # Where indices are sorted, units are runs of equal ones (runs.py).

    @property
    def is_batched(self) -> bool:
        """Whether the outermost loop over positions is a batch: its windows meet no other's."""
        is_batch = any(start.position == 0 for start in self.starts)
        return is_batch and self.positions[0] > 1

    @property
    def units(self) -> int:
        """Batches, or parts of the innermost window dimension."""
        if not math.prod(self.positions):
            return 1
        if self.is_batched:
            return self.positions[0]
        if self.has_runs and not self.has_parts:
            return min(_MOST_RUNS, self.elements // _RUNS_PART)
        if not self.window:
            return 1
        if not self.is_computing:
            return max(1, min(_MOST_PARTS, self.window[-1].size // _PART))
        parted = self.window[0 if self.is_split_outside else -1].size
        return computed_parts(math.prod(loop.size for loop in self.window), parted, _MOST_PARTS)

    @property
    def elements(self) -> int:
        """Of all windows."""
        return math.prod(self.positions) * math.prod(loop.size for loop in self.window)

    @property
    def has_parts(self) -> bool:
        """Whether units may be parts of the innermost window dimension."""
        return bool(self.window) and self.window[-1].size >= 2 * _PART

    @property
    def may_have_runs(self) -> bool:
        """Whether positions may be shared out where neighbours' indices differ: one loop over
        positions, each with one index, whose windows meet only where that is the same. Rows that
        are computed are shared out, if they are long, whether indices are sorted or not.
        """
        indexed = [start for start in self.starts if start.component is not None]
        is_row = len(self.positions) == 1 and len(indexed) == len(self.starts) == 1
        if not (is_row and self.may_fit) or (self.is_computing and self.units > 1):
            return False
        is_dense = self.index_strides[-1] == 1
        return is_dense and indexed[0].is_alone and self.elements >= _LEAST_OF_RUNS

    @property
    def is_split_outside(self) -> bool:
        """Whether units are parts of the outermost window dimension, where they compute and the
        innermost one is too short to be parted.
        """
        is_short = len(self.window) > 1 and self.window[-1].size < 2 * COMPUTED_PART
        return self.is_computing and is_short

    @property
    def may_fit(self) -> bool:
        """Whether any window lies inside."""
        return all(start.limit >= 0 for start in self.starts if start.component is not None)

    @property
    def is_element(self) -> bool:
        """Whether a position has a single number."""
        return self.is_plain and not self.window and self.may_fit

    @property
    def is_in_registers(self) -> bool:
        """Whether single elements that were just combined stay in a register for the next ones:
        where neighbours are likely to be the same, as sorted ones are, and pairs (distances between
        rows and columns). Where they never are, as along a batch, asking takes half as long again.
        """
        indexed = any(start.component is not None for start in self.starts)
        loops = len(self.positions) - self.is_batched  # batches are units
        is_apart = any(start.position == len(self.positions) - 1 for start in self.starts)
        is_row = loops > 0 and self.positions[-1] > 1 and not is_apart
        is_likely = self.is_sorted or loops > 1
        return self.is_element and indexed and is_row and is_likely

    @property
    def text(self) -> str:
        """What it says, in a line."""
        batch_dims = " x ".join(map(str, self.positions)) or "1"
        window = " x ".join(str(loop.size) for loop in self.window) or "1"
        order = "side by side in the first, else " if self.is_batched else ""
        kept = ", the last in a register" if self.is_in_registers else ""
        if self.has_runs:
            order = "runs of equal indices side by side where they are sorted, else "
            order += "parts of the window side by side, " if self.has_parts else ""
        made = ", computed where they are combined" if self.is_computing else ""
        windows = f"{batch_dims} windows of {window} elements{made}"
        return f"scatter: {windows}, {order}one after the other{kept}"

    @staticmethod
    def of(instruction: Instruction, *, is_computing: bool = False) -> ScatterForm:
        """What the attributes say about loops and strides."""
        count = len(instruction.operands) // 2
        dims = instruction.operands[0].shape.dims
        index_dims = instruction.operands[count].shape.dims
        update_dims = instruction.operands[count + 1].shape.dims
        attrs: ScatterAttributes[Computation] = ScatterAttributes.of(instruction.attributes)
        window_dims, vector = attrs.update_window_dims, attrs.index_vector_dim
        scatter_dims = [d for d in range(len(update_dims)) if d not in window_dims]
        batch_dims = [d for d in range(len(index_dims)) if d != vector]
        update_strides, index_strides = (
            row_major_strides(update_dims),
            row_major_strides(index_dims),
        )
        along = {d: k for d, k in enumerate(written_dims(instruction)) if k is not None}
        spread = {d: k for d, k in along.items() if k in window_dims}
        sizes = {d: update_dims[k] for d, k in spread.items()}
        window = [
            Loop(update_dims[k], row_major_strides(dims)[d], update_strides[k], k)
            for d, k in spread.items()
        ]
        batches = {d: scatter_dims.index(k) for d, k in along.items() if k in scatter_dims}
        return ScatterForm(
            tuple(update_dims[d] for d in scatter_dims),
            tuple(scatter_dims),
            tuple(update_strides[d] for d in scatter_dims),
            tuple(index_strides[d] for d in batch_dims),
            index_strides[vector] if vector < len(index_dims) else 0,
            _starts(attrs, dims, sizes, batches),
            tuple(loop for loop in window if loop.size != 1) if is_computing else joined(window),
            is_plain=count == 1 and not instruction.operands[0].shape.dtype.is_complex,
            is_sorted=attrs.indices_are_sorted,
            is_computing=is_computing,
        )


def _starts(
    attrs: ScatterAttributes[Computation],
    dims: Sequence[int],
    sizes: dict[int, int],
    batches: dict[int, int],
) -> tuple[Start, ...]:
    strides = row_major_strides(dims)
    indexed = [
        Start(strides[d], dims[d] - sizes.get(d, 1), component, -1, sizes.get(d, 1) == 1)
        for component, d in enumerate(attrs.scatter_dims_to_operand_dims)
    ]
    batched = (Start(strides[d], dims[d] - 1, None, k) for d, k in batches.items())
    return (*indexed, *batched)
