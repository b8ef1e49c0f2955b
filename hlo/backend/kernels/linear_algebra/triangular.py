"""Triangular systems: op(a) x = b or x op(a) = b, for panels of right-hand sides at once.

    x[i] = (b[i] - sum over p < i of m[i, p] x[p]) / m[i, i]

Every form is this one after a change of strides: m reads a transposed, conjugated or from its last
row backwards. Right-hand sides are lanes: a panel of a few vectors is copied to scratch memory and
solved there, some rows of it at a time in registers, so that each x[p] is read once for all of
them. Panels never meet: any split of the units gives the same bits.
Source: the blocked forward substitution of any text on dense linear algebra (Golub, Van Loan 3.1).
"""

from __future__ import annotations

from functools import partial

from hlo.backend.ir.arithmetic import add, split_index, times
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.values import every_lane
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.ring import (
    Parts,
    element_address,
    gathered,
    loaded,
    narrowed,
    scattered,
    written,
)
from hlo.backend.kernels.linear_algebra.matrices import Numbers
from hlo.backend.kernels.linear_algebra.triangular_form import System, SystemForm, system_of
from hlo.backend.kernels.linear_algebra.triangular_nest import triangular_schedule
from hlo.backend.lanes.masked import below
from hlo.backend.lanes.nest import Nest
from hlo.ir.instruction import Instruction
from hlo.ops.linear_algebra import TriangularSolveAttributes

MOST_SCRATCH_BYTES = 1 << 23


