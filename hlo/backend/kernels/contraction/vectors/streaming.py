"""Streaming: what kernels share that read a matrix once, in its own order, for few rows.

A unit is a batch and a block of the matrix's columns.
"""

from __future__ import annotations

from collections.abc import Callable

from hlo.backend.ir.arithmetic import add, split_index, strided, times
from hlo.backend.ir.control import ranged
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.addressing import moved
from hlo.backend.kernels.contraction.problem.axes import Contraction, static_offset
from hlo.backend.kernels.contraction.problem.offsets import (
    address_0,
    element_0,
    offsets_of,
    start_buffers,
)
from hlo.backend.kernels.contraction.problem.result import Epilogue, Result
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring, element_address
from hlo.backend.kernels.contraction.vectors.work import vector_work

UNIT_BYTES = 64 << 10  # The least of the matrix that is worth a unit.
UNITS = 32
_MANY = 16  # Units of which one more or less for a thread matters little.


class Streaming:
    """What both forms share: the addresses of one batch, and the kernel around its units. blocks:
    of columns.
    """

    blocks: int
    scratch_bytes = 0
    further = 0  # Buffers between starts and scratch: a flag.

    def __init__(self, c: Contraction, ring: Ring, epilogue: Epilogue | None) -> None:
        self.w = Writer()
        self.c = c
        self.ring = ring
        self.epilogue = epilogue

    def _kernel(self, body: Callable[[Value], None]) -> Kernel:
        """A unit is (batch, block); body(block) runs with the batch's addresses set."""
        w, c, blocks, scratch_bytes = self.w, self.c, self.blocks, self.scratch_bytes
        lhs, rhs = (w.buffer_address(i) for i in range(2))
        self.result = Result(w, self.ring, c.out, 2, self.epilogue)
        first = 2 + self.result.buffers  # of the starts
        last = first + len(start_buffers((c.lhs, c.rhs)))
        if self.further:
            self.flag = w.buffer_address(last)
        if scratch_bytes:
            self.scratch = w.buffer_address(last + self.further)
        lhs = address_0(w, lhs, c.lhs, first)
        place = element_0(w, rhs, c.rhs, first + offsets_of(c.lhs))

        def unit(u: Value) -> None:
            b, block = split_index(w, u, (1 << 40, blocks))
            axes = {s: [(a.size, getattr(a, s)) for a in c.batch] for s in ("lhs", "rhs", "out")}
            self.lhs = element_address(w, lhs, strided(w, b, axes["lhs"]), c.lhs.dtype)
            self.rhs = moved(w, place, b, axes["rhs"], c.rhs.dtype)
            self.out_index = strided(w, b, axes["out"])
            body(block)

        ranged(w, BEGIN, END, unit)
        matrix = round(c.batches * c.k * c.n * c.rhs.read_bytes)
        return Kernel(
            w.kernel_function(),
            c.batches * blocks,
            *w.beside,
            scratch_bytes=scratch_bytes,
            bytes_moved=matrix,
            flops=c.flops,
            work=vector_work(c, self.ring),
        )

    def _blocks(self, things: int) -> int:
        """Blocks into which `things` parts of the matrix are shared."""
        c = self.c
        size = c.k * c.n * c.rhs.dtype.item_bytes
        blocks = max(1, min(things, UNITS, size // UNIT_BYTES))
        # Few blocks are shared out evenly: of nine, one of two threads would have five.
        return blocks - blocks % 4 if 4 < blocks < _MANY else blocks

    def _store(self, row: int, column: Value, sums: Parts, mask: Value | None) -> None:
        w = self.w
        step = self.c.columns[-1].out if self.c.columns else 1
        index = add(w, self.out_index, w.int(static_offset(row, self.c.rows, "out")))
        self.result.store(sums, add(w, index, times(w, column, step)), step, mask)
