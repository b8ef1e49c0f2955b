"""Prepacking: copies of factors that are constants, made when the program is compiled.

    bytes of a constant --PrepackedPanels | PrepackedWords | PrepackedTiles--> the bytes that the
    packing kernel of the same form would write

Each is a value of what its kernel is written from, so that both say the same. What kernels leave
unwritten is zero here.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from msgspec import Struct

from hlo.backend.isa.dot_products import DotProduct
from hlo.backend.kernels.contraction.matrix_units.amx import TILE, TilePlan
from hlo.backend.kernels.contraction.packing.form import Packing, Strides
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.ring import Ring, components
from hlo.backend.kernels.contraction.words.words import Words
from hlo.backend.kernels.contraction.words.zeros import ZERO_CODE
from hlo.ir.dtype import DType

_SCALARS = {"float": np.float32, "double": np.float64, "i32": np.int32, "i64": np.int64}


class PrepackedOrder(Struct, frozen=True):
    """An array of elements of so many bytes with its dimensions in another order."""

    dims: tuple[int, ...]
    order: tuple[int, ...]
    item_bytes: int

    def __call__(self, source: np.ndarray) -> np.ndarray:
        """bytes -> bytes"""
        elements = source.view(f"V{self.item_bytes}").reshape(self.dims)
        return _bytes_of(elements.transpose(self.order))


class PrepackedPanels(Struct, frozen=True):
    """The panels of packing/panels.py's kernel. batch: the axes that move the factor, sizes and
    strides; offset: of its first element.
    """

    packing: Packing
    batch: Strides
    offset: int

    def __call__(self, source: np.ndarray) -> np.ndarray:
        """bytes -> bytes"""
        packing = self.packing
        ring, panels, own = packing.ring, packing.panels, packing.source
        batches, depth = math.prod(n for n, _ in self.batch), own.depth_size
        axes = (*self.batch, *own.free, *own.depth)
        elements = _seen(source, own.dtype, self.offset, axes)
        elements = elements.reshape(batches, own.free_size, depth)
        steps = np.arange(panels.count) * panels.step
        starts = np.minimum(steps, max(panels.end - panels.step, 0))
        lanes = np.arange(panels.step if packing.by_rows else panels.width)
        free = starts[:, None] + lanes
        beyond = free >= own.free_size
        taken = elements[:, np.where(beyond, 0, free)]  # [batch, panel, lane, depth]
        taken[:, beyond] = np.zeros((), taken.dtype)
        parts = np.stack(_ring_numbers(taken, own.dtype, ring), 3)
        if not packing.by_rows:  # [batch, panel, depth, part, lane]
            return _bytes_of(parts.transpose(0, 1, 4, 3, 2))
        rows = np.zeros((batches, panels.count, panels.step, packing.row_step), parts.dtype)
        for part in range(ring.parts):
            at = part * packing.part_step
            rows[..., at : at + depth] = parts[:, :, :, part]
        return _bytes_of(rows)


class PrepackedWords(Struct, frozen=True):
    """The words of words/packing.py's kernel."""

    words: Words

    def __call__(self, source: np.ndarray) -> np.ndarray:
        """bytes -> bytes"""
        words, dot = self.words, self.words.dot
        assert words.element.numpy is not None, "words are of numbers"
        elements = _seen(source, words.source.dtype, words.source.offset, words.axes)
        elements = np.moveaxis(elements.astype(words.element.numpy), words.pairs, -1)
        count = words.sizes[words.pairs]
        made = np.zeros((*elements.shape[:-1], count * dot.group), elements.dtype)
        made[..., : elements.shape[-1]] = elements
        if words.is_moved:
            made.view(np.uint8)[...] ^= np.uint8(0x80)
        return _bytes_of(np.moveaxis(made.view(f"u{dot.word.item_bytes}"), -1, words.pairs))


