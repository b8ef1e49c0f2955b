"""Result: where finished sums go; what a fusion adds to a contraction is applied here, on lanes.

ring numbers, index of lane 0 in out --epilogue--> ring numbers of the stored type --> memory
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from hlo.analysis.bands import ALL, Band
from hlo.backend.ir.values import counted, every_lane
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.ring import (
    Parts,
    Ring,
    element_address,
    narrowed,
    scattered,
    written,
)
from hlo.backend.lanes.row_stores import store_turns
from hlo.backend.lanes.types import storage_scalar
from hlo.ir.dtype import DType


class Lanes(Struct, frozen=True):
    """Lanes that leave the registers: lane i is element index + i * stride of out, row-major.

    With stride 1 they lie within one run of the contraction's columns: of the trailing dimensions
    of out that come from the same operand (the last ones of rhs in a dot).
    mask: lanes that exist, None for all. others: addresses of the epilogue's further buffers.
    """

    index: Value
    count: int
    stride: int
    mask: Value | None
    others: tuple[Value, ...]


class Epilogue(Struct, frozen=True):
    """What is done to each sum before it is stored.

    apply(w, sums, lanes): the sums are components as the ring has them (f32 for bf16, doubles where
    the target says so), not rounded to the contraction's type yet; it returns components in memory
    form (LLVM type of `dtype`'s storage).
    others: the sequence's buffers that it reads, after lhs, rhs and the result.
    in_place: pairs of a fusion's operand and result that may be the same memory where each result
    is stored once.

    further: types of further results, whose components follow. gates: parts of the columns that
    are finished together (gates.py): the sums of all of them, at one place, are those of an element
    of out. live: two dimensions of out, and the band of them whose sums are looked at. is_uniform:
    it does the same to equal sums, wherever they are.
    """

    dtype: DType
    apply: Callable[[Writer, Parts, Lanes], Parts]
    others: tuple[int, ...] = ()
    in_place: frozenset[tuple[int, int]] = frozenset()
    further: tuple[DType, ...] = ()
    gates: int = 1
    live: tuple[int, int, Band] = (0, 0, ALL)
    is_uniform: bool = False


# What is done to each sum, as a target's code does it.
EpilogueOf = Callable[[Target], Epilogue | None]


def no_epilogue(target: Target) -> None:
    """Of a contraction alone."""


class Result:
    """The result array of the kernel being written."""

    def __init__(
        self, w: Writer, ring: Ring, dtype: DType, place: int, epilogue: Epilogue | None = None
    ) -> None:
        self.w = w
        self.ring = ring
        self.epilogue = epilogue
        self.dtype = epilogue.dtype if epilogue else dtype
        self.address = w.buffer_address(place)
        further = epilogue.further if epilogue else ()
        self.further = [(w.buffer_address(place + 1 + i), t) for i, t in enumerate(further)]
        first, count = place + 1 + len(further), len(epilogue.others) if epilogue else 0
        self.others = tuple(w.buffer_address(first + i) for i in range(count))

    @property
    def buffers(self) -> int:
        """Entries of the address table that it uses."""
        return 1 + len(self.further) + len(self.others)

    def form(self, parts: Parts, index: Value, stride: int, mask: Value | None) -> Parts:
        """Components in memory form of elements index, index + stride, ... of out. What further
        results have there is stored.
        """
        w = self.w
        if self.epilogue is None:
            return narrowed(w, self.ring, self.dtype, parts)
        lanes = Lanes(index, parts[0].lanes, stride, mask, self.others)
        form = self.epilogue.apply(w, parts, lanes)
        own = len(form) - len(self.further)
        for (base, dtype), value in zip(self.further, form[own:], strict=True):
            written(w, dtype, (value,), element_address(w, base, index, dtype), mask)
        return form[:own]

    def store(self, parts: Parts, index: Value, stride: int, mask: Value | None) -> None:
        """Sums to elements index, index + stride, ... of out."""
        w, lanes = self.w, parts[0].lanes
        form = self.form(parts, index, stride, mask)
        address = element_address(w, self.address, index, self.dtype)
        if stride == 1 or lanes == 1:
            written(w, self.dtype, form, address, mask)
            return
        offsets = w.binary("mul", counted("i64", lanes), w.int(stride, f"<{lanes} x i64>"))
        valid = mask or every_lane(lanes)
        scattered(w, self.dtype, form, address, offsets, valid)

    def vector(self, lanes: int) -> str:
        """The type of so many real elements in memory form."""
        return vector_of(storage_scalar(self.dtype), lanes)

    def store_turns(self, values: Sequence[Value], index: Value) -> None:
        """Vectors in memory form, all lanes 0 of them from element index on, then all lanes 1."""
        store_turns(self.w, element_address(self.w, self.address, index, self.dtype), values)
