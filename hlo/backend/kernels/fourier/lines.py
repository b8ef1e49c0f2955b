"""Fourier transforms of lines, a vector of lines at once.

    for each vector of lines:  memory -> [turned] -> passes between two scratch buffers -> memory

Lanes are lines, so that every pass is plain vector arithmetic with scalar roots of unity, whatever
the length. Lines that are neighbours in memory are read and written by the first and the last pass;
lines that lie one after the other go through registers in squares, turned. Passes sort by
themselves (Stockham). Vectors of lines never meet: any split of the units gives the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from hlo.backend.codegen.nest import Nest
from hlo.backend.codegen.permuted import permuted
from hlo.backend.codegen.target import Target
from hlo.backend.codegen.writer import Value, Writer
from hlo.backend.kernels.contraction.loops import add, buffer_address, split_index, times
from hlo.backend.kernels.contraction.ring import Parts, loaded, written
from hlo.backend.kernels.fourier.butterflies import Complex, butterfly
from hlo.backend.kernels.fourier.plan import (
    Lines,
    Side,
    chirp,
    chirp_spectrum,
    convolution_length,
    factors,
    is_smooth,
    roots,
)
from hlo.backend.kernels.kernel import Kernel
from hlo.backend.kernels.linear_algebra.matrices import Numbers, counting

Fetch = Callable[[Value], Parts]
Put = Callable[[Value, Parts], None]
_BYTES = tuple(f"\\{byte:02X}" for byte in range(256))  # as LLVM writes them in a constant


def lines_kernel(lines: Lines, target: Target) -> Kernel:
    """buffers: source, target, scratch."""
    w = Writer()
    build = _Build(Nest(w, target), lines)
    build.write()
    w.emit("ret void")
    head = "define void @KERNEL(ptr %buffers, i64 %begin, i64 %end) nounwind {\nentry:"
    count = lines.outer * lines.lanes * lines.size
    return Kernel(
        "\n".join([head, *w.lines, "}"]),
        lines.outer * build.groups,
        tuple(w.declarations.values()),
        tuple(w.globals.values()),
        scratch_bytes=build.scratch_bytes,
        bytes_moved=2 * count * lines.complex.item_bytes,
        flops=5 * count * max(1, lines.size.bit_length()),
    )


def scratch_bytes(lines: Lines, target: Target) -> int:
    """What the kernel of these lines needs for one thread."""
    return _Build(Nest(Writer(), target), lines).scratch_bytes


class _Build:
    """The kernel's text. passed: the length of the passes, a convolution's where inner is rough."""

    def __init__(self, nest: Nest, lines: Lines) -> None:
        self.nest = nest
        self.w = nest.w
        self.lines = lines
        self.numbers = Numbers(nest, lines.complex)
        self.complex = Complex(nest.w, fused=self.numbers.ring.fused)
        self.lanes = self.numbers.lanes
        self.groups = -(-lines.lanes // self.lanes)
        self.folds, self.inner = lines.folds, lines.inner
        self.passed = self.inner if is_smooth(self.inner) else convolution_length(self.inner)
        self.slots = max(self.passed, self.inner + 1) + self.lanes
        scalar = self.numbers.ring.scalar_bytes
        self.scratch_bytes = 2 * self.slots * 2 * self.lanes * scalar

    def write(self) -> None:
        w, n = self.w, self.lines
        source, target, scratch = (buffer_address(w, k) for k in range(3))
        half = self.slots * 2 * self.lanes
        self.buffers = (scratch, w.address(scratch, w.int(half), self.numbers.ring.scalar))

        def unit(u: Value, _: list[Value]) -> list[Value]:
            outer, group = split_index(w, u, (1 << 40, self.groups))
            self.first = times(w, group, self.lanes)
            self.valid = None
            if n.lanes % self.lanes:
                number = counting(w, self.first, self.lanes)
                self.valid = w.compare("icmp slt", number, w.splat(w.int(n.lanes), self.lanes))
            self._run(self._moved(source, outer, n.source), self._moved(target, outer, n.target))
            return []

        self.nest.loop(Value("%begin", "i64"), Value("%end", "i64"), 1, [], unit)

    def _moved(self, base: Value, outer: Value, side: Side) -> Value:
        return self._scalar(base, times(self.w, outer, side.outer))

    def _scalar(self, base: Value, index: Value) -> Value:
        """base + index scalars."""
        if index.text == "0":
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
            fetch = self._source(source, n.source, n.size)
            put = self._target(target, n.target)
            self._transform(fetch, put or self._put_pairs(1), inverse=n.is_inverse)
            if put is None:
                self._store_turned(target, n.target, n.size, 1)

    # -- memory ----------------------------------------------------------------------------------

    def _is_beside(self, side: Side) -> bool:
        """Whether lines are neighbours in memory."""
        return side.lane == side.parts == 2

    def _source(self, base: Value, side: Side, count: int) -> Fetch:
        """How to read elements: from memory, or from the first buffer after turning them."""
        if not self._is_beside(side):
            self._load_turned(base, side, count)
            return self._fetch_pairs(0)
        start = self._scalar(base, times(self.w, self.first, side.lane))

        def fetch(e: Value) -> Parts:
            at = self._scalar(start, times(self.w, e, side.step))
            ring = self.numbers.ring
            return loaded(self.w, ring, self.lines.complex, at, self.lanes, self.valid)

        return fetch

    def _target(self, base: Value, side: Side) -> Put | None:
        """How to write elements to memory; None where they have to be turned."""
        if not self._is_beside(side):
            return None
        start = self._scalar(base, times(self.w, self.first, side.lane))

        def put(e: Value, number: Parts) -> None:
            at = self._scalar(start, times(self.w, e, side.step))
            written(self.w, self.lines.complex, self._twisted(e, number), at, self.valid)

        return put

    def _twisted(self, e: Value, number: Parts) -> Parts:
        """The number times the root that the second half of a long transform expects."""
        n = self.lines
        if not n.total:
            return number
        k = np.arange(n.size)[:, None] * np.arange(self.groups * self.lanes)[None, :]
        table = self._table(f"twist.{n.total}.{n.size}", roots(k, n.total), planes=True)
        index = add(self.w, times(self.w, e, self.groups * self.lanes), self.first)
        plane = n.size * self.groups * self.lanes
        root = self.numbers.planes(table, index, plane, self.lanes)
        if n.is_inverse:
            root = (root[0], self.w.unary("fneg", root[1]))
        return self.complex.times(number, root)

    def _rows(self, base: Value, side: Side) -> list[Value]:
        """Where each lane's line begins; lanes beyond the last repeat it."""
        w, rows = self.w, []
        for lane in range(self.lanes):
            index = add(w, self.first, w.int(lane))
            if self.lines.lanes % self.lanes:
                index = w.intrinsic("llvm.smin", "i64", index, w.int(self.lines.lanes - 1))
            rows.append(self._scalar(base, times(w, index, side.lane)))
        return rows

    def _squares(
        self, side: Side, count: int, body: Callable[[Value, int, Value | None], None]
    ) -> None:
        """body(scalar index, first lane, mask) for squares of numbers along the lines."""
        w, scalars, rows = self.w, count * side.parts, self.lanes // side.parts

        def square(c: Value, _: list[Value]) -> list[Value]:
            mask = None
            if scalars % self.lanes:
                limit = w.splat(w.int(scalars), self.lanes)
                mask = w.compare("icmp slt", counting(w, c, self.lanes), limit)
            for lane in range(0, self.lanes, rows):
                body(c, lane, mask)
            return []

        self.nest.loop(0, scalars + self.lanes - 1, self.lanes, [], square)

    def _load_turned(self, base: Value, side: Side, count: int) -> None:
        """Lines of neighbouring elements into the first buffer: pairs, or real numbers."""
        w, ring = self.w, self.numbers.ring
        rows = self._rows(base, side)
        component = self.lines.complex.component
        size = self.lanes // side.parts

        def square(c: Value, lane: int, mask: Value | None) -> None:
            places = [self._scalar(row, c) for row in rows[lane : lane + size]]
            read = [loaded(w, ring, component, at, self.lanes, mask)[0] for at in places]
            for k, vector in enumerate(turned(self.nest, read, side.parts)):
                if side.parts == 1:
                    self._put(0)(add(w, c, w.int(k)), (vector, w.zero(vector.type)))
                else:
                    w.store(vector, self._pair(0, c, lane, k), ring.scalar_bytes)

        self._squares(side, count, square)

    def _store_turned(self, base: Value, side: Side, count: int, buffer: int) -> None:
        """A buffer's pairs, or the real parts of its numbers, to lines of neighbouring elements."""
        w, ring = self.w, self.numbers.ring
        rows = self._rows(base, side)
        component = self.lines.complex.component
        size = self.lanes // side.parts

        def square(c: Value, lane: int, mask: Value | None) -> None:
            if side.parts == 1:
                vectors = [self._fetch(buffer)(add(w, c, w.int(k)))[0] for k in range(size)]
            else:
                places = [self._pair(buffer, c, lane, k) for k in range(size)]
                vectors = [w.load(at, ring.vector, ring.scalar_bytes) for at in places]
            for number, row in enumerate(turned(self.nest, vectors, side.parts), lane):
                kept = self._kept(number, mask)
                written(w, component, (row,), self._scalar(rows[number], c), kept)

        self._squares(side, count, square)

    def _pair(self, buffer: int, c: Value, lane: int, k: int) -> Value:
        """Where element c / 2 + k of a vector of lines from a lane on lies."""
        w = self.w
        first = self._scalar(self.buffers[buffer], times(w, c, self.lanes))
        return self._scalar(first, w.int(2 * (self.lanes * k + lane)))

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

    def _fetch_pairs(self, buffer: int) -> Fetch:
        """From a buffer that holds numbers as memory does, real and imaginary parts in turn."""
        ring, complex = self.numbers.ring, self.lines.complex

        def fetch(e: Value) -> Parts:
            at = self._scalar(self.buffers[buffer], times(self.w, e, 2 * self.lanes))
            return loaded(self.w, ring, complex, at, self.lanes)

        return fetch

    def _put_pairs(self, buffer: int) -> Put:
        def put(e: Value, number: Parts) -> None:
            at = self._scalar(self.buffers[buffer], times(self.w, e, 2 * self.lanes))
            written(self.w, self.lines.complex, number, at)

        return put

    def _each(self, low: int, high: int, body: Callable[[Value], None]) -> None:
        def run(e: Value, _: list[Value]) -> list[Value]:
            body(e)
            return []

        self.nest.loop(low, high, 1, [], run)

    # -- transforms ------------------------------------------------------------------------------

    def _transform(self, fetch: Fetch, put: Put, *, inverse: bool) -> None:
        """fetch (memory or the first buffer) -> put (memory or the second buffer).

        The inverse is the transform of numbers whose parts are exchanged.
        """
        scale = self.lines.scale

        def give(e: Value, number: Parts) -> None:
            if scale != 1.0:
                number = self.complex.scaled(number, scale)
            put(e, exchanged(number) if inverse else number)

        def take(e: Value) -> Parts:
            number = fetch(e)
            return exchanged(number) if inverse else number

        if self.passed == self.inner:
            self._passes(self.inner, take, give)
        else:
            self._convolved(take, give)

    def _passes(self, n: int, fetch: Fetch, put: Put) -> None:
        """Stockham's passes; the last writes what it has just read, so it may work in place."""
        radices = factors(n) or (1,)
        done, left = 1, n
        for number, r in enumerate(radices):
            left //= r
            to = (number + 1) % 2
            self._pass((r, done, left, n), fetch, put if left == 1 else self._put(to))
            fetch = self._fetch(to)
            done *= r

    def _pass(self, sizes: tuple[int, int, int, int], fetch: Fetch, put: Put) -> None:
        """y[q + s (r p + u)] = w^(s p u) sum over t of x[q + s (p + m t)] e^(-2 pi i t u / r)."""
        r, s, m, n = sizes
        w = self.w

        def outer(p: Value) -> None:
            twists = [self._root(n, times(w, p, s * u)) for u in range(1, r)] if m > 1 else []

            def inner(q: Value) -> None:
                x = [
                    fetch(add(w, q, times(w, add(w, p, w.int(m * t)), s)))
                    for t in range(r)
                ]  # fmt: skip
                found = butterfly(self.complex, x)
                for u, number in enumerate(found):
                    at = add(w, q, times(w, add(w, times(w, p, r), w.int(u)), s))
                    put(at, self.complex.times(number, twists[u - 1]) if u and twists else number)

            if s == 1:
                inner(w.int(0))
            else:
                self._each(0, s, inner)

        if m == 1:
            outer(w.int(0))
        else:
            self._each(0, m, outer)

    def _root(self, n: int, exponent: Value) -> Parts:
        """e^(-2 pi i exponent / n) in all lanes."""
        table = self._table(f"roots.{n}", roots(np.arange(n), n))
        return self._entry(table, exponent)

    def _entry(self, table: Value, index: Value) -> Parts:
        w, ring = self.w, self.numbers.ring
        at = self._scalar(table, times(w, index, 2))
        found = loaded(w, ring, self.lines.complex, at, 1)
        return tuple(w.splat(part, self.lanes) for part in found)

    def _table(self, name: str, values: np.ndarray, *, planes: bool = False) -> Value:
        """Numbers as a constant beside the kernel; planes: all real parts first."""
        scalar = np.float64 if self.numbers.ring.scalar == "double" else np.float32
        symbol = f".{name}.{np.dtype(scalar).name}"
        if symbol not in self.w.globals:
            parts = np.stack([values.real, values.imag], 0 if planes else -1)
            data = parts.astype(scalar).tobytes()
            text = "".join(map(_BYTES.__getitem__, data))
            self.w.globals[symbol] = (
                f'@{symbol} = private unnamed_addr constant [{len(data)} x i8] c"{text}", align 64'
            )
        return Value(f"@{symbol}", "ptr")

    def _convolved(self, fetch: Fetch, put: Put) -> None:
        """Bluestein: a transform of any length n as a convolution with a chirp, of length m."""
        n, m, w, c = self.inner, self.passed, self.w, self.complex
        chirps = self._table(f"chirp.{n}", chirp(n))
        spectrum = self._table(f"spectrum.{n}.{m}", chirp_spectrum(n, m))
        into, back = self._put(0), self._fetch(1)
        zero = self.numbers.ring.zero(w, self.lanes)
        self._each(0, n, lambda e: into(e, c.times(fetch(e), self._entry(chirps, e))))
        self._each(n, m, lambda e: into(e, zero))
        self._passes(m, self._fetch(0), self._put(1))
        # the second transform is an inverse one: its parts are exchanged on the way in and out
        self._each(0, m, lambda e: into(e, exchanged(c.times(back(e), self._entry(spectrum, e)))))
        self._passes(m, self._fetch(0), self._put(1))
        self._each(0, n, lambda e: put(e, c.times(exchanged(back(e)), self._entry(chirps, e))))

    # -- real numbers ----------------------------------------------------------------------------

    def _real(self, source: Value, target: Value) -> None:
        """Half the transform of real numbers; an even count as half as many complex ones."""
        n, side = self.lines, self.lines.source
        if self.folds:
            side = replace(side, step=2, parts=2)
        self._load_turned(source, side, self.inner)
        fetch = self._fetch_pairs(0) if self.folds else self._fetch(0)
        put = self._put(1) if self.folds else self._put_pairs(1)
        self._transform(fetch, put, inverse=False)
        if self.folds:
            self._unfolded(self._fetch(1), self._put_pairs(0))
        self._store_turned(target, n.target, n.size // 2 + 1, 0 if self.folds else 1)

    def _unfolded(self, fetch: Fetch, put: Put) -> None:
        """x = e + w^k o of z[k] = e[k] + i o[k], by pairs k, h - k."""
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
        """Real numbers of half a transform, deaf to the parts that symmetry makes zero."""
        n, side = self.lines, self.lines.target
        self._load_turned(source, n.source, n.size // 2 + 1)
        if self.folds:
            self._folded(self._fetch_pairs(0), self._put(0))
            side = replace(side, step=2, parts=2)
        else:
            self._mirrored(self._fetch_pairs(0), self._put(0))
        put = self._put_pairs(1) if self.folds else self._put(1)
        self._transform(self._fetch(0), put, inverse=True)
        self._store_turned(target, side, self.inner, 1)

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


def turned(nest: Nest, rows: list[Value], parts: int) -> list[Value]:
    """n rows of n numbers, of one or two scalars that stay together: the columns."""
    n = len(rows)

    def order(first: int) -> list[int]:
        numbers = [first + k // 2 + k % 2 * n for k in range(n)]
        return [parts * k + part for k in numbers for part in range(parts)]

    orders = (order(0), order(n // 2))
    for _ in range(n.bit_length() - 1):
        rows = [
            permuted(nest, row, other, lanes)
            for row, other in zip(rows[: n // 2], rows[n // 2 :], strict=True)
            for lanes in orders
        ]
    return rows


def exchanged(number: Parts) -> Parts:
    """i times the conjugate."""
    return number[1], number[0]


def conjugated(w: Writer, number: Parts) -> Parts:
    """The conjugate."""
    return number[0], w.unary("fneg", number[1])
