"""Cholesky factors: a = U^H U, some rows of U at a time, all in scratch memory.

    U[k.., j] = root(k..)^-H (a[k.., j] - sum over p < k of conj(U[p, k..]) U[p, j])

A block of rows is computed in tiles of a few vectors: the sum over what is above it stays in
registers, so that each U[p, j] is loaded once for all rows of the block; the first tile holds the
diagonal, whose pivots the other tiles use. A lower factor is the conjugate transpose of U: it is
turned in squares of registers on the way in and out. One unit is one matrix. Many small matrices
are factored together, a matrix a lane (cholesky_lanes.py).
Source: left-looking Cholesky (Golub, Van Loan 4.2), blocked by rows.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.called import as_function, call
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.ring import (
    Parts,
    element_address,
    loaded,
    narrowed,
    written,
)
from hlo.backend.kernels.linear_algebra.cholesky_lanes import cholesky_lanes_kernel
from hlo.backend.kernels.linear_algebra.factor_form import GROUP, Factor, FactorForm, factor_of
from hlo.backend.kernels.linear_algebra.factor_nest import factor_schedule
from hlo.backend.kernels.linear_algebra.matrices import Numbers
from hlo.backend.kernels.linear_algebra.matrix_lanes import matrix_lanes
from hlo.backend.lanes.masked import below
from hlo.backend.lanes.nest import Nest
from hlo.ir.instruction import Instruction
from hlo.ops.linear_algebra import CholeskyAttributes

MOST_SCRATCH_BYTES = 1 << 26


def cholesky_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a cholesky."""
    lower = CholeskyAttributes.of(instruction.attributes).lower
    return factor_kernel(factor_of(instruction.operands[0].shape, lower=lower), target)


def factor_kernel(factor: Factor, target: Target) -> Kernel | None:
    """buffers: a, the factor, the failures if it reports, scratch. None for huge matrices."""
    together = matrix_lanes(factor.dtype, (factor.batch, factor.size, factor.size), target.machine)
    if together is not None:
        return cholesky_lanes_kernel(factor, together, target)
    w = Writer()
    build = _Build(Nest(w, target), factor)
    if build.form.scratch_bytes > MOST_SCRATCH_BYTES:
        return None
    n, item = factor.size, factor.dtype.item_bytes
    if factor.batch and (n or factor.reports):
        build.write()
    w.ret()
    made = Kernel(
        w.function(has_entry=True),
        max(factor.batch, 1),
        *w.beside,
        functions=tuple(build.functions),
        scratch_bytes=build.form.scratch_bytes,
        in_place=frozenset({(0, 0)}),
        bytes_moved=2 * factor.batch * n * n * item,
        flops=factor.batch * n * n * n * build.numbers.parts**2 // 3,
    )
    return target.shown(made, partial(factor_schedule, build.form))


Body = Callable[[Value, list[Value]], list[Value]]
# The parameters of a part of the work: scratch, the matrix, its result, the pivot that failed.
UPPER, SOURCE, TARGET = (Value(f"%{name}", "ptr") for name in ("upper", "source", "target"))
FAILED = Value("%failed", "i32")
PARAMETERS = (UPPER, SOURCE, TARGET, FAILED)
Tile = dict[tuple[int, int], Parts]  # (row of the block, vector) -> its numbers


