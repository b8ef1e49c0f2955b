"""Many small matrices at once, a matrix a lane: how they come to scratch memory and back.

    memory [matrix][row][column]  <--squares turned in registers-->  scratch [row][column][lane]

A matrix of few rows fills no vector of its own; the same step of many matrices does, and pivots
that differ from lane to lane are choices between vectors. A lane beyond the last matrix repeats it
and is not stored.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import when
from hlo.backend.lanes.transposed import transposed
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.machine import Machine

# Beyond the first of these powers of two numbers are moved by the other two before squares are
# taken: their sums stay normal numbers from the least subnormal number to the largest.
_FAR = {dt.F32: (40, 70, 100), dt.F64: (400, 650, 900)}


class Matrices(Struct, frozen=True):
    """`batch` matrices of rows x columns, in vectors of `lanes`."""

    dtype: DType
    batch: int
    rows: int
    columns: int
    lanes: int

    @property
    def size(self) -> int:
        return self.rows * self.columns

    @property
    def scalar(self) -> str:
        return types.storage_scalar(self.dtype)

    @property
    def vector(self) -> str:
        return vector_of(self.scalar, self.lanes)


class MatrixLanes(Matrices, frozen=True):
    """Matrices of which `lanes` are factored together, one in each lane."""

    @property
    def units(self) -> int:
        return -(-self.batch // self.lanes)

    @property
    def vector_bytes(self) -> int:
        return self.lanes * self.dtype.item_bytes

    @property
    def bytes(self) -> int:
        """Of the matrices that are together."""
        return self.size * self.vector_bytes


def matrix_lanes(dtype: DType, dims: tuple[int, int, int], machine: Machine) -> MatrixLanes | None:
    """Matrices (dims: how many, rows, columns), a lane each; None where there are too few of them,
    or where those that are together leave the first cache: each is then faster by itself."""
    if dtype not in (dt.F32, dt.F64):
        return None
    form = MatrixLanes(dtype, *dims, machine.lanes(dtype))
    is_small = form.bytes <= machine.first_cache.bytes
    return form if form.lanes >= 4 and form.batch >= form.lanes and is_small and form.size else None


def towards_one(w: Writer, dtype: DType, largest: Value) -> tuple[Value, Value]:
    """Powers of two that move numbers, of which the largest is given, near one, and back: 1 where
    they are near it. Lane by lane, and exact but for what vanishes beside the largest."""
    far, down, up = _FAR[dtype]

    def power(exponent: int) -> Value:
        return w.splat(w.float(2.0**exponent, largest.scalar_type), largest.lanes)

    is_large = w.compare("fcmp ogt", largest, power(far))
    is_small = w.compare("fcmp olt", largest, power(-far))
    near, back = (
        w.select(is_large, power(large), w.select(is_small, power(small), power(0)))
        for large, small in ((-down, up), (down, -up))
    )
    return near, back


class LanesInScratch:
    """The matrices of one unit. first: which is in lane 0; base: where element (0, 0) lies."""

    def __init__(self, nest: Nest, form: MatrixLanes, first: Value, base: Value) -> None:
        self.nest, self.form, self.first, self.base = nest, form, first, base

    def at(self, row: Value, column: Value) -> Value:
        """The address of an element of all lanes."""
        w = self.nest.w
        index = add(w, times(w, row, self.form.columns), column)
        return w.address(self.base, times(w, index, self.form.lanes), self.form.scalar)

    def get(self, row: Value, column: Value) -> Value:
        return self.nest.w.load(self.at(row, column), self.form.vector, self.form.dtype.item_bytes)

    def set(self, row: Value, column: Value, element: Value) -> None:
        self.nest.w.store(element, self.at(row, column), self.form.dtype.item_bytes)

    def count(self) -> Value:
        """How many lanes have a matrix of their own."""
        w, form = self.nest.w, self.form
        left = w.binary("sub", w.int(form.batch), self.first)
        return w.intrinsic("llvm.umin", "i64", left, w.int(form.lanes))

    def load(self, memory: Value) -> None:
        """All elements from an array of matrices."""
        w, form = self.nest.w, self.form

        def square(start: Value) -> None:
            rows = []
            for lane in range(form.lanes):
                number = add(w, self.first, w.int(lane))
                number = w.intrinsic("llvm.umin", "i64", number, w.int(form.batch - 1))
                rows.append(w.load(self._element(memory, number, start), form.vector))
            for k, column in enumerate(transposed(self.nest, rows)):
                w.store(column, self._vector(add(w, start, w.int(k))))

        def each(e: Value) -> None:
            def one(lane: Value, _: list[Value]) -> list[Value]:
                number = add(w, self.first, lane)
                number = w.intrinsic("llvm.umin", "i64", number, w.int(form.batch - 1))
                element = w.load(self._element(memory, number, e), form.scalar)
                w.store(element, w.address(self._vector(e), lane, form.scalar))
                return []

            self.nest.loop(0, form.lanes, 1, [], one)

        self._over(square, each)

    def store(self, memory: Value) -> None:
        """All elements of the matrices that there are to an array of matrices."""
        w, form = self.nest.w, self.form
        count = self.count()

        def square(start: Value) -> None:
            columns = [
                w.load(self._vector(add(w, start, w.int(k))), form.vector)
                for k in range(form.lanes)
            ]
            for lane, row in enumerate(transposed(self.nest, columns)):
                to = self._element(memory, add(w, self.first, w.int(lane)), start)
                is_there = w.compare("icmp ult", w.int(lane), count)
                when(self.nest, is_there, lambda row=row, to=to: w.store(row, to))  # type: ignore[misc]

        def each(e: Value) -> None:
            def one(lane: Value, _: list[Value]) -> list[Value]:
                element = w.load(w.address(self._vector(e), lane, form.scalar), form.scalar)
                w.store(element, self._element(memory, add(w, self.first, lane), e))
                return []

            self.nest.loop(w.int(0), count, 1, [], one)

        self._over(square, each)

    def _over(self, square: Callable[[Value], None], each: Callable[[Value], None]) -> None:
        """Elements as many at a time as lanes, the last ones again with those before them; one by
        one where a matrix has fewer."""
        size, lanes, w = self.form.size, self.form.lanes, self.nest.w

        def run(body: Callable[[Value], None]) -> Callable[[Value, list[Value]], list[Value]]:
            def step(e: Value, _: list[Value]) -> list[Value]:
                body(e)
                return []

            return step

        if size < lanes:
            self.nest.loop(0, size, 1, [], run(each))
            return
        self.nest.loop(0, size, lanes, [], run(square))
        if size % lanes:
            square(w.int(size - lanes))

    def _vector(self, element: Value) -> Value:
        w = self.nest.w
        return w.address(self.base, times(w, element, self.form.lanes), self.form.scalar)

    def _element(self, memory: Value, matrix: Value, element: Value) -> Value:
        w = self.nest.w
        index = add(w, times(w, matrix, self.form.size), element)
        return w.address(memory, index, self.form.scalar)
