"""Fourier transforms of lines, a vector of lines at once.

    for each vector of lines:  memory -> [turned] -> passes between two scratch buffers -> memory

Lanes are lines, so that every pass is plain vector arithmetic with scalar roots of unity, whatever
the length. Lines that lie one after the other go through registers in squares, turned. Passes sort
by themselves (Stockham); they are functions, so that a program compiles them once. Vectors of
lines never meet: any split of the units gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, split_index, times
from hlo.backend.ir.called import as_function, call
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.ring import Parts, loaded, written
from hlo.backend.kernels.fourier.butterflies import Complex, conjugated, exchanged
from hlo.backend.kernels.fourier.lines_nest import lines_schedule
from hlo.backend.kernels.fourier.passes import call_pass, call_square
from hlo.backend.kernels.fourier.plan import (
    LARGEST_FACTOR,
    Lines,
    Side,
    chirp,
    chirp_spectrum,
    factors,
    flops_each,
    roots,
)
from hlo.backend.kernels.fourier.prime_pass import pairs_together
from hlo.backend.kernels.fourier.tables import constant_table
from hlo.backend.kernels.linear_algebra.matrices import Numbers
from hlo.backend.lanes.masked import below
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.transposed import transposed

Fetch = Callable[[Value], Parts]
Put = Callable[[Value, Parts], None]


def lines_kernel(lines: Lines, target: Target) -> Kernel:
    """buffers: source, target, scratch."""
    w = Writer()
    build = _Build(Nest(w, target), lines)
    build.write()
    w.ret()
    count = lines.outer * lines.lanes * lines.size
    made = Kernel(
        w.function(has_entry=True),
        lines.outer * build.groups,
        *w.beside,
        scratch_bytes=build.scratch_bytes,
        functions=tuple(build.functions.values()),
        bytes_moved=2 * count * lines.complex.item_bytes,
        flops=count * flops_each(lines.passed),
    )
    together = pairs_together(build.numbers.ring.registers)
    sizes = build.lanes, build.slots, build.scratch_bytes, together
    return target.shown(made, partial(lines_schedule, lines, *sizes))


def scratch_bytes(lines: Lines, target: Target) -> int:
    """What the kernel of these lines needs for one thread."""
    return _Build(Nest(Writer(), target), lines).scratch_bytes


class _Build:
    """The kernel's text. passed: the length of the passes, a convolution's where inner is rough."""

    def __init__(self, nest: Nest, lines: Lines) -> None:
        self.nest = nest
        self.w = nest.w
        self.lines = lines
        self.functions: dict[str, Kernel] = {}
        self.numbers = Numbers(nest, lines.complex)
        self.complex = Complex(nest.w, fused=self.numbers.ring.fused)
        self.lanes = self.numbers.lanes
        self.groups = -(-lines.lanes // self.lanes)
        self.folds, self.inner = lines.folds, lines.inner
        self.passed = lines.passed
        self.slots = max(self.passed, self.inner + 1) + self.lanes
        scalar = self.numbers.ring.scalar_bytes
        self.scratch_bytes = 2 * self.slots * 2 * self.lanes * scalar

    def write(self) -> None:
        w, n = self.w, self.lines
        source, target, scratch = (w.buffer_address(k) for k in range(3))
        self._set_scratch(scratch)

        def unit(u: Value, _: list[Value]) -> list[Value]:
            outer, group = split_index(w, u, (1 << 40, self.groups))
            self._set_lines(times(w, group, self.lanes))
            self._run(self._moved(source, outer, n.source), self._moved(target, outer, n.target))
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)

    def _set_scratch(self, scratch: Value) -> None:
        self.buffers = (scratch, self._scalar(scratch, self.w.int(self.slots * 2 * self.lanes)))

    def _set_lines(self, first: Value) -> None:
        """first: of the vector of lines; valid: the lanes that have one, None for all."""
        self.first, self.valid = first, None
        if self.lines.lanes % self.lanes:
            self.valid = below(self.w, first, self.lines.lanes, self.lanes)

    def _apart(self, base: Value, body: Callable[[_Build, Value], None]) -> None:
        """Code for one vector of lines as a function: LLVM's time grows faster than a function."""
        arguments = (self.buffers[0], base, self.first)
        scratch, memory, first = (
            Value(f"%{name}", a.type)
            for name, a in zip(("scratch", "base", "first"), arguments, strict=True)
        )
        build = _Build(Nest(Writer(), self.nest.target), self.lines)
        build._set_scratch(scratch)
        build._set_lines(first)
        body(build, memory)
        function = as_function(build.w, (scratch, memory, first))
        self.functions[function.text] = function
        call(self.w, function, *arguments)

    def _moved(self, base: Value, outer: Value, side: Side) -> Value:
        return self._scalar(base, times(self.w, outer, side.outer))

    def _scalar(self, base: Value, index: Value) -> Value:
        """base + index scalars."""
        if index.integer == 0:
            return base
        return self.w.address(base, index, self.numbers.ring.scalar)

    def _run(self, source: Value, target: Value) -> None:
        """One vector of lines."""
        n = self.lines
        if n.kind == "RFFT":
            self._real(source, target)
        elif n.kind == "IRFFT":
            self._to_real(source, target)
        else:
            self._load(source, n.source, n.size)
            self._store(target, n.target, n.size, self._transform(inverse=n.is_inverse))

    # -- memory ----------------------------------------------------------------------------------

    def _load(self, base: Value, side: Side, count: int) -> None:
        """Elements of the lines into the first buffer."""
        if not side.is_beside:
            self._load_turned(base, side, count)
            return
        start = self._scalar(base, times(self.w, self.first, side.lane))
        put = self._put(0)

        def load(e: Value) -> None:
            at = self._scalar(start, times(self.w, e, side.step))
            ring = self.numbers.ring
            put(e, loaded(self.w, ring, self.lines.complex, at, self.lanes, self.valid))

        self._each(0, count, load)

    def _store(self, base: Value, side: Side, count: int, buffer: int) -> None:
        """Elements of the lines from a buffer, scaled."""
        if not side.is_beside:
            self._store_turned(base, side, count, buffer)
            return
        start = self._scalar(base, times(self.w, self.first, side.lane))
        fetch = self._fetch(buffer)

        def store(e: Value) -> None:
            number = self._twisted(e, tuple(map(self._scaled, fetch(e))))
            at = self._scalar(start, times(self.w, e, side.step))
            written(self.w, self.lines.complex, number, at, self.valid)

        self._each(0, count, store)

    def _scaled(self, part: Value) -> Value:
        scale = self.lines.scale
        if scale == 1.0:
            return part
        return self.w.binary("fmul", part, self.w.float(scale, part.type))

    def _twisted(self, e: Value, number: Parts) -> Parts:
        """The number times the root that the second half of a long transform expects."""
        n = self.lines
        if not n.total:
            return number
        root = self._twist_of_two(e) if n.is_far else self._twist(e)
        if n.is_inverse:
            root = (root[0], self.w.unary("fneg", root[1]))
        return self.complex.times(number, root)

    def _twist(self, e: Value) -> Parts:
        n, lanes = self.lines, self.groups * self.lanes
        k = np.arange(n.size)[:, None] * np.arange(lanes)[None, :]
        name = f"twist.{n.total}.{n.size}"
        table = self._table(name, lambda: roots(k, n.total), planes=True)
        index = add(self.w, times(self.w, e, lanes), self.first)
        return self.numbers.planes(table, index, n.size * lanes, self.lanes)

    def _twist_of_two(self, e: Value) -> Parts:
        """The root of the vector's first line times that of the lane's distance from it."""
        n, w, groups = self.lines, self.w, self.groups
        k = np.arange(n.size)[:, None]
        name = f"twist.{n.total}.{n.size}.{self.lanes}"
        first = self._table(
            f"{name}.lines", lambda: roots(k * self.lanes * np.arange(groups)[None, :], n.total)
        )
        apart = self._table(
            f"{name}.lanes", lambda: roots(k * np.arange(self.lanes)[None, :], n.total), planes=True
        )
        group = w.binary("udiv", self.first, w.int(self.lanes))
        index, plane = times(w, e, self.lanes), n.size * self.lanes
        near = self.numbers.planes(apart, index, plane, self.lanes)
        return self.complex.times(near, self._entry(first, add(w, times(w, e, groups), group)))

    def _rows(self, base: Value, side: Side) -> list[Value]:
        """Where each lane's line begins; lanes beyond the last repeat it."""
        w, rows = self.w, []
        for lane in range(self.lanes):
            index = add(w, self.first, w.int(lane))
            if self.lines.lanes % self.lanes:
                index = w.intrinsic("llvm.smin", "i64", index, w.int(self.lines.lanes - 1))
            rows.append(self._scalar(base, times(w, index, side.lane)))
        return rows

    def _squares(self, side: Side, count: int, body: Callable[[Value, Value | None], None]) -> None:
        """body(scalar index, mask) for squares of numbers along the lines."""
        scalars = count * side.parts

        def square(c: Value, _: list[Value]) -> list[Value]:
            body(c, below(self.w, c, scalars, self.lanes) if scalars % self.lanes else None)
            return []

        self.nest.loop(0, scalars + self.lanes - 1, self.lanes, [], square)

    def _is_whole(self, side: Side, count: int) -> bool:
        """Whether all squares are full ones of whole numbers."""
        counts = (self.lines.lanes, count * side.parts)
        return side.parts == 2 and not any(n % self.lanes for n in counts)

    def _whole_squares(self, base: Value, side: Side, count: int, buffer: int | None) -> None:
        """Full squares from memory to the first buffer, or from a buffer to memory."""
        w = self.w
        lines = self._scalar(base, times(w, self.first, side.lane))

        def square(c: Value, _: Value | None) -> None:
            memory = (self._scalar(lines, c), w.int(side.lane))
            scratch = (self._part(buffer or 0, side, c, 0), w.int(self.lanes))
            addresses = (*memory, *scratch) if buffer is None else (*scratch, *memory)
            scale = 1.0 if buffer is None else self.lines.scale
            made = call_square(w, self.nest.target, self.lines.complex, addresses, scale)
            self.functions[made.text] = made

        self._squares(side, count, square)

    def _load_turned(self, base: Value, side: Side, count: int) -> None:
        """Lines of neighbouring elements into the first buffer: numbers, or real parts alone."""
        if self._is_whole(side, count):
            self._whole_squares(base, side, count, None)
        else:
            self._apart(base, lambda build, at: build._load_squares(at, side, count))

    def _load_squares(self, base: Value, side: Side, count: int) -> None:
        """Squares that masks cut."""
        w, ring = self.w, self.numbers.ring
        rows = self._rows(base, side)
        component = self.lines.complex.component

        def square(c: Value, mask: Value | None) -> None:
            addresses = [self._scalar(row, c) for row in rows]
            read = [loaded(w, ring, component, at, self.lanes, mask)[0] for at in addresses]
            zero = w.zero(ring.vector)
            for k, vector in enumerate(transposed(self.nest, read)):
                at = self._part(0, side, c, k)
                w.store(vector, at, ring.scalar_bytes)
                if side.parts == 1:
                    beside = w.address(at, w.int(self.lanes), ring.scalar)
                    w.store(zero, beside, ring.scalar_bytes)

        self._squares(side, count, square)

    def _store_turned(self, base: Value, side: Side, count: int, buffer: int) -> None:
        """A buffer's numbers, or their real parts, scaled, to lines of neighbouring elements."""
        if self._is_whole(side, count):
            self._whole_squares(base, side, count, buffer)
        else:
            self._apart(base, lambda build, at: build._store_squares(at, side, count, buffer))

    def _store_squares(self, base: Value, side: Side, count: int, buffer: int) -> None:
        """Squares that masks cut."""
        w, ring = self.w, self.numbers.ring
        rows = self._rows(base, side)
        component = self.lines.complex.component

        def square(c: Value, mask: Value | None) -> None:
            addresses = [self._part(buffer, side, c, k) for k in range(self.lanes)]
            vectors = [self._scaled(w.load(at, ring.vector, ring.scalar_bytes)) for at in addresses]
            for lane, row in enumerate(transposed(self.nest, vectors)):
                kept = self._kept(lane, mask)
                written(w, component, (row,), self._scalar(rows[lane], c), kept)

        self._squares(side, count, square)

    def _part(self, buffer: int, side: Side, c: Value, k: int) -> Value:
        """Where scalar c + k of the lines lies: parts of numbers alternate."""
        w, step = self.w, 2 * self.lanes // side.parts
        first = self._scalar(self.buffers[buffer], times(w, c, step))
        return self._scalar(first, w.int(step * k))

    def _kept(self, lane: int, mask: Value | None) -> Value | None:
        """The mask of a row: empty where its lane has no line."""
        w = self.w
        if self.valid is None or lane == 0:
            return mask
        there = w.splat(w.extract(self.valid, lane), self.lanes)
        return there if mask is None else w.binary("and", mask, there)

    # -- scratch ---------------------------------------------------------------------------------

    def _fetch(self, buffer: int) -> Fetch:
        return lambda e: self.numbers.planes(
            self.buffers[buffer], times(self.w, e, 2 * self.lanes), self.lanes, self.lanes
        )

    def _put(self, buffer: int) -> Put:
        return lambda e, number: self.numbers.set_planes(
            self.buffers[buffer], times(self.w, e, 2 * self.lanes), self.lanes, number
        )

    def _each(self, low: int, high: int, body: Callable[[Value], None]) -> None:
        def run(e: Value, _: list[Value]) -> list[Value]:
            body(e)
            return []

        self.nest.loop(low, high, 1, [], run)

    # -- transforms ------------------------------------------------------------------------------

    def _transform(self, *, inverse: bool) -> int:
        """Transform the first buffer's numbers: the buffer that holds the result.

        The inverse is the transform of numbers whose parts are exchanged.
        """
        if self.passed == self.inner:
            return self._passes(self.inner, inverse=inverse)
        return self._convolved(inverse=inverse)

    def _passes(self, n: int, *, inverse: bool = False) -> int:
        """Stockham's passes, to and fro between the buffers from the first one on."""
        w, radices = self.w, factors(n)
        done, left = 1, n
        for number, r in enumerate(radices):
            left //= r
            x = self._parts(number % 2, exchanged=inverse and number == 0)
            y = self._parts((number + 1) % 2, exchanged=inverse and left == 1)
            reads = left > 1 or r > LARGEST_FACTOR
            table = self._roots(n) if reads else Value("null", "ptr")
            arguments = (*x, *y, table, w.int(done), w.int(left))
            made = call_pass(w, self.nest.target, self.lines.complex, r, arguments)
            self.functions[made.text] = made
            done *= r
        return len(radices) % 2

    def _parts(self, buffer: int, *, exchanged: bool) -> tuple[Value, Value]:
        """The first part of a buffer's first element, scalars from there to the second part."""
        if not exchanged:
            return self.buffers[buffer], self.w.int(self.lanes)
        return self._scalar(self.buffers[buffer], self.w.int(self.lanes)), self.w.int(-self.lanes)

    def _roots(self, n: int) -> Value:
        return self._table(f"roots.{n}", lambda: roots(np.arange(n), n))

    def _root(self, n: int, exponent: Value) -> Parts:
        """e^(-2 pi i exponent / n) in all lanes."""
        return self._entry(self._roots(n), exponent)

    def _entry(self, table: Value, index: Value) -> Parts:
        w, ring = self.w, self.numbers.ring
        at = self._scalar(table, times(w, index, 2))
        found = loaded(w, ring, self.lines.complex, at, 1)
        return tuple(w.splat(part, self.lanes) for part in found)

    def _table(self, name: str, values: Callable[[], np.ndarray], *, planes: bool = False) -> Value:
        return constant_table(self.numbers, name, values, planes=planes)

    def _convolved(self, *, inverse: bool) -> int:
        """Bluestein: a transform of any length n as a convolution with a chirp, of length m."""
        n, m, w, c = self.inner, self.passed, self.w, self.complex
        chirps = self._table(f"chirp.{n}", lambda: chirp(n))
        spectrum = self._table(f"spectrum.{n}.{m}", lambda: chirp_spectrum(n, m))
        fetch, into = self._fetch(0), self._put(0)
        zero = self.numbers.ring.zero(w, self.lanes)

        def turned(number: Parts, table: Value, e: Value, *, exchange: bool) -> Parts:
            return c.times(exchanged(number) if exchange else number, self._entry(table, e))

        self._each(0, n, lambda e: into(e, turned(fetch(e), chirps, e, exchange=inverse)))
        self._each(n, m, lambda e: into(e, zero))
        last = self._passes(m)
        back = self._fetch(last)
        # the second transform is an inverse one: its parts are exchanged on the way in and out
        self._each(0, m, lambda e: into(e, turned(back(e), spectrum, e, exchange=False)))
        last = self._passes(m, inverse=True)
        back, put = self._fetch(last), self._put(last)

        def give(e: Value) -> None:
            number = turned(back(e), chirps, e, exchange=False)
            put(e, exchanged(number) if inverse else number)

        self._each(0, n, give)
        return last

    # -- real numbers ----------------------------------------------------------------------------

    def _real(self, source: Value, target: Value) -> None:
        """Half the transform of real numbers; an even count as half as many complex ones."""
        n, side = self.lines, self.lines.source
        if self.folds:
            side = replace(side, step=2, parts=2)
        self._load_turned(source, side, self.inner)
        last = self._transform(inverse=False)
        if self.folds:
            self._unfolded(self._fetch(last), self._put(last))
        self._store_turned(target, n.target, n.size // 2 + 1, last)

    def _unfolded(self, fetch: Fetch, put: Put) -> None:
        """x = e + w^k o of z[k] = e[k] + i o[k], by pairs k, h - k. Works in place."""
        w, c, h = self.w, self.complex, self.inner
        (first, second), zero = fetch(w.int(0)), w.zero(self.numbers.ring.vector)

        def pair(k: Value) -> None:
            mirror = w.binary("sub", w.int(h), k)
            z, y = fetch(k), conjugated(w, fetch(mirror))
            even = c.scaled(c.add(z, y), 0.5)
            odd = c.turned(c.scaled(c.subtract(z, y), 0.5))
            odd = c.times(odd, self._root(self.lines.size, k))
            put(k, c.add(even, odd))
            put(mirror, conjugated(w, c.subtract(even, odd)))

        put(w.int(h), (w.binary("fsub", first, second), zero))
        put(w.int(0), (w.binary("fadd", first, second), zero))
        self._each(1, h // 2 + 1, pair)

    def _to_real(self, source: Value, target: Value) -> None:
        """Real numbers of half a transform; the parts that symmetry makes zero are not read."""
        n, side = self.lines, self.lines.target
        self._load_turned(source, n.source, n.size // 2 + 1)
        if self.folds:
            self._folded(self._fetch(0), self._put(0))
            side = replace(side, step=2, parts=2)
        else:
            self._mirrored(self._fetch(0), self._put(0))
        self._store_turned(target, side, self.inner, self._transform(inverse=True))

    def _folded(self, fetch: Fetch, put: Put) -> None:
        """z[k] = e[k] + i o[k], twice over: the scale counts on it. Works in place."""
        w, c, h = self.w, self.complex, self.inner
        first, last = fetch(w.int(0))[0], fetch(w.int(h))[0]

        def pair(k: Value) -> None:
            mirror = w.binary("sub", w.int(h), k)
            x, y = fetch(k), conjugated(w, fetch(mirror))
            even = c.add(x, y)
            root = conjugated(w, self._root(self.lines.size, k))
            odd = c.times(c.subtract(x, y), root)
            put(k, c.subtract_turned(even, odd))
            put(mirror, conjugated(w, c.add_turned(even, odd)))

        put(w.int(0), (w.binary("fadd", first, last), w.binary("fsub", first, last)))
        self._each(1, h // 2 + 1, pair)

    def _mirrored(self, fetch: Fetch, put: Put) -> None:
        """The other half of an odd transform. Works in place."""
        w, n = self.w, self.lines.size
        first = fetch(w.int(0))[0]
        put(w.int(0), (first, w.zero(first.type)))

        def mirror(k: Value) -> None:
            number = fetch(k)
            put(k, number)
            put(w.binary("sub", w.int(n), k), conjugated(w, number))

        self._each(1, n // 2 + 1, mirror)
