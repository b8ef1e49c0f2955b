"""Whether an array has a number that is not finite, or one that is not NaN.

Its blocks are looked through until there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.control import loop, when
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring, element_address, loaded
from hlo.ir.shape import Shape
from hlo.machine import COMMON

# Vectors side by side: as many as the cycles that an addition takes.
SIDE_BY_SIDE = COMMON.cycles.latency
STEPS = 16  # The most steps of a block.

Check = Callable[[Parts, list[Value]], list[Value]]


def note_not_finite(w: Writer, ring: Ring, memory: Value, shape: Shape, found: Value) -> None:
    """Store 1 to `found`, an i64 that is 0 or 1, where some element is not finite."""
    if not shape.dtype.component.is_float or shape.size == 0:
        return
    zeros = [w.zero(ring.type(_lanes(ring, shape)))] * ring.parts

    def check(values: Parts, before: list[Value]) -> list[Value]:
        """0 * x is NaN where x is not finite, and so is all that it is added to."""
        pairs = zip(before, values, strict=True)
        return [ring.multiply_add_part(w, total, x, zeros[0]) for total, x in pairs]

    def any_of(sums: list[Value]) -> Value:
        total = sums[0]
        for other in sums[1:]:
            total = w.binary("fadd", total, other)
        return w.compare("fcmp uno", total, total)

    _each_block(w, ring, memory, shape, found, zeros, check, any_of)


def note_number(w: Writer, ring: Ring, memory: Value, shape: Shape, found: Value) -> None:
    """Store 1 to `found`, an i64 that is 0, where some element is not NaN."""
    lanes = _lanes(ring, shape)
    none = w.zero(f"<{lanes} x i1>" if lanes > 1 else "i1")

    def check(values: Parts, before: list[Value]) -> list[Value]:
        return [w.binary("or", before[0], w.compare("fcmp ord", values[0], values[-1]))]

    def any_of(flags: list[Value]) -> Value:
        some = flags[0]
        for other in flags[1:]:
            some = w.binary("or", some, other)
        return some

    _each_block(w, ring, memory, shape, found, [none], check, any_of)


def vectors_of(ring: Ring, shape: Shape) -> int:
    """How many are read where nothing is found."""
    return -(-prod(shape.dims) // _lanes(ring, shape))


def _lanes(ring: Ring, shape: Shape) -> int:
    return min(ring.lanes, 1 << (prod(shape.dims).bit_length() - 1))


def _each_block(
    w: Writer,
    ring: Ring,
    memory: Value,
    shape: Shape,
    found: Value,
    first: list[Value],
    check: Check,
    any_of: Callable[[list[Value]], Value],
) -> None:
    """Blocks of one size, of which the last overlaps another."""
    size, lanes = prod(shape.dims), _lanes(ring, shape)
    abreast = SIDE_BY_SIDE if size >= SIDE_BY_SIDE * lanes else 1
    most = min(STEPS, size // (abreast * lanes))
    steps = min(range(most, 0, -1), key=lambda n: -size % (n * abreast * lanes))
    block = steps * abreast * lanes

    def vector(at: Value) -> Parts:
        return loaded(w, ring, shape.dtype, element_address(w, memory, at, shape.dtype), lanes)

    def step(start: Value, k: Value, before: list[Value]) -> list[Value]:
        at = add(w, start, times(w, k, abreast * lanes))
        after: list[Value] = []
        for n in range(abreast):
            own = before[n * len(first) : (n + 1) * len(first)]
            after += check(vector(add(w, at, w.int(n * lanes))), own)
        return after

    def blocks(b: Value, _: list[Value]) -> list[Value]:
        left = w.compare("icmp eq", w.load(found, "i64", 8), w.int(0))
        when(w, left, lambda: one(b))
        return []

    def one(b: Value) -> None:
        start = w.intrinsic("llvm.umin", "i64", times(w, b, block), w.int(size - block))
        flags = loop(w, w.int(steps), first * abreast, lambda k, before: step(start, k, before))
        some = w.any_lane(any_of(flags))
        w.store(w.cast("zext", some, "i64"), found, 8)

    loop(w, w.int(-(-size // block)), [], blocks)
