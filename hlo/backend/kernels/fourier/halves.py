"""Long real transforms, between the half that symmetry leaves and half as many complex numbers.

    x[0..2h)  as h pairs  --transform-->  z  --unfolded-->  X[k] = e + w^k o
    X[0..h]  --folded-->  z  --inverse transform-->  pairs

    w = e^(-2 pi i / 2h),  e = (z[k] + z[h-k]*) / 2,  o = -i (z[k] - z[h-k]*) / 2
    z = 2 (e + i o),  e = (X[k] + X[h-k]*) / 2,  o = (X[k] - X[h-k]*) / 2w:  the scale counts on it

What lines.py does with numbers in scratch memory, from memory to memory: the transform of h is
columns and rows then, which threads share out, and so are blocks of k here. Every number is
computed from two by itself, so that any split gives the same bits. The ends, which have no other
number but themselves, come with the first block.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hlo.backend.ir.arithmetic import add, split_index, times
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.ring import Parts, loaded, written
from hlo.backend.kernels.fourier.butterflies import Complex, conjugated
from hlo.backend.kernels.fourier.plan import Lines, roots
from hlo.backend.kernels.fourier.tables import constant_table
from hlo.backend.kernels.linear_algebra.matrices import Numbers
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import when
from hlo.backend.loops.schedule import Plan

_BLOCK = 2048  # Numbers of a unit.


def halves_kernel(lines: Lines, target: Target) -> Kernel:
    """Buffers: source, target. Of an RFFT from the complex transform, of an IRFFT before it."""
    w = Writer()
    build = _Halves(Nest(w, target), lines)
    build.write()
    w.ret()
    count = lines.lanes * build.h
    made = Kernel(
        w.function(has_entry=True),
        lines.lanes * build.blocks,
        *w.beside,
        bytes_moved=3 * count * lines.complex.item_bytes,
        flops=16 * count,
    )
    what = "folded to" if lines.is_inverse else "unfolded from"
    plan = f"{lines.kind}: {lines.lanes} lines of {lines.size} {what} {build.h} numbers"
    return target.shown(made, lambda: Plan((plan,)))


class _Halves:
    """The kernel's text."""

    def __init__(self, nest: Nest, lines: Lines) -> None:
        self.nest, self.w, self.lines = nest, nest.w, lines
        self.numbers = Numbers(nest, lines.complex)
        self.complex = Complex(nest.w, fused=self.numbers.ring.fused)
        self.h = lines.size // 2
        self.blocks = -(-self.h // _BLOCK)
        sides = (self.h + 1, self.h) if lines.is_inverse else (self.h, self.h + 1)
        self.lengths = sides  # of a line on each side, in numbers

    def write(self) -> None:
        w = self.w
        source, target = (w.buffer_address(k) for k in range(2))

        def unit(u: Value, _: list[Value]) -> list[Value]:
            line, block = split_index(w, u, (1 << 40, self.blocks))
            self.source = self._at(source, times(w, line, self.lengths[0]))
            self.target = self._at(target, times(w, line, self.lengths[1]))
            is_first = w.compare("icmp eq", block, w.int(0))
            when(self.nest, is_first, self._ends)
            low = w.intrinsic("llvm.umax", "i64", times(w, block, _BLOCK), w.int(1))
            end = add(w, times(w, block, _BLOCK), w.int(_BLOCK))
            high = w.intrinsic("llvm.umin", "i64", end, w.int(self.h))
            lanes = self.numbers.lanes
            self.nest.loop(low, high, lanes, [], self._step(lanes))
            rest = w.binary("urem", w.binary("sub", high, low), w.int(lanes))
            self.nest.loop(w.binary("sub", high, rest), high, 1, [], self._step(1))
            return []

        self.nest.loop(BEGIN, END, 1, [], unit)

    def _at(self, base: Value, number: Value) -> Value:
        return self.w.address(base, times(self.w, number, 2), self.numbers.ring.scalar)

    def _load(self, k: Value, lanes: int) -> Parts:
        return loaded(
            self.w, self.numbers.ring, self.lines.complex, self._at(self.source, k), lanes
        )

    def _store(self, k: Value, number: Parts) -> None:
        written(self.w, self.lines.complex, number, self._at(self.target, k))

    def _step(self, lanes: int) -> Callable[[Value, list[Value]], list[Value]]:
        """Numbers from k on; the others lie before h - k, the last one first."""

        def run(k: Value, _: list[Value]) -> list[Value]:
            w, c = self.w, self.complex
            mirror = w.binary("sub", w.int(self.h + 1 - lanes), k)
            other = self._load(mirror, lanes)
            if lanes > 1:
                order = range(lanes - 1, -1, -1)
                other = tuple(w.shuffle(part, None, order) for part in other)
            z, y = self._load(k, lanes), conjugated(w, other)
            root = self._roots(k, lanes)
            if self.lines.is_inverse:
                odd = c.times(c.subtract(z, y), conjugated(w, root))
                self._store(k, c.subtract_turned(c.add(z, y), odd))
            else:
                even = c.scaled(c.add(z, y), 0.5)
                odd = c.turned(c.scaled(c.subtract(z, y), 0.5))
                self._store(k, c.add(even, c.times(odd, root)))
            return []

        return run

    def _roots(self, k: Value, lanes: int) -> Parts:
        """w^k and those that follow: of the block's number in a table, times those of a block."""
        w, n = self.w, self.lines.size
        name = f"halves.{n}"
        near = constant_table(
            self.numbers, f"{name}.near", lambda: roots(np.arange(_BLOCK), n), planes=True
        )
        far = constant_table(
            self.numbers, f"{name}.far", lambda: roots(np.arange(self.blocks) * _BLOCK, n)
        )
        block = w.binary("udiv", k, w.int(_BLOCK))
        within = w.binary("urem", k, w.int(_BLOCK))
        root = self.numbers.planes(near, within, _BLOCK, lanes)
        first = loaded(w, self.numbers.ring, self.lines.complex, self._at(far, block), 1)
        return self.complex.times(root, tuple(w.splat(part, lanes) for part in first))

    def _ends(self) -> None:
        """X[0] and X[h] are real, of z[0] alone, and z[0] of these."""
        w = self.w
        zero, last = w.int(0), w.int(self.h)
        if self.lines.is_inverse:
            first, second = self._load(zero, 1)[0], self._load(last, 1)[0]
            self._store(zero, (w.binary("fadd", first, second), w.binary("fsub", first, second)))
            return
        first, second = self._load(zero, 1)
        nothing = w.zero(first.type)
        self._store(zero, (w.binary("fadd", first, second), nothing))
        self._store(last, (w.binary("fsub", first, second), nothing))