class _Build:
    """The kernel's text."""

    def __init__(self, nest: Nest, factor: Factor) -> None:
        self.nest = nest
        self.w = nest.w
        self.factor = factor
        self.numbers = n = Numbers(nest, factor.dtype)
        self.form = f = FactorForm(factor, n.ring)
        self.vectors, self.rows, self.width, self.square = f.vectors, f.rows, f.width, f.square
        self.functions: list[Kernel] = []

    def write(self) -> None:
        w, f = self.w, self.factor
        a, result = w.buffer_address(0), w.buffer_address(1)
        failures = w.buffer_address(2) if f.reports else None
        upper = w.buffer_address(3 if f.reports else 2)

        def matrix(u: Value, _: list[Value]) -> list[Value]:
            first = times(w, u, f.size * f.size)
            elements = [element_address(w, memory, first, f.dtype) for memory in (a, result)]
            failed = w.int(0, "i32")
            if f.size:
                for part in (_Build._loading, _Build._factoring, _Build._storing):
                    failed = self._called(part, (upper, *elements, failed))
            if failures is not None:
                w.store(failed, w.address(failures, u, "i32"), 4)
            return []

        self.nest.loop(BEGIN, END, 1, [], matrix)

    def _called(self, part: Callable[[_Build], Value], arguments: tuple[Value, ...]) -> Value:
        """A part of the work as a function of its own: LLVM's time grows faster than a function."""
        w = Writer()
        build = _Build(Nest(w, self.nest.target), self.factor)
        function = as_function(w, PARAMETERS, part(build))
        self.functions.append(function)
        return call(self.w, function, *arguments, type="i32")

    def _loading(self) -> Value:
        self._clear()
        self._load()
        return FAILED

    def _factoring(self) -> Value:
        (failed,) = self.nest.loop(0, self.form.blocks + GROUP - 1, GROUP, [FAILED], self._group)
        return failed

    def _storing(self) -> Value:
        self._store(FAILED)
        return FAILED

    def _over(self, low: Value | int, step: int, body: Callable[[Value], None]) -> None:
        """body at low, low + step, ... below the size."""

        def run(k: Value, _: list[Value]) -> list[Value]:
            body(k)
            return []

        self.nest.loop(low, self.factor.size + step - 1, step, [], run)

    # -- factor ----------------------------------------------------------------------------------

    def _group(self, first: Value, carried: list[Value]) -> list[Value]:
        """Rows first .. first + GROUP of U; carried: number of the first pivot that failed, or 0.

        What the rows above the group account for is taken away column by column of tiles, so that
        these come from memory once for the whole group.
        """
        w = self.w
        end = w.intrinsic("llvm.smin", "i64", add(w, first, w.int(GROUP)), w.int(self.form.blocks))

        def column(j: Value) -> None:
            reach = w.intrinsic("llvm.smin", "i64", end, add(w, j, w.int(self.width)))
            self.nest.loop(first, reach, self.rows, [], self._lessened(first, j))

        if self.form.is_grouped:
            self._over(first, self.width, column)
        return self.nest.loop(
            first, end, self.rows, carried, lambda k, state: self._block(first, k, state)
        )

    def _lessened(self, first: Value, j: Value) -> Body:
        def block(k: Value, _: list[Value]) -> list[Value]:
            tile = self._without_known((self.w.int(0), first), k, j)
            for (r, v), number in tile.items():
                self._set(add(self.w, k, self.w.int(r)), j, v, number)
            return []

        return block

    def _block(self, first: Value, k: Value, carried: list[Value]) -> list[Value]:
        """Rows k .. k + rows, those above the group being accounted for."""
        (failed,) = carried
        failed = self._diagonal(k, self._without_known((first, k), k, k), failed)

        def beside(j: Value) -> None:
            self._solved(k, j, self._without_known((first, k), k, j))

        self._over(add(self.w, k, self.w.int(self.width)), self.width, beside)
        return [failed]

    def _without_known(self, known: tuple[Value, Value], k: Value, j: Value) -> Tile:
        """Rows k.., columns j.. without what a range of rows above accounts for."""
        w, n = self.w, self.numbers
        elements = [(r, v) for r in range(self.rows) for v in range(self.vectors)]
        sums = [self._get(add(w, k, w.int(r)), j, v) for r, v in elements]

        def one(p: Value, carried: list[Value]) -> list[Value]:
            tile = self._tile(elements, carried)
            row = [self._get(p, j, v) for v in range(self.vectors)]
            for r in range(self.rows):
                factor = n.splat(n.conjugate(self._one(p, add(w, k, w.int(r)))), n.lanes)
                for v in range(self.vectors):
                    tile[r, v] = n.less_product(tile[r, v], factor, row[v])
            return [part for number in tile.values() for part in number]

        flat = [part for number in sums for part in number]
        return self._tile(elements, self.nest.loop(*known, 1, flat, one))

    def _tile(self, elements: list[tuple[int, int]], flat: list[Value]) -> Tile:
        parts = self.numbers.parts
        numbers = [tuple(flat[i : i + parts]) for i in range(0, len(flat), parts)]
        return dict(zip(elements, numbers, strict=True))

    def _diagonal(self, k: Value, tile: Tile, failed: Value) -> Value:
        """Factor the block's own square, solve the rest of its tile."""
        w, n = self.w, self.numbers
        for r in range(self.rows):
            row = add(w, k, w.int(r))
            pivot = n.lane(tile[r, 0], r)[0]
            failed = self._checked(pivot, row, failed)
            root = w.intrinsic("llvm.sqrt", pivot.type, pivot)
            inverse = w.binary("fdiv", w.float(1.0, pivot.type), root)
            w.store(inverse, self._root(r))
            for v in range(self.vectors):
                tile[r, v] = n.scaled(tile[r, v], w.splat(inverse, n.lanes))
            exact = (root, w.zero(root.type))[: n.parts]
            tile[r, 0] = tuple(w.insert(p, e, r) for p, e in zip(tile[r, 0], exact, strict=True))
            for v in range(self.vectors):
                self._set(row, k, v, tile[r, v])
            for q in range(r + 1, self.rows):
                factor = n.splat(n.conjugate(n.lane(tile[r, 0], q)), n.lanes)
                for v in range(self.vectors):
                    tile[q, v] = n.less_product(tile[q, v], factor, tile[r, v])
        return failed

    def _checked(self, pivot: Value, row: Value, failed: Value) -> Value:
        """Rows count from 1; those beyond the matrix, of the last block, do not count."""
        w = self.w
        bad = w.compare("fcmp ule", pivot, w.zero(pivot.type))
        inside = w.compare("icmp slt", row, w.int(self.factor.size))
        first = w.compare("icmp eq", failed, w.int(0, "i32"))
        here = w.binary("and", w.binary("and", bad, inside), first)
        number = w.cast("trunc", add(w, row, w.int(1)), "i32")
        return w.select(here, number, failed)

    def _solved(self, k: Value, j: Value, tile: Tile) -> None:
        """A tile beside the diagonal, by the block's pivots."""
        w, n = self.w, self.numbers
        for r in range(self.rows):
            row = add(w, k, w.int(r))
            root = w.load(self._root(r), n.ring.scalar, 4)
            for v in range(self.vectors):
                tile[r, v] = n.scaled(tile[r, v], w.splat(root, n.lanes))
                self._set(row, j, v, tile[r, v])
            for q in range(r + 1, self.rows):
                above = self._one(row, add(w, k, w.int(q)))
                factor = n.splat(n.conjugate(above), n.lanes)
                for v in range(self.vectors):
                    tile[q, v] = n.less_product(tile[q, v], factor, tile[r, v])

    def _root(self, r: int) -> Value:
        """Where the inverse of a pivot of the block lies."""
        return self.w.address(UPPER, self.w.int(self.form.roots_at + r), self.numbers.ring.scalar)

    def _at(self, row: Value, column: Value) -> Value:
        return add(self.w, times(self.w, row, self.form.stride), column)

    def _one(self, row: Value, column: Value) -> Parts:
        return self.numbers.planes(UPPER, self._at(row, column), self.form.plane, 1)

    def _get(self, row: Value, j: Value, v: int, lanes: int = 0) -> Parts:
        n = self.numbers
        index = add(self.w, self._at(row, j), self.w.int(v * n.lanes))
        return n.planes(UPPER, index, self.form.plane, lanes or n.lanes)

    def _set(self, row: Value, j: Value, v: int, number: Parts) -> None:
        n = self.numbers
        index = add(self.w, self._at(row, j), self.w.int(v * n.lanes))
        n.set_planes(UPPER, index, self.form.plane, number)

    # -- in and out ------------------------------------------------------------------------------

    def _clear(self) -> None:
        """Zeros where tiles reach beyond the matrix, and below the diagonal of a group's rows:
        left-over subnormals would be slow."""
        w, n = self.w, self.numbers
        last = self.form.stride - n.lanes
        columns = [*range(self.factor.size // self.square * self.square, last, n.lanes), last]
        zero = n.ring.zero(w, n.lanes)

        def row(i: Value, _: list[Value]) -> list[Value]:
            first = w.binary("and", i, w.int(-GROUP))
            for v in range(min(GROUP // n.lanes, last // n.lanes)):
                self._set(i, first, v, zero)
            for column in columns:
                self._set(i, w.int(column), 0, zero)
            return []

        self.nest.loop(0, self.form.blocks, 1, [], row)

    def _load(self) -> None:
        """The triangle into scratch memory; what lies below the diagonal does not matter."""
        if self.factor.lower:
            self._over(0, self.square, lambda i: self._over_columns(i, self._load_square))
        else:
            self.nest.loop(0, self.form.blocks, 1, [], self._load_row)

    def _over_columns(self, i: Value, body: Callable[[Value, Value], None]) -> None:
        """Squares of a row of squares, up to the diagonal one."""

        def run(j: Value, _: list[Value]) -> list[Value]:
            body(i, j)
            return []

        reach = add(self.w, i, self.w.int(self.square))
        self.nest.loop(0, reach, self.square, [], run)

    def _load_row(self, i: Value, _: list[Value]) -> list[Value]:
        """A row from the diagonal on; those that fill the last block repeat the last one."""
        w, lanes = self.w, self.numbers.lanes
        row, first = self._inside(i), w.binary("and", i, w.int(-lanes))
        self._over(first, lanes, lambda j: self._set(i, j, 0, self._read(row, j, lanes)))
        return []

    def _load_square(self, i: Value, j: Value) -> None:
        """U[j.., i..] = conj(a[i.., j..]) turned."""
        w, n = self.w, self.numbers
        rows = [self._read(self._inside(add(w, i, w.int(r))), j, self.square)
                for r in range(self.square)]  # fmt: skip
        for e, column in enumerate(n.turned(rows)):
            index = self._at(add(w, j, w.int(e)), i)
            n.set_planes(UPPER, index, self.form.plane, n.conjugate(column))

    def _inside(self, row: Value) -> Value:
        """A row of the matrix: the last one for those beyond."""
        return self.w.intrinsic("llvm.smin", "i64", row, self.w.int(self.factor.size - 1))

    def _store(self, failed: Value) -> None:
        """The factor, and the other triangle."""
        w = self.w
        bad = w.compare("icmp ne", failed, w.int(0, "i32"))
        if not self.factor.lower:
            self._over(0, 1, lambda i: self._over(0, self.numbers.lanes, self._row_store(i, bad)))
            return

        def squares(i: Value) -> None:
            self._over_columns(i, lambda i, j: self._store_square(i, j, bad))
            self._fill(i, add(w, i, w.int(self.square)), bad)

        self._over(0, self.square, squares)

    def _row_store(self, i: Value, bad: Value) -> Callable[[Value], None]:
        def chunk(j: Value) -> None:
            lanes = self.numbers.lanes
            self._write(i, j, self._get(i, j, 0), (bad, self._side(i, j, lanes, "sge")))

        return chunk

    def _store_square(self, i: Value, j: Value, bad: Value) -> None:
        """L[i.., j..] = conj(U[j.., i..]) turned."""
        w, n, size = self.w, self.numbers, self.square
        rows = [self._get(add(w, j, w.int(e)), i, 0, size) for e in range(size)]
        for r, column in enumerate(n.turned(rows)):
            row = add(w, i, w.int(r))
            side = self._side(row, j, size, "sle")
            self._write(row, j, n.conjugate(column), (bad, side))

    def _fill(self, i: Value, beyond: Value, bad: Value) -> None:
        """What lies right of the diagonal square in its rows."""
        w, n = self.w, self.numbers
        nowhere = w.zero(f"<{self.square} x i1>")

        def row(r: Value, _: list[Value]) -> list[Value]:
            zero = n.ring.zero(w, self.square)
            self._over(beyond, self.square, lambda j: self._write(r, j, zero, (bad, nowhere)))
            return []

        reach = w.intrinsic("llvm.smin", "i64", beyond, w.int(self.factor.size))
        self.nest.loop(i, reach, 1, [], row)

    def _side(self, row: Value, j: Value, lanes: int, order: str) -> Value:
        """Lanes of columns j.. that belong to the factor's triangle."""
        w = self.w
        return w.compare(f"icmp {order}", w.counting(j, lanes), w.splat(row, lanes))

    def _read(self, row: Value, j: Value, lanes: int) -> Parts:
        w, f, n = self.w, self.factor, self.numbers
        at = element_address(w, SOURCE, add(w, times(w, row, f.size), j), f.dtype)
        return loaded(w, n.ring, f.dtype, at, lanes, self._columns(j, lanes))

    def _columns(self, j: Value, lanes: int) -> Value | None:
        """Lanes of columns j.. that the matrix has; None: all, always."""
        size = self.factor.size
        return below(self.w, j, size, lanes) if size % lanes else None

    def _write(self, row: Value, j: Value, number: Parts, state: tuple[Value, Value]) -> None:
        """Columns j.. of a row of the result; state: failed, lanes that are the factor's."""
        w, f, n = self.w, self.factor, self.numbers
        bad, side = state
        lanes = side.lanes
        mask = self._columns(j, lanes)
        if f.size % self.square:
            inside = w.splat(w.compare("icmp slt", row, w.int(f.size)), lanes)
            mask = inside if mask is None else w.binary("and", mask, inside)
        zero = n.ring.zero(w, lanes)
        other = self._read(self._inside(row), j, lanes) if f.reports else zero
        number = tuple(w.select(side, x, o) for x, o in zip(number, other, strict=True))
        if not f.reports:
            nan = (w.float(float("nan"), number[0].type), w.zero(number[0].type))
            failed = w.splat(bad, lanes)
            number = tuple(w.select(failed, a, b) for a, b in zip(nan, number, strict=False))
        form = narrowed(w, n.ring, f.dtype, number)
        at = element_address(w, TARGET, add(w, times(w, row, f.size), j), f.dtype)
        written(w, f.dtype, form, at, mask)
