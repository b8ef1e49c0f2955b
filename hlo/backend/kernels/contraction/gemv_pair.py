"""Gemv pair: a matrix by a vector and a vector by that matrix, which comes from memory once.

    d[r] = sum of A[r, :] * x[:]        y[:] += z[r] * A[r, :]        z: another vector, or d

Some rows at a time, which stay in a cache meanwhile: their dots are made (vectors/gemv.py), then
they are added to the second product's sums. A unit is a part of the rows with sums of its own,
which a further kernel adds up (products/split_k.py). Parts follow from the shape alone.
"""

from __future__ import annotations

from functools import partial

from msgspec.structs import replace

from hlo.analysis.matrix_pairs import ROWS, Pair, vector_of
from hlo.backend.ir.arithmetic import add, divided, times
from hlo.backend.ir.control import ranged
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, KernelSequence, Work
from hlo.backend.ir.writer import Value
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.calls import Calls
from hlo.backend.kernels.contraction.problem.axes import Contraction, dot_contraction, normal
from hlo.backend.kernels.contraction.problem.buffer_numbers import fusion_number
from hlo.backend.kernels.contraction.problem.nests import DEPTH, SUMS, cached
from hlo.backend.kernels.contraction.problem.result import Result
from hlo.backend.kernels.contraction.problem.ring import Ring, partial_type, ring_of
from hlo.backend.kernels.contraction.problem.sum_blocks import BLOCK
from hlo.backend.kernels.contraction.products.parts_nest import parts_schedule
from hlo.backend.kernels.contraction.products.split_k import parts_sums, sum_kernel
from hlo.backend.kernels.contraction.vectors.axpys import Axpys
from hlo.backend.kernels.contraction.vectors.gemv import Dots
from hlo.backend.kernels.contraction.vectors.matrix_prefetch import RowPrefetch
from hlo.backend.kernels.contraction.vectors.nest import depth_axes
from hlo.backend.kernels.contraction.vectors.plan import vector_sums
from hlo.backend.kernels.contraction.vectors.streaming import UNITS
from hlo.backend.kernels.contraction.vectors.work import vector_work
from hlo.backend.loops.one_nest import Nodes, schedule_of
from hlo.backend.loops.schedule import (
    Axis,
    Fill,
    Join,
    Loop,
    LoopSchedule,
    Reduction,
    Role,
    Store,
    Tail,
)
from hlo.ir.instruction import Instruction

PART_ROWS = 128  # The least rows of a part: its sums are written and read once more.
X, MATRIX, DOTS, Z, SUMS_OF_PARTS, SCRATCH = range(6)  # The table of the kernel's buffers.


def gemv_pair_kernels(fusion: Instruction, pair: Pair, target: Target) -> KernelSequence:
    """The kernels of both products, and of the sum of the second one's parts."""
    ring = ring_of(pair.along.shape.dtype, target)
    along, down = (normal(dot_contraction(dot), ring.lanes) for dot in (pair.along, pair.down))
    both = GemvPair(along, down, ring)
    result = len(fusion.operands)
    calls = Calls(target, result + 2)
    place = calls.temporary(both.parts * down.n * ring.scalar_bytes)
    x, matrix = map(fusion_number, (vector_of(pair.along), pair.matrix))
    z = result if pair.is_chained else fusion_number(vector_of(pair.down))
    calls.call(both.kernel(), partial(_schedule, both), x, matrix, result, z, place)
    joined = partial(parts_schedule, down, ring, both.parts, None)
    calls.call(sum_kernel(down, ring, both.parts), joined, place, result + 1)
    sums = parts_sums(vector_sums(both.c, ring), both.parts)
    return KernelSequence(tuple(calls.calls), tuple(calls.temporaries), sums=sums)


def _schedule(both: GemvPair) -> LoopSchedule:
    """The loops of the kernel that has both products."""
    ring, dots, size = both.ring, both.dots, both.part_groups * ROWS
    totals = f"totals of {SUMS}"
    vector = Axis("j", both.c.n, Role.VECTOR, ring.lanes, ring.lanes, _tail(both.c.n, ring.lanes))
    made = Reduction(
        "d", "add of products", tuple(depth_axes(dots)), 1, dots.at_once, dots.chains,
        join=Join.TOGETHER if dots.at_once > 1 else Join.HALVED, reads=(f"p{X}", f"p{MATRIX}"),
    )  # fmt: skip

    def group(count: int) -> Nodes:
        text = f"add of {SUMS} and products of {count} rows, reads p{Z}, p{MATRIX}"
        return (made, Store("d", DOTS, (DEPTH,), "d"), Loop(vector, (Fill(SUMS, text),)))

    rows = Axis(DEPTH, size, Role.REDUCED, ROWS, blocks=(BLOCK,) if both.has_totals else (),
                of=both.c.k)  # fmt: skip
    finished = f"add of {totals} and {SUMS}" if both.has_totals else SUMS
    body: Nodes = (
        cached(SUMS, (1, both.chunk), ring),
        *((cached(totals, (1, both.chunk), ring),) if both.has_totals else ()),
        Loop(vector, (Fill(SUMS, "0"),)),
        Loop(rows, group(ROWS)),
        *(group(both.rest) if both.rest else ()),  # of the last part
        Loop(vector, (Store("parts", SUMS_OF_PARTS, ("b", "j"), finished),)),
    )
    axis = Axis("b", both.parts, Role.PARALLEL)
    remark = f"both ways: the matrix is read once, {both.parts} parts of its rows"
    return schedule_of((axis,), (Loop(axis, body),), (remark,), scratch_bytes=both.scratch_bytes)


