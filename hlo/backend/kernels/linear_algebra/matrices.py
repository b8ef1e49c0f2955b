"""Numbers of dense factorisations: real or complex vectors, their products, quotients, squares.

Complex vectors are two parts (contraction/problem/ring.py); in scratch memory each part has a plane of its
own. Types narrower than f32 are computed in f32 and rounded once, when they are stored.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring, ring_of
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.transposed import transposed
from hlo.ir.dtype import DType


class Numbers:
    """Arithmetic on parts within a nest."""

    def __init__(self, nest: Nest, dtype: DType) -> None:
        self.nest = nest
        self.w: Writer = nest.w
        self.dtype = dtype
        self.ring: Ring = ring_of(dtype, nest.target)
        self.lanes = self.ring.lanes
        self.parts = self.ring.parts

    def splat(self, number: Parts, lanes: int) -> Parts:
        """A scalar in every lane."""
        return tuple(self.w.splat(part, lanes) for part in number)

    def lane(self, vector: Parts, lane: int) -> Parts:
        return tuple(self.w.extract(part, lane) for part in vector)

    def conjugate(self, number: Parts) -> Parts:
        """The number itself where it is real."""
        return number if self.parts == 1 else (number[0], self.w.unary("fneg", number[1]))

    def less_product(self, total: Parts, a: Parts, b: Parts) -> Parts:
        """total - a b."""
        negative = tuple(self.w.unary("fneg", part) for part in a)
        return self.ring.multiply_add(self.w, total, negative, b)

    def product(self, a: Parts, b: Parts) -> Parts:
        w = self.w
        if self.parts == 1:
            return (w.binary("fmul", a[0], b[0]),)
        cross = w.binary("fmul", a[1], b[1])
        real = w.binary("fsub", w.binary("fmul", a[0], b[0]), cross)
        turned = w.binary("fmul", a[1], b[0])
        return real, w.binary("fadd", w.binary("fmul", a[0], b[1]), turned)

    def scaled(self, a: Parts, factor: Value) -> Parts:
        """a times a real vector."""
        return tuple(self.w.binary("fmul", part, factor) for part in a)

    def quotient(self, a: Parts, divisor: Parts) -> Parts:
        """A vector by a scalar; complex: times the inverse, whose parts are scaled beforehand so
        that their squares neither overflow nor vanish."""
        w, lanes = self.w, a[0].lanes
        if self.parts == 1:
            return (w.binary("fdiv", a[0], w.splat(divisor[0], lanes)),)
        sizes = [w.intrinsic("llvm.fabs", part.type, part) for part in divisor]
        largest = w.select(w.compare("fcmp ogt", *sizes), *sizes)
        x, y = (w.binary("fdiv", part, largest) for part in divisor)
        norm = w.binary("fadd", w.binary("fmul", x, x), w.binary("fmul", y, y))
        inverse = (
            w.binary("fdiv", w.binary("fdiv", x, norm), largest),
            w.unary("fneg", w.binary("fdiv", w.binary("fdiv", y, norm), largest)),
        )
        return self.product(a, self.splat(inverse, lanes))

    # -- scratch ---------------------------------------------------------------------------------

    def planes(self, base: Value, index: Value, plane: int, lanes: int) -> Parts:
        """`lanes` numbers from an index on; plane: scalars from one part's plane to the next."""
        return tuple(
            self.w.load(at, self.ring.type(lanes), self.ring.scalar_bytes)
            for at in self._addresses(base, index, plane)
        )

    def set_planes(self, base: Value, index: Value, plane: int, number: Parts) -> None:
        """Store numbers from an index on."""
        addresses = self._addresses(base, index, plane)
        for at, part in zip(addresses, number, strict=True):
            self.w.store(part, at, self.ring.scalar_bytes)

    def _addresses(self, base: Value, index: Value, plane: int) -> list[Value]:
        w = self.w
        first = w.address(base, index, self.ring.scalar)
        if self.parts == 1:
            return [first]
        return [first, w.address(first, w.int(plane), self.ring.scalar)]

    # -- squares ---------------------------------------------------------------------------------

    def turned(self, rows: list[Parts]) -> list[Parts]:
        """n rows of n lanes: the columns."""
        columns = [transposed(self.nest, [r[part] for r in rows]) for part in range(self.parts)]
        return list(zip(*columns, strict=True))
