"""Carried sums: what scans and streams hand from block to block, a float sum in twice the digits.

    s = a + x;  what s lacks: (a - (s - (s - a))) + (x - (s - a))      (Knuth's two-sum, exact)

A long chain of additions then loses as little as one. The next block waits for the first addition
only. Other reducers carry their value alone.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.lanes.types import Lanes, joined, parts

Apply = Callable[[Lanes, Lanes], Lanes]


class Carried(Struct, frozen=True):
    """The reduction so far. surplus: what its sum is too large by, part by part; () for other
    reductions.

    It is subtracted, so that without any a sum of -0 stays -0.
    """

    reduction: tuple[Value, ...]
    surplus: tuple[Value, ...]

    @property
    def values(self) -> list[Value]:
        return [*self.reduction, *self.surplus]

    def of(self, values: list[Value]) -> Carried:
        """The same with other values."""
        count = len(self.reduction)
        return Carried(tuple(values[:count]), tuple(values[count:]))

    def total(self, w: Writer) -> Lanes:
        """The reduction in one number."""
        if not self.surplus:
            return joined(list(self.reduction))
        pairs = zip(self.reduction, self.surplus, strict=True)
        return joined([w.binary("fsub", s, e) for s, e in pairs])

    def followed(self, w: Writer, x: Lanes, apply: Apply) -> Carried:
        """The reduction with x."""
        if not self.surplus:
            return Carried(tuple(parts(apply(joined(list(self.reduction)), x))), ())
        reduction, surplus = [], []
        for a, b, e in zip(self.reduction, parts(x), self.surplus, strict=True):
            total = w.binary("fadd", a, b)
            reduction.append(total)
            surplus.append(w.binary("fadd", e, _excess(w, a, b, total)))
        return Carried(tuple(reduction), tuple(surplus))


def carried_of(w: Writer, first: Lanes, numbers: int) -> Carried:
    """What a reduction begins with. numbers: 2 for a sum of floats in twice the digits, else 1."""
    reduction = tuple(parts(first))
    return Carried(reduction, tuple(w.zero(v.type) for v in reduction) if numbers == 2 else ())


def _excess(w: Writer, a: Value, b: Value, total: Value) -> Value:
    """total - (a + b), exactly; 0 where that is no number: then the total says so already."""
    moved = w.binary("fsub", total, a)
    of_a = w.binary("fsub", w.binary("fsub", total, moved), a)
    excess = w.binary("fadd", of_a, w.binary("fsub", moved, b))
    number = w.compare("fcmp ord", excess, excess)
    return w.select(number, excess, w.zero(excess.type))