def _tail(size: int, lanes: int) -> Tail:
    return Tail.MASKED if size % lanes else Tail.NONE


class GemvPair(Axpys):
    """Groups of rows, of which `dots` has the first product and this the second. A unit takes
    `size` of the `groups`, and the last one what is left.
    """

    def __init__(self, along: Contraction, down: Contraction, ring: Ring) -> None:
        super().__init__(replace(down, out=partial_type(ring)), ring, None)
        self.dots = Dots(along, ring, None)
        self.dots.w = self.w
        self.depths, self.ahead = ROWS, RowPrefetch(down.rhs.dtype, 0)
        self.blocks, self.chunk = 1, -(-down.n // ring.lanes) * ring.lanes
        self.groups_of_rows, self.rest = divmod(down.k, ROWS)
        parts = min(UNITS, down.k // PART_ROWS)
        self.part_groups = -(-self.groups_of_rows // parts)
        self.parts = -(-self.groups_of_rows // self.part_groups)
        self.has_totals = ring.rounds and ROWS * self.part_groups > BLOCK
        self.sums_size = self.chunk
        self.scratch_bytes = (1 + self.has_totals) * self.sums_size * ring.scalar_bytes

    def kernel(self) -> Kernel:
        """The kernel, written."""
        w, c, dots = self.w, self.c, self.dots
        table = [w.buffer_address(place) for place in range(SCRATCH + 1)]
        dots.lhs, dots.rhs, dots.out_index = table[X], table[MATRIX], w.int(0)
        dots.result = Result(w, self.ring, dots.c.out, DOTS)
        self.lhs, self.rhs, self.matrix = table[Z], table[MATRIX], table[MATRIX]
        self.result = Result(w, self.ring, c.out, SUMS_OF_PARTS)
        self.scratch, self.first_column, self.count = table[SCRATCH], w.int(0), w.int(c.n)
        ranged(w, BEGIN, END, self._part)
        first, second = vector_work(dots.c, self.ring), vector_work(c, self.ring)
        return Kernel(
            w.kernel_function(),
            self.parts,
            *w.beside,
            scratch_bytes=self.scratch_bytes,
            bytes_moved=round(c.k * c.n * c.rhs.read_bytes),
            flops=dots.c.flops + c.flops,
            work=_both(first, second),
        )

    def _part(self, part: Value) -> None:
        """A unit: its rows' dots, and their sums."""
        w = self.w
        self.out_index = times(w, part, self.c.n)
        self._each(self._clear)
        first = times(w, part, self.part_groups)
        last = self._least(add(w, first, w.int(self.part_groups)), self.groups_of_rows)
        if not self.has_totals:
            ranged(w, first, last, self._rows)
        else:
            size = BLOCK // ROWS

            def block(number: Value) -> None:
                begin = add(w, first, times(w, number, size))
                end = w.intrinsic("llvm.umin", "i64", add(w, begin, w.int(size)), last)
                ranged(w, begin, end, self._rows)
                self._each(self._add_to_totals)

            count = w.binary("sub", last, first)
            ranged(w, w.int(0), divided(w, add(w, count, w.int(size - 1)), size), block)
        if self.rest:
            is_last = w.compare("icmp eq", part, w.int(self.parts - 1))
            some = w.select(is_last, w.int(1), w.int(0))
            self._once(some, lambda: self._rows(w.int(self.groups_of_rows), self.rest))
        self._each(self._finish)

    def _rows(self, group: Value, rows: int = ROWS) -> None:
        """Some rows through both products."""
        w, step = self.w, self.dots.at_once
        first = times(w, group, ROWS // step)
        for number in range(-(-rows // step)):
            self.dots._columns(add(w, first, w.int(number)))
        self._group(group, rows)

    def _least(self, value: Value, most: int) -> Value:
        return self.w.intrinsic("llvm.umin", "i64", value, self.w.int(most))


def _both(first: Work, second: Work) -> Work:
    """The work of both, which meet the matrix once."""
    instructions = first.instructions + second.instructions
    return replace(second, instructions=instructions, sums=first.sums + second.sums)
