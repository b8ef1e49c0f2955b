"""Panels: a dense matrix in scratch memory by rows, and some of its columns beside it, by columns.

    memory --load--> rows, padded with zeros  <--turned in squares of registers-->  panel
    rows[i, j..] less the products of i's `width` numbers and as many vectors  (`less_products`)
    the sums of such products over rows (`products`), all in registers

Factorisations by blocks (lu.py, qr.py) spend most of their time in the last two: a tile is a vector
of columns, its `width` vectors stay in registers while the rows come by, and the numbers of a row
that they meet lie in a line of the cache. A panel's own columns are found, compared and added up
along the lanes, which is why they lie turned meanwhile.
Source: blocked right-looking factorisation (Golub, Van Loan 3.2.11, 5.2.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Self

from hlo.backend.ir.arithmetic import add, divided, times
from hlo.backend.ir.called import as_function, call
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.linear_algebra import lapack_symbols
from hlo.backend.kernels.linear_algebra.matrix_lanes import Matrices
from hlo.backend.lanes import masked
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.transposed import transposed
from hlo.backend.loops.schedule import Plan
from hlo.ir import dtype as dt
from hlo.ir.shape import Shape

MOST_SCRATCH_BYTES = 1 << 26
ROWS = 4  # of a tile, side by side: their sums do not wait for each other
ROWS_AT_ONCE = 32  # for which a tile's vectors are loaded once
VECTORS = 4  # of columns whose substitution runs side by side

SCRATCH = Value("%scratch", "ptr")
# What is done to a vector of a panel's column: its first row, lanes that count, what is carried.
Part = Callable[[Value, "Value | None", list[Value]], list[Value]]


class PanelForm(Matrices, frozen=True):
    """Matrices each by itself. width: columns of a panel. has_strips: whether some columns lie
    together, row after row, so that a tile of a large matrix works on one stretch of memory; else
    rows lie one after the other, which short ones are read faster from."""

    width: int
    has_strips: bool = False

    @property
    def least(self) -> int:
        return min(self.rows, self.columns)

    @property
    def panels(self) -> int:
        return -(-self.least // self.width)

    @property
    def reach(self) -> int:
        """Rows or columns up to the end of the last panel."""
        return self.panels * self.width

    @property
    def tile(self) -> int:
        """Columns of a strip."""
        return max(VECTORS * self.lanes, self.width)

    @property
    def stride(self) -> int:
        """Columns with those that fill the last strip, and a tile that begins in it. Of rows: an
        odd number of vectors, so that neighbouring ones lie in different sets of the cache."""
        least = max(self.columns, self.reach)
        if self.has_strips:
            return (least // self.tile + 2) * self.tile
        return (-(-least // self.lanes) + VECTORS | 1) * self.lanes

    @property
    def strip(self) -> int:
        """Columns that lie together."""
        return self.tile if self.has_strips else self.stride

    @property
    def strip_size(self) -> int:
        """Scalars from one strip to the next: a row more than there are, so that the same row of
        two lies in different sets of the cache."""
        return (self.height + 1) * self.strip

    @property
    def height(self) -> int:
        """Rows, with those of zeros that fill a tile or a vector of the panel: one, at least."""
        step = max(self.lanes, self.width if self.has_strips else ROWS)
        return (max(self.rows, self.reach) // step + 1) * step

    @property
    def panel_stride(self) -> int:
        """Scalars from one column of the panel to the next."""
        return (self.height // self.lanes | 1) * self.lanes

    @property
    def item_bytes(self) -> int:
        return self.dtype.item_bytes

    @property
    def integer(self) -> str:
        """As wide as the elements, so that masks agree."""
        return f"i{8 * self.item_bytes}"

    @property
    def square(self) -> int:
        """Rows and columns that are turned at once."""
        return min(self.lanes, 8)

    @property
    def bytes(self) -> int:
        """Of the matrix in scratch memory."""
        return self.stride // self.strip * self.strip_size * self.item_bytes


def form_of(a: Shape, target: Target, *, has_strips: bool = False) -> PanelForm | None:
    """The form of an array of matrices; None where they are empty or no real numbers, and where the
    machine has no vectors."""
    *batch, rows, columns = a.dims
    lanes = target.machine.lanes(a.dtype)
    if a.dtype not in (dt.F32, dt.F64) or not a.size or lanes == 1:
        return None
    width = max(target.machine.registers // 2, lanes)
    return PanelForm(a.dtype, prod(batch), rows, columns, lanes, width, has_strips)


def panel_form(a: Shape, routine: str, target: Target) -> PanelForm | None:
    """The form of an array of matrices; None where they are empty, huge, or no real numbers, and
    where LAPACK is at hand and does as well: of two panels, which are little work, or of twice what
    a core's own cache holds, as it shares them out among threads. routine: LAPACK's, without the
    type's letter.
    """
    form = form_of(a, target)
    if form is None or form.bytes > MOST_SCRATCH_BYTES:
        return None
    is_large = form.bytes > 2 * target.machine.second_cache.bytes
    if (form.panels > 2 and not is_large) or not target.seeks_lapack:
        return form
    letter = "s" if a.dtype is dt.F32 else "d"
    return None if lapack_symbols.has_routine(letter + routine) else form


class Grid:
    """Numbers in scratch memory. stride: scalars from one row to the next."""

    def __init__(self, nest: Nest, form: PanelForm, base: Value, stride: int) -> None:
        self.nest, self.w, self.form, self.base, self.stride = nest, nest.w, form, base, stride

    def at(self, row: Value, column: Value) -> Value:
        index = add(self.w, times(self.w, row, self.stride), column)
        return self.w.address(self.base, index, self.form.scalar)

    def near(self, row: Value, column: Value | None = None) -> Grid:
        """The numbers from a row and a column on."""
        column = column or self.w.int(0)
        return Grid(self.nest, self.form, self.at(row, column), self.stride)

    def get(self, row: Value, column: Value, lanes: int = 0) -> Value:
        """A vector of a row."""
        type = vector_of(self.form.scalar, lanes or self.form.lanes)
        return self.w.load(self.at(row, column), type, self.form.item_bytes)

    def one(self, row: Value, column: Value) -> Value:
        """A number."""
        return self.w.load(self.at(row, column), self.form.scalar, self.form.item_bytes)

    def set(self, row: Value, column: Value, elements: Value) -> None:
        """Store a number, or a vector of a row."""
        self.w.store(elements, self.at(row, column), self.form.item_bytes)

    def turn(self, place: tuple[Value, Value], target: Grid, there: tuple[Value, Value]) -> None:
        """A square's columns become rows of the target."""
        w, size = self.w, self.form.square
        own, other = self.near(*place), target.near(*there)
        rows = [own.get(w.int(e), w.int(0), size) for e in range(size)]
        for e, column in enumerate(transposed(self.nest, rows)):
            other.set(w.int(e), w.int(0), column)


