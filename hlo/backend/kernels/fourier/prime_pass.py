"""A pass of a Fourier transform whose radix is too large for registers: loops over its terms.

    s[t] = x[t] + x[r-t],  g[t] = x[t] - x[r-t]                          in place, t in 1..h
    y[u], y[r-u] = (x[0] + sum over t of cos(u t) s[t]) -+ i (sum over t of sin(u t) g[t])

r = 2 h + 1; angles count in turns of 2 pi / r. Two sums of h products make two results, each of
vectors: r multiplications for a number where a convolution (Bluestein) transforms twice a line of
more than twice the length. Several u go through the terms together, so that a term is read once
for all of them. Roots are read from the line's own table, whose place for the angle 2 pi / r is
s m. What a pass reads is scratch memory, which nobody reads after it.
"""

from __future__ import annotations

from typing import NamedTuple

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.ring import Parts, loaded
from hlo.backend.kernels.fourier.butterflies import Complex
from hlo.backend.kernels.linear_algebra.matrices import Numbers

_SUMS = 4  # Vectors of sums for one u.


def pairs_together(registers: int) -> int:
    """How many u have their sums in registers, beside a term's four vectors and what a
    multiplication takes of a root.
    """
    return min(4, max(1, (registers - 8) // _SUMS))


class Terms(NamedTuple):
    """The numbers of a butterfly: from x on, `step` scalars apart, gap scalars to their second
    parts; roots: the line's table, of which entry `stride` is the angle 2 pi / r.
    """

    x: Value
    gap: Value
    step: Value
    roots: Value
    stride: Value


class PrimePass:
    """A butterfly of r numbers."""

    def __init__(self, numbers: Numbers, complex: Complex, radix: int, terms: Terms) -> None:
        self.numbers, self.complex = numbers, complex
        self.x, self.gap, self.step, self.roots, self.stride = terms
        self.w: Writer = numbers.w
        self.radix, self.half = radix, radix // 2
        self.together = pairs_together(numbers.ring.registers)

    def halves(self) -> Parts:
        """Sums and differences in place: the sum of all numbers."""
        w, c, x, gap, step = self.w, self.complex, self.x, self.gap, self.step

        def term(t: Value, carried: list[Value]) -> list[Value]:
            low = self._at(x, step, t)
            high = self._at(x, step, w.binary("sub", w.int(self.radix), t))
            a, b = self._load(low, gap), self._load(high, gap)
            total = c.add(a, b)
            self.put_number(low, gap, total)
            self.put_number(high, gap, c.subtract(a, b))
            return list(c.add((carried[0], carried[1]), total))

        nest = self.numbers.nest
        found = nest.loop(1, self.half + 1, 1, list(self._load(x, gap)), term)
        return found[0], found[1]

    def results(self, first: Value, count: int) -> list[tuple[Parts, Parts]]:
        """y[u] and y[r-u] for u = first and the `count` - 1 that follow, of what halves() left."""
        w, nest, ring = self.w, self.numbers.nest, self.numbers.ring
        x, gap, step, roots, stride = self.x, self.gap, self.step, self.roots, self.stride
        size = times(w, stride, self.radix)
        steps = [w.binary("mul", add(w, first, w.int(u)), stride) for u in range(count)]
        zero = w.zero(ring.vector)
        start = [*self._load(x, gap), zero, zero] * count

        def term(t: Value, carried: list[Value]) -> list[Value]:
            sums = self._load(self._at(x, step, t), gap)
            gaps = self._load(self._at(x, step, w.binary("sub", w.int(self.radix), t)), gap)
            exponents, totals = carried[:count], carried[count:]
            found: list[Value] = []
            for u, exponent in enumerate(exponents):
                place = w.address(roots, times(w, exponent, 2), ring.scalar)
                cosine, sine = (
                    w.splat(part, ring.lanes)
                    for part in loaded(w, ring, self.numbers.dtype, place, 1)
                )
                own = totals[_SUMS * u : _SUMS * (u + 1)]
                factors = (cosine, cosine, sine, sine)
                for total, a, b in zip(own, (*sums, *gaps), factors, strict=True):
                    found.append(self.complex.total(total, a, b))
            return [*map(self._turned, exponents, steps, [size] * count), *found]

        found = nest.loop(1, self.half + 1, 1, [*steps, *start], term)[count:]
        pairs: list[tuple[Parts, Parts]] = []
        for u in range(count):
            even, odd = found[_SUMS * u : _SUMS * u + 2], found[_SUMS * u + 2 : _SUMS * (u + 1)]
            pairs.append(self._pair((even[0], even[1]), (odd[0], odd[1])))
        return pairs

    def _pair(self, even: Parts, odd: Parts) -> tuple[Parts, Parts]:
        """The table's sines are those of negative angles."""
        c = self.complex
        return c.subtract_turned(even, odd), c.add_turned(even, odd)

    def _turned(self, exponent: Value, step: Value, size: Value) -> Value:
        """The exponent of the next term, modulo the table's size."""
        w = self.w
        found = add(w, exponent, step)
        return w.select(w.compare("icmp uge", found, size), w.binary("sub", found, size), found)

    def _at(self, x: Value, step: Value, number: Value) -> Value:
        return self.w.address(x, self.w.binary("mul", step, number), self.numbers.ring.scalar)

    def _load(self, at: Value, gap: Value) -> Parts:
        w, ring = self.w, self.numbers.ring
        second = w.address(at, gap, ring.scalar)
        return tuple(w.load(place, ring.vector, ring.scalar_bytes) for place in (at, second))

    def put_number(self, at: Value, gap: Value, number: Parts) -> None:
        """A number to scratch memory."""
        w, ring = self.w, self.numbers.ring
        w.store(number[0], at, ring.scalar_bytes)
        w.store(number[1], w.address(at, gap, ring.scalar), ring.scalar_bytes)
