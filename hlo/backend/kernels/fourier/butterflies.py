"""Butterflies: discrete Fourier transforms of a few numbers, in registers.

    X[u] = sum over t of a[t] e^(-2 pi i t u / r)

Powers of two by halves; odd lengths by pairs a[t] +- a[r-t], whose cosine and sine sums are shared
by X[u] and X[r-u].
"""

from __future__ import annotations

import math

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.ring import Parts


class Complex:
    """Arithmetic on pairs of vectors. fused: the target multiplies and adds at once."""

    def __init__(self, w: Writer, *, fused: bool) -> None:
        self.w = w
        self.fused = fused

    def add(self, a: Parts, b: Parts) -> Parts:
        return tuple(self.w.binary("fadd", x, y) for x, y in zip(a, b, strict=True))

    def subtract(self, a: Parts, b: Parts) -> Parts:
        return tuple(self.w.binary("fsub", x, y) for x, y in zip(a, b, strict=True))

    def times(self, a: Parts, b: Parts) -> Parts:
        w = self.w
        negative = w.unary("fneg", a[1])
        real = self.total(w.binary("fmul", a[0], b[0]), negative, b[1])
        return real, self.total(w.binary("fmul", a[0], b[1]), a[1], b[0])

    def total(self, sum: Value, a: Value, b: Value) -> Value:
        """sum + a b."""
        if self.fused:
            return self.w.intrinsic("llvm.fma", sum.type, a, b, sum)
        return self.w.binary("fadd", sum, self.w.binary("fmul", a, b))

    def scaled(self, a: Parts, factor: float) -> Parts:
        return tuple(self.w.binary("fmul", x, self.w.float(factor, x.type)) for x in a)

    def turned(self, a: Parts) -> Parts:
        """-i a."""
        return a[1], self.w.unary("fneg", a[0])

    def add_turned(self, a: Parts, b: Parts) -> Parts:
        """a - i b."""
        return self.w.binary("fadd", a[0], b[1]), self.w.binary("fsub", a[1], b[0])

    def subtract_turned(self, a: Parts, b: Parts) -> Parts:
        """a + i b."""
        return self.w.binary("fsub", a[0], b[1]), self.w.binary("fadd", a[1], b[0])


def butterfly(c: Complex, a: list[Parts]) -> list[Parts]:
    """The transform of len(a) numbers."""
    match len(a):
        case 1:
            return a
        case 2:
            return [c.add(*a), c.subtract(*a)]
        case 4:
            return _four(c, a)
        case 8:
            return _eight(c, a)
    return _odd(c, a)


def _four(c: Complex, a: list[Parts]) -> list[Parts]:
    even, odd = c.add(a[0], a[2]), c.add(a[1], a[3])
    low, high = c.subtract(a[0], a[2]), c.subtract(a[1], a[3])
    return [
        c.add(even, odd), c.add_turned(low, high),
        c.subtract(even, odd), c.subtract_turned(low, high),
    ]  # fmt: skip


def _eight(c: Complex, a: list[Parts]) -> list[Parts]:
    even, odd = _four(c, a[0::2]), _four(c, a[1::2])
    w = c.w
    half = math.sqrt(0.5)
    one, two, three = odd[1:]
    # e^(-i pi/4) z = sqrt(1/2) ((x + y) + i (y - x)); e^(-3 i pi/4) z = sqrt(1/2) ((y - x) - ...)
    one = (w.binary("fadd", one[0], one[1]), w.binary("fsub", one[1], one[0]))
    three = (w.binary("fsub", three[1], three[0]), w.binary("fadd", three[0], three[1]))
    found = [c.add(even[0], odd[0])]
    lower = [c.subtract(even[0], odd[0])]
    factor = w.float(half, one[0].type)
    minus = w.float(-half, one[0].type)

    def plus(base: Parts, x: Parts, signs: tuple[Value, Value]) -> Parts:
        return c.total(base[0], x[0], signs[0]), c.total(base[1], x[1], signs[1])

    found.append(plus(even[1], one, (factor, factor)))
    lower.append(plus(even[1], one, (minus, minus)))
    found.append(c.add_turned(even[2], two))
    lower.append(c.subtract_turned(even[2], two))
    found.append(plus(even[3], three, (factor, minus)))
    lower.append(plus(even[3], three, (minus, factor)))
    return found + lower


def _odd(c: Complex, a: list[Parts]) -> list[Parts]:
    r = len(a)
    w, half = c.w, r // 2
    sums = [c.add(a[t], a[r - t]) for t in range(1, half + 1)]
    gaps = [c.subtract(a[t], a[r - t]) for t in range(1, half + 1)]
    first = a[0]
    for s in sums:
        first = c.add(first, s)
    found = [first] * r
    for u in range(1, half + 1):
        angles = [2 * math.pi * (u * t % r) / r for t in range(1, half + 1)]
        even, odd = list(a[0]), []
        for part in range(2):
            for s, angle in zip(sums, angles, strict=True):
                cosine = w.float(math.cos(angle), s[part].type)
                even[part] = c.total(even[part], s[part], cosine)
            total = w.binary("fmul", gaps[0][part], w.float(math.sin(angles[0]), first[0].type))
            for gap, angle in zip(gaps[1:], angles[1:], strict=True):
                total = c.total(total, gap[part], w.float(math.sin(angle), total.type))
            odd.append(total)
        found[u] = c.add_turned((even[0], even[1]), (odd[0], odd[1]))
        found[r - u] = c.subtract_turned((even[0], even[1]), (odd[0], odd[1]))
    return found


def exchanged(number: Parts) -> Parts:
    """i times the conjugate."""
    return number[1], number[0]


def conjugated(w: Writer, number: Parts) -> Parts:
    """The conjugate."""
    return number[0], w.unary("fneg", number[1])