class Strips(Grid):
    """Strips of columns, one after the other."""

    def at(self, row: Value, column: Value) -> Value:
        """Where an element is."""
        w, form = self.w, self.form
        before = times(w, divided(w, column, form.strip), form.strip_size)
        inside = w.binary("and", column, w.int(form.strip - 1))
        index = add(w, before, add(w, times(w, row, form.strip), inside))
        return w.address(self.base, index, form.scalar)


class Panels:
    """A function on a unit's matrix (`rows`) and panel (`panel`, whose rows are columns), which lie
    from an address on. functions: those that it calls."""

    def __init__(self, nest: Nest, form: PanelForm, scratch: Value) -> None:
        self.nest, self.w, self.form, self.scratch = nest, nest.w, form, scratch
        self.size = 0
        kind = Strips if form.has_strips else Grid
        self.rows = kind(nest, form, scratch, form.strip)
        self.size += form.stride // form.strip * form.strip_size
        self.panel = self.grid(form.width + 1, form.panel_stride)  # room for one column more
        self.functions: list[Kernel] = []

    def grid(self, rows: int, stride: int) -> Grid:
        """So many rows behind what there is."""
        w, form = self.w, self.form
        base = w.address(self.scratch, w.int(self.size), form.scalar)
        self.size += rows * stride
        return Grid(self.nest, form, base, stride)

    def again(self, nest: Nest) -> Self:
        """Another function on the same matrix."""
        return type(self)(nest, self.form, SCRATCH)

    def part(
        self, work: Callable[..., Value | None], *arguments: Value, type: str = "void"
    ) -> Value:
        """A part of the work as a function of its own, work(function, *arguments): LLVM's time
        grows faster than a function, and kernels of equal forms share theirs."""
        w = Writer()
        own = [Value(f"%a{n}", argument.type) for n, argument in enumerate(arguments)]
        inner = self.again(Nest(w, self.nest.target))
        function = as_function(w, (SCRATCH, *own), work(inner, *own))
        self.functions += [*inner.functions, function]
        return call(self.w, function, self.scratch, *arguments, type=type)

    def made(self, a: Shape, flops: int, text: str) -> Kernel:
        """The kernel that this is the function of. a: the array of matrices, which a result may
        take the place of; flops: of one matrix; text: what the loops' listing says."""
        w, form = self.w, self.form
        w.ret()
        kernel = Kernel(
            w.function(has_entry=True),
            form.batch,
            *w.beside,
            scratch_bytes=self.size * form.item_bytes,
            in_place=frozenset({(0, 0)}),
            functions=tuple(self.functions),
            bytes_moved=2 * a.size_bytes,
            flops=form.batch * flops,
        )
        text += f": {form.rows} x {form.columns}, batch of {form.batch}, panels of {form.width}"
        return self.nest.target.shown(kernel, lambda: Plan((text,)))

    # -- in and out --------------------------------------------------------------------------

    def load(self, memory: Value, unit: Value, ends: tuple[Value, Value] | None = None) -> None:
        """The unit's matrix from an array of matrices, with zeros around it. ends: of all these
        rows only those between them."""
        w, form = self.w, self.form
        zero = w.zero(form.vector)
        end = -(-form.columns // form.lanes) * form.lanes

        def row(i: Value, _: list[Value]) -> list[Value]:
            self._over_row(memory, unit, i, self._loaded)
            self.over((w.int(end), w.int(form.stride)), lambda j: self.rows.set(i, j, zero))
            return []

        def nothing(i: Value, _: list[Value]) -> list[Value]:
            self.over((w.int(0), w.int(form.stride)), lambda j: self.rows.set(i, j, zero))
            return []

        if ends is None:
            self.nest.loop(0, form.rows, 1, [], row)
            self.nest.loop(form.rows, form.height, 1, [], nothing)
            return
        count = w.int(form.rows)
        self.nest.loop(ends[0], w.intrinsic("llvm.smin", "i64", ends[1], count), 1, [], row)
        self.nest.loop(w.intrinsic("llvm.smax", "i64", ends[0], count), ends[1], 1, [], nothing)

    def store(self, memory: Value, unit: Value, ends: tuple[Value, Value] | None = None) -> None:
        """The unit's matrix to an array of matrices; ends: rows between them alone."""

        def row(i: Value, _: list[Value]) -> list[Value]:
            self._over_row(memory, unit, i, self._stored)
            return []

        first, last = ends or (0, self.form.rows)
        self.nest.loop(first, last, 1, [], row)

    def _over_row(
        self,
        memory: Value,
        unit: Value,
        i: Value,
        move: Callable[[Value, Value, Value, Value | None], None],
    ) -> None:
        """Vectors of row i of the unit's matrix in memory, the last with a mask where it is cut."""
        w, form = self.w, self.form
        start = add(w, times(w, unit, form.rows * form.columns), times(w, i, form.columns))
        first = w.address(memory, start, form.scalar)
        whole = form.columns // form.lanes * form.lanes
        self.over(
            (w.int(0), w.int(whole)),
            lambda j: move(i, j, w.address(first, j, form.scalar), None),
        )
        if left := form.columns - whole:
            j = w.int(whole)
            move(i, j, w.address(first, j, form.scalar), masked.first_of(left, form.lanes))

    def _loaded(self, i: Value, j: Value, address: Value, mask: Value | None) -> None:
        form = self.form
        self.rows.set(i, j, masked.load(self.w, form.vector, address, form.item_bytes, mask))

    def _stored(self, i: Value, j: Value, address: Value, mask: Value | None) -> None:
        masked.store(self.w, self.rows.get(i, j), address, self.form.item_bytes, mask)

    # -- panels ------------------------------------------------------------------------------

    def take(self, k: Value) -> None:
        """The panel from row and column k on."""
        self._over_squares(k, lambda i, q, j: self.rows.turn((i, j), self.panel, (q, i)))

    def give(self, k: Value) -> None:
        """The panel back to its rows."""
        self._over_squares(k, lambda i, q, j: self.panel.turn((q, i), self.rows, (i, j)))

    def _over_squares(self, k: Value, turn: Callable[[Value, Value, Value], None]) -> None:
        """turn(row, column of the panel, column of the matrix) for each square."""
        w, form = self.w, self.form

        def down(i: Value, _: list[Value]) -> list[Value]:
            def across(q: Value, _: list[Value]) -> list[Value]:
                turn(i, q, add(w, k, q))
                return []

            self.nest.loop(0, form.width, form.square, [], across)
            return []

        self.nest.loop(k, w.int(form.height), form.square, [], down)

    def over(self, ends: tuple[Value, Value], body: Callable[[Value], None], step: int = 0) -> None:
        """Vectors between two columns, or rows that far apart."""

        def run(j: Value, _: list[Value]) -> list[Value]:
            body(j)
            return []

        low, high = ends
        if low.integer is not None and high.integer is not None:
            self.nest.loop(low.integer, high.integer, step or self.form.lanes, [], run)
        else:
            self.nest.loop(low, high, step or self.form.lanes, [], run)

    def columns(self, k: Value) -> Grid:
        """The rows from column k on, as far as its strip goes."""
        return Grid(self.nest, self.form, self.rows.at(self.w.int(0), k), self.form.strip)

    def along(
        self,
        k: Value,
        carried: list[Value],
        body: Part,
    ) -> list[Value]:
        """Vectors of rows from k on, down to the last one: body(row, lanes that count, ..), with a
        mask for the first vector, in which k lies somewhere, and None for all others. There is a
        row k, or k is the first behind the last one."""
        w, form = self.w, self.form
        first = w.binary("and", k, w.int(-form.lanes))
        edge = body(first, w.compare("icmp sge", self.numbers(first), self.splat(k)), carried)
        following = add(w, first, w.int(form.lanes))
        return self.nest.loop(
            following, w.int(form.height), form.lanes, edge, lambda i, c: body(i, None, c)
        )

    def numbers(self, first: Value) -> Value:
        """first, first + 1, .. in lanes as wide as the elements."""
        return self.w.counting(self.narrow(first), self.form.lanes)

    def splat(self, row: Value) -> Value:
        """A row's number in such lanes."""
        return self.w.splat(self.narrow(row), self.form.lanes)

    def narrow(self, index: Value) -> Value:
        form = self.form
        return index if form.integer == "i64" else self.w.cast("trunc", index, form.integer)

    # -- tiles -------------------------------------------------------------------------------

    def folded(self, vector: Value, combine: Callable[[Value, Value], Value]) -> Value:
        """The lanes of a vector combined, its halves with each other until one is left."""
        w, lanes = self.w, vector.lanes
        while lanes > 2:
            lanes //= 2
            upper = w.shuffle(vector, None, range(lanes, 2 * lanes))
            vector = combine(w.shuffle(vector, None, range(lanes)), upper)
        return combine(w.extract(vector, 0), w.extract(vector, 1))

    def larger(self, a: Value, b: Value) -> Value:
        """The larger of two numbers none of which is a NaN. (LLVM's fmax is a call of the C
        library's on some machines.)"""
        return self.w.select(self.w.compare("fcmp ogt", a, b), a, b)

    def in_blocks(self, first: Value, body: Callable[[Value, Value], None]) -> None:
        """body(row, end) for some rows at a time, from one on: those for which a tile's vectors are
        loaded once, while the rows are near. Ends are multiples of a tile's rows."""
        w = self.w
        end = w.int(-(-self.form.rows // ROWS) * ROWS)

        def some(i: Value) -> None:
            following = add(w, i, w.int(ROWS_AT_ONCE))
            body(i, w.intrinsic("llvm.smin", "i64", following, end))

        self.over((first, add(w, end, w.int(ROWS_AT_ONCE - 1))), some, ROWS_AT_ONCE)

    def product(self, factor: Value, other: Value, total: Value) -> Value:
        """total + factor other, fused."""
        return self.w.intrinsic("llvm.fma", total.type, factor, other, total)

    def splat_of(self, grid: Grid, row: Value, column: Value) -> Value:
        """A number in every lane."""
        return self.w.splat(grid.one(row, column), self.form.lanes)

    def products(
        self,
        ends: tuple[Value, Value],
        factors: tuple[Grid, Value],
        vector: Callable[[Value], Value],
        start: list[Value],
    ) -> list[Value]:
        """For each q of the width: start[q] and the sum of factors[i - n, q] vector(i) over rows i;
        factors: where they lie, and n."""
        w = self.w
        grid, shift = factors

        def row(i: Value, sums: list[Value]) -> list[Value]:
            x, own = vector(i), grid.near(w.binary("sub", i, shift))
            return [
                self.product(self.splat_of(own, w.int(0), w.int(q)), x, total)
                for q, total in enumerate(sums)
            ]

        return self.nest.loop(*ends, 1, start, row)

    def less_products(
        self,
        ends: tuple[Value, Value],
        factors: tuple[Grid, Value],
        j: Value,
        vectors: Sequence[Value],
    ) -> None:
        """rows[i, j..] less factors[i - n, q] vectors[q], for rows i, some at a time."""
        w = self.w
        grid, shift = factors
        negative = [w.unary("fneg", v) for v in vectors]
        columns = self.columns(j)

        def some(i: Value, _: list[Value]) -> list[Value]:
            tile, own = columns.near(i), grid.near(w.binary("sub", i, shift))
            rows = [w.int(r) for r in range(ROWS)]
            sums = [tile.get(r, w.int(0)) for r in rows]
            for q, vector in enumerate(negative):
                for n, r in enumerate(rows):
                    sums[n] = self.product(self.splat_of(own, r, w.int(q)), vector, sums[n])
            for r, total in zip(rows, sums, strict=True):
                tile.set(r, w.int(0), total)
            return []

        self.nest.loop(*ends, ROWS, [], some)
