"""Cholesky factors: a = U^H U, some rows of U at a time, all in scratch memory.

    U[k.., j] = root(k..)^-H (a[k.., j] - sum over p < k of conj(U[p, k..]) U[p, j])

A block of rows is computed in tiles of a few vectors: the sum over what is above it stays in
registers, so that each U[p, j] is loaded once for all rows of the block; the first tile holds the
diagonal, whose pivots the other tiles use. A lower factor is the conjugate transpose of U: it is
turned in squares of registers on the way in and out. One unit is one matrix.
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
from hlo.backend.kernels.contraction.problem.ring import Parts, element_address
from hlo.backend.kernels.linear_algebra.cholesky_form import Factor, FactorForm
from hlo.backend.kernels.linear_algebra.cholesky_memory import (
    FAILED,
    SOURCE,
    TARGET,
    UPPER,
    Body,
    FactorMemory,
)
from hlo.backend.kernels.linear_algebra.cholesky_nest import factor_schedule
from hlo.backend.kernels.linear_algebra.groups import GROUP
from hlo.backend.lanes.nest import Nest

PARAMETERS = (UPPER, SOURCE, TARGET, FAILED)
Tile = dict[tuple[int, int], Parts]  # (row of the block, vector) -> its numbers


def cholesky_rows(factor: Factor, form: FactorForm, target: Target) -> Kernel:
    """buffers: a, the factor, the failures if it reports, scratch."""
    w = Writer()
    build = _Build(Nest(w, target), form)
    n, item = factor.size, factor.dtype.item_bytes
    if factor.batch and (n or factor.reports):
        build.write()
    w.ret()
    made = Kernel(
        w.function(has_entry=True),
        max(factor.batch, 1),
        *w.beside,
        functions=tuple(build.functions),
        scratch_bytes=form.scratch_bytes,
        in_place=frozenset({(0, 0)}),
        bytes_moved=2 * factor.batch * n * n * item,
        flops=factor.batch * n * n * n * form.ring.parts**2 // 3,
    )
    return target.shown(made, partial(factor_schedule, form))


class _Build(FactorMemory):
    """The kernel's function, or a part of it."""

    form: FactorForm

    def __init__(self, nest: Nest, form: FactorForm) -> None:
        super().__init__(nest, form)
        self.vectors, self.rows, self.width = form.vectors, form.rows, form.width
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
        build = _Build(Nest(w, self.nest.target), self.form)
        function = as_function(w, PARAMETERS, part(build))
        self.functions.append(function)
        return call(self.w, function, *arguments, type="i32")

    def _loading(self) -> Value:
        self._clear()
        self.load(0, self.factor.size if self.factor.lower else self.form.blocks)
        return FAILED

    def _factoring(self) -> Value:
        (failed,) = self.nest.loop(0, self.form.blocks + GROUP - 1, GROUP, [FAILED], self._group)
        return failed

    def _storing(self) -> Value:
        self.store(0, self.factor.size, FAILED)
        return FAILED

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
                self.set(i, first, v, zero)
            for column in columns:
                self.set(i, w.int(column), 0, zero)
            return []

        self.nest.loop(0, self.form.blocks, 1, [], row)

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
            self.over(first, self.factor.size, self.width, column)
        return self.nest.loop(
            first, end, self.rows, carried, lambda k, state: self._block(first, k, state)
        )

    def _lessened(self, first: Value, j: Value) -> Body:
        def block(k: Value, _: list[Value]) -> list[Value]:
            tile = self._without_known((self.w.int(0), first), k, j)
            for (r, v), number in tile.items():
                self.set(add(self.w, k, self.w.int(r)), j, v, number)
            return []

        return block

    def _block(self, first: Value, k: Value, carried: list[Value]) -> list[Value]:
        """Rows k .. k + rows, those above the group being accounted for."""
        (failed,) = carried
        failed = self._diagonal(k, self._without_known((first, k), k, k), failed)

        def beside(j: Value) -> None:
            self._solved(k, j, self._without_known((first, k), k, j))

        self.over(add(self.w, k, self.w.int(self.width)), self.factor.size, self.width, beside)
        return [failed]

    def _without_known(self, known: tuple[Value, Value], k: Value, j: Value) -> Tile:
        """Rows k.., columns j.. without what a range of rows above accounts for."""
        w, n = self.w, self.numbers
        elements = [(r, v) for r in range(self.rows) for v in range(self.vectors)]
        sums = [self.get(add(w, k, w.int(r)), j, v) for r, v in elements]

        def one(p: Value, carried: list[Value]) -> list[Value]:
            tile = self._tile(elements, carried)
            row = [self.get(p, j, v) for v in range(self.vectors)]
            for r in range(self.rows):
                factor = n.splat(n.conjugate(self.one(p, add(w, k, w.int(r)))), n.lanes)
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
                self.set(row, k, v, tile[r, v])
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
                self.set(row, j, v, tile[r, v])
            for q in range(r + 1, self.rows):
                above = self.one(row, add(w, k, w.int(q)))
                factor = n.splat(n.conjugate(above), n.lanes)
                for v in range(self.vectors):
                    tile[q, v] = n.less_product(tile[q, v], factor, tile[r, v])

    def _root(self, r: int) -> Value:
        """Where the inverse of a pivot of the block lies."""
        return self.w.address(UPPER, self.w.int(self.form.roots_at + r), self.numbers.ring.scalar)