def triangular_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a triangular-solve."""
    a, b = (o.shape for o in instruction.operands)
    attrs = TriangularSolveAttributes.of(instruction.attributes)
    system = system_of(
        a,
        b,
        on_left=attrs.left_side,
        lower=attrs.lower,
        is_unit=attrs.unit_diagonal,
        transpose={"NO_TRANSPOSE": "N", "TRANSPOSE": "T", "ADJOINT": "C"}[attrs.transpose_a],
    )
    return solve_kernel(system, target)


def solve_kernel(system: System, target: Target) -> Kernel | None:
    """buffers: a, b, x, scratch. None where the panels are too long for scratch memory."""
    w = Writer()
    solve = _Solve(Nest(w, target), system)
    if solve.form.scratch_bytes > MOST_SCRATCH_BYTES:
        return None
    units = solve.form.panels * system.batch
    if not system.size or not units:
        w, units = Writer(), 0
    else:
        solve.write()
    w.ret()
    work = system.size * system.size * system.count * system.batch
    item = system.dtype.item_bytes
    made = Kernel(
        w.function(has_entry=True),
        max(units, 1),
        *w.beside,
        scratch_bytes=solve.form.scratch_bytes,
        in_place=frozenset({(1, 0)}),
        bytes_moved=system.batch * system.size * (system.size + 2 * system.count) * item,
        flops=work * solve.numbers.parts**2,
    )
    return target.shown(made, partial(triangular_schedule, solve.form))


class _Solve:
    """The kernel: units are (system, panel)."""

    def __init__(self, nest: Nest, system: System) -> None:
        self.nest = nest
        self.w = nest.w
        self.system = system
        self.numbers = Numbers(nest, system.dtype)
        self.form = form = SystemForm(system, self.numbers.ring)
        self.lanes, self.vectors, self.width = form.lanes, form.vectors, form.width

    def write(self) -> None:
        w, s = self.w, self.system
        a, b, x, self.panel = (w.buffer_address(k) for k in range(4))

        def unit(u: Value, _: list[Value]) -> list[Value]:
            batch, panel = split_index(w, u, (1 << 40, self.form.panels))
            matrix = add(w, times(w, batch, s.size * s.size), w.int(s.origin))
            self.matrix = element_address(w, a, matrix, s.dtype)
            right = add(w, times(w, batch, s.size * s.count), w.int(s.first))
            self.start = times(w, panel, self.width)
            self.masks = [self._mask(v) for v in range(self.vectors)]
            self._load(element_address(w, b, right, s.dtype))
            self._solve()
            self._store(element_address(w, x, right, s.dtype))
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)

    def _mask(self, v: int) -> Value | None:
        """Lanes of vector v that are right-hand sides; None: all, in every panel."""
        if not self.form.is_masked:
            return None
        first = add(self.w, self.start, self.w.int(v * self.lanes))
        return below(self.w, first, self.system.count, self.lanes)

    # -- panels ----------------------------------------------------------------------------------

    def _load(self, b: Value) -> None:
        """The panel's right-hand sides into scratch memory."""
        w, s, n = self.w, self.system, self.numbers

        def row(i: Value, _: list[Value]) -> list[Value]:
            for v in range(self.vectors):
                base, offsets = self._place(b, i, v)
                if offsets is None:
                    x = loaded(w, n.ring, s.dtype, base, self.lanes, self.masks[v])
                else:
                    x = gathered(w, n.ring, s.dtype, base, offsets)
                self._set(i, v, x)
            return []

        self.nest.loop(0, s.size, 1, [], row)

    def _store(self, x: Value) -> None:
        w, s, n = self.w, self.system, self.numbers

        def row(i: Value, _: list[Value]) -> list[Value]:
            for v in range(self.vectors):
                base, offsets = self._place(x, i, v)
                form = narrowed(w, n.ring, s.dtype, self._get(i, v))
                if offsets is None:
                    written(w, s.dtype, form, base, self.masks[v])
                else:
                    mask = self.masks[v] or every_lane(self.lanes)
                    scattered(w, s.dtype, form, base, offsets, mask)
            return []

        self.nest.loop(0, s.size, 1, [], row)

    def _place(self, base: Value, i: Value, v: int) -> tuple[Value, Value | None]:
        """Where unknown i of vector v's systems lies: an address, offsets unless neighbours."""
        w, s = self.w, self.system
        row = element_address(w, base, times(w, i, s.step), s.dtype)
        first = add(w, self.start, w.int(v * self.lanes))
        if s.across == 1:
            return element_address(w, row, first, s.dtype), None
        number = w.counting(first, self.lanes)
        if self.masks[v] is not None:
            last = w.splat(w.int(s.count - 1), self.lanes)
            number = w.intrinsic("llvm.smin", number.type, number, last)
        return row, w.binary("mul", number, w.splat(w.int(s.across), self.lanes))

    def _index(self, i: Value, v: int) -> Value:
        w, n = self.w, self.numbers
        return add(w, times(w, i, self.width * n.parts), w.int(v * self.lanes * n.parts))

    def _get(self, i: Value, v: int) -> Parts:
        return self.numbers.planes(self.panel, self._index(i, v), self.lanes, self.lanes)

    def _set(self, i: Value, v: int, x: Parts) -> None:
        self.numbers.set_planes(self.panel, self._index(i, v), self.lanes, x)

    # -- substitution ----------------------------------------------------------------------------

    def _solve(self) -> None:
        w, size, form = self.w, self.system.size, self.form
        whole = form.whole

        def block(k: Value, _: list[Value]) -> list[Value]:
            self._block(k, form.rows)
            return []

        if whole == form.rows:
            self._block(w.int(0), whole)
        else:
            self.nest.loop(0, whole, form.rows, [], block)
        if size > whole:
            self._block(w.int(whole), size - whole)

    def _block(self, k: Value, rows: int) -> None:
        """Unknowns k .. k + rows: those before are taken away, then they solve each other."""
        w, n = self.w, self.numbers
        heads = [self._row(add(w, k, w.int(r))) for r in range(rows)]
        elements = [(r, v) for r in range(rows) for v in range(self.vectors)]
        sums = [self._get(add(w, k, w.int(r)), v) for r, v in elements]
        flat = [part for number in sums for part in number]

        def known(p: Value, carried: list[Value]) -> list[Value]:
            totals = dict(zip(elements, _grouped(carried, n.parts), strict=True))
            x = [self._get(p, v) for v in range(self.vectors)]
            for r in range(rows):
                m = n.splat(self._element(heads[r], p), self.lanes)
                for v in range(self.vectors):
                    totals[r, v] = n.less_product(totals[r, v], m, x[v])
            return [part for number in totals.values() for part in number]

        if k.integer != 0:
            flat = self.nest.loop(0, k, 1, flat, known)
        self._triangle(k, heads, dict(zip(elements, _grouped(flat, n.parts), strict=True)))

    def _triangle(self, k: Value, heads: list[Value], totals: dict[tuple[int, int], Parts]) -> None:
        """The rows of a block among themselves."""
        w, n, rows = self.w, self.numbers, len(heads)
        for r in range(rows):
            at = add(w, k, w.int(r))
            for v in range(self.vectors):
                if not self.system.is_unit:
                    totals[r, v] = n.quotient(totals[r, v], self._element(heads[r], at))
                self._set(at, v, totals[r, v])
            for q in range(r + 1, rows):
                m = n.splat(self._element(heads[q], at), self.lanes)
                for v in range(self.vectors):
                    totals[q, v] = n.less_product(totals[q, v], m, totals[r, v])

    def _row(self, i: Value) -> Value:
        """The address of m[i, 0]."""
        s = self.system
        return element_address(self.w, self.matrix, times(self.w, i, s.row), s.dtype)

    def _element(self, row: Value, p: Value) -> Parts:
        w, s, n = self.w, self.system, self.numbers
        at = element_address(w, row, times(w, p, s.column), s.dtype)
        number = loaded(w, n.ring, s.dtype, at, 1)
        return n.conjugate(number) if s.conjugates else number


def _grouped(values: list[Value], parts: int) -> list[Parts]:
    return [tuple(values[k : k + parts]) for k in range(0, len(values), parts)]