class PrepackedZeros(Struct, frozen=True):
    """What words/zeros.py's product gives. c: of the words; dot: of its ring."""

    c: Contraction
    dot: DotProduct

    def __call__(self, source: np.ndarray) -> np.ndarray:
        """bytes of rhs's words -> bytes"""
        c, dot = self.c, self.dot
        left, right = (element.numpy for element in dot.elements)
        assert left is not None, "words are of numbers"
        assert right is not None, "words are of numbers"
        axes = [(a.size, a.rhs) for part in (c.batch, c.columns, c.depth) for a in part]
        words = np.ascontiguousarray(_seen(source, c.rhs.dtype, c.rhs.offset, axes))
        zero = np.array(ZERO_CODE, np.uint8).astype(left).astype(np.int64)
        elements = words.view(right).reshape(c.batches * c.n, -1)
        return _bytes_of((elements.sum(1, dtype=np.int64) * zero).astype(np.int32))


class PrepackedTiles(Struct, frozen=True):
    """The blocks of matrix_units/packing.py's kernel."""

    plan: TilePlan

    def __call__(self, source: np.ndarray) -> np.ndarray:
        """bytes -> bytes"""
        plan, c = self.plan, self.plan.c
        axes = [(a.size, a.rhs) for part in (c.batch, c.columns, c.depth) for a in part]
        batches = [axis for axis in axes[: len(c.batch)] if axis[1]]
        elements = _seen(source, c.rhs.dtype, c.rhs.offset, (*batches, *axes[len(c.batch) :]))
        count = math.prod(n for n, _ in batches)
        raw = np.dtype(f"u{plan.item_bytes}")
        assert plan.tiles.rhs.numpy is not None, "tiles are of numbers"
        run = plan.run_steps * plan.depths
        made = np.zeros((count, plan.column_tiles * TILE, plan.runs, run), raw)
        numbers = np.ascontiguousarray(elements.astype(plan.tiles.rhs.numpy))
        made[:, : c.n, :, : plan.run] = numbers.view(raw).reshape(count, c.n, plan.runs, plan.run)
        groups = plan.depths // plan.group
        made = made.reshape(count, plan.column_tiles, TILE, plan.steps, groups, plan.group)
        return _bytes_of(made.transpose(0, 1, 3, 4, 2, 5))


def is_prepacked(dtype: DType, ring: Ring) -> bool:
    """Whether elements of a constant become the ring's numbers here."""
    if ring.result.is_pred:
        return dtype.is_pred
    return ring.rounds or not dtype.component.is_float


def _seen(
    source: np.ndarray, dtype: DType, offset: int, axes: Sequence[tuple[int, int]]
) -> np.ndarray:
    """Elements of an array's bytes along axes: sizes, and strides in elements."""
    assert dtype.numpy is not None, "arrays have elements"
    # As bytes: NumPy has no text for some of ml_dtypes' types, which as_strided asks for.
    elements = source.view(np.dtype(f"V{dtype.numpy.itemsize}"))[offset:]
    shape = [size for size, _ in axes]
    strides = [stride * elements.itemsize for _, stride in axes]
    seen = np.lib.stride_tricks.as_strided(elements, shape, strides, writeable=False)
    return seen.view(dtype.numpy)


def _ring_numbers(elements: np.ndarray, dtype: DType, ring: Ring) -> list[np.ndarray]:
    """Elements as parts of ring numbers: as HLO's convert, integers wrapping."""
    scalar = np.dtype(_SCALARS[ring.scalar])
    if components(dtype) == 1:
        numbers = [elements.astype(scalar)]
    else:
        numbers = [elements.real.astype(scalar), elements.imag.astype(scalar)]
    if len(numbers) < ring.parts:
        numbers.append(np.zeros_like(numbers[0]))
    return numbers[: ring.parts]


def _bytes_of(made: np.ndarray) -> np.ndarray:
    """The bytes of an array's elements, in order."""
    return np.ascontiguousarray(made).reshape(-1).view(np.uint8)
