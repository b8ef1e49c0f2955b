"""Passes of Fourier transforms: functions from scratch memory to scratch memory.

    y[q + s (r p + u)] = w^(s p u) sum over t of x[q + s (p + m t)] e^(-2 pi i t u / r)

Stockham's step, for any s and m, so that all the passes of all the lines of a program share a
function for each radix. An element is a vector of real parts and one of imaginary parts; their
distance is an argument, because the inverse transform is that of numbers with parts exchanged.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from hlo.backend.ir.called import as_function, call
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.ring import Parts, loaded
from hlo.backend.kernels.fourier.butterflies import Complex, butterfly
from hlo.backend.kernels.fourier.plan import LARGEST_FACTOR
from hlo.backend.kernels.fourier.prime_pass import PrimePass, Terms
from hlo.backend.kernels.linear_algebra.matrices import Numbers
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.transposed import transposed
from hlo.ir.dtype import DType

X, Y, ROOTS = (Value(f"%{name}", "ptr") for name in ("x", "y", "roots"))
X_GAP, Y_GAP, S, M = (Value(f"%{name}", "i64") for name in ("x.gap", "y.gap", "s", "m"))
PARAMETERS = (X, X_GAP, Y, Y_GAP, ROOTS, S, M)


def call_pass(
    w: Writer, target: Target, complex: DType, radix: int, arguments: tuple[Value, ...]
) -> Kernel:
    """A call with arguments as PARAMETERS are: what is called. Where m is 1, roots is null, except
    for a radix beyond LARGEST_FACTOR.
    """
    function = _function(target.of_library, complex, radix, is_last=arguments[-1].integer == 1)
    call(w, function, *arguments)
    return function


@lru_cache(maxsize=64)
def _function(target: Target, complex: DType, radix: int, *, is_last: bool) -> Kernel:
    w = Writer()
    _Pass(Nest(w, target), complex, radix, is_last=is_last).write()
    return as_function(w, PARAMETERS, is_library=True)


def call_square(
    w: Writer, target: Target, complex: DType, arguments: tuple[Value, ...], factor: float
) -> Kernel:
    """Vectors at x, x + step, ... turned, scaled, to y, y + step, ...: what is called.

    arguments: x, scalars from a vector to the next, y, scalars from a vector to the next.
    """
    function = _square(target.of_library, complex)
    call(w, function, *arguments, w.float(factor, Numbers(Nest(w, target), complex).ring.scalar))
    return function


@lru_cache(maxsize=16)
def _square(target: Target, complex: DType) -> Kernel:
    w = Writer()
    nest = Nest(w, target)
    ring = Numbers(nest, complex).ring
    factor = Value("%factor", ring.scalar)
    scale, x, y = w.splat(factor, ring.lanes), X, Y
    rows: list[Value] = []
    for _ in range(ring.lanes):
        rows.append(w.load(x, ring.vector, ring.scalar_bytes))
        x = w.address(x, X_GAP, ring.scalar)
    for vector in transposed(nest, rows):
        w.store(w.binary("fmul", vector, scale), y, ring.scalar_bytes)
        y = w.address(y, Y_GAP, ring.scalar)
    return as_function(w, (X, X_GAP, Y, Y_GAP, factor), is_library=True)


class _Pass:
    """The function's text. is_last: m is 1, and there is nothing to turn."""

    def __init__(self, nest: Nest, complex: DType, radix: int, *, is_last: bool) -> None:
        self.nest = nest
        self.w = nest.w
        self.dtype = complex
        self.radix = radix
        self.is_last = is_last
        self.numbers = Numbers(nest, complex)
        self.complex = Complex(nest.w, fused=self.numbers.ring.fused)
        self.element = 2 * self.numbers.lanes  # scalars

    def write(self) -> None:
        w = self.w
        step = self._scalars(S)  # from one result of a butterfly to the next
        self.steps = (w.binary("mul", step, M), step)

        is_prime = self.radix > LARGEST_FACTOR

        def outer(p: Value, _: list[Value]) -> list[Value]:
            exponent = w.binary("mul", p, S)
            turns = [] if self.is_last or is_prime else self._turns(exponent)
            rows = w.binary("mul", p, step)
            x = self._moved(X, rows)
            y = self._moved(Y, w.binary("mul", rows, w.int(self.radix)))

            def inner(q: Value, _: list[Value]) -> list[Value]:
                source, target = (self._moved(at, self._scalars(q)) for at in (x, y))
                if is_prime:
                    self._of_prime(source, exponent, target)
                else:
                    self._butterfly(source, turns, target)
                return []

            self.nest.loop(0, S, 1, [], inner)
            return []

        self.nest.loop(0, M, 1, [], outer)

    def _scalars(self, elements: Value) -> Value:
        return self.w.binary("mul", elements, self.w.int(self.element))

    def _moved(self, base: Value, scalars: Value) -> Value:
        return self.w.address(base, scalars, self.numbers.ring.scalar)

    def _turns(self, exponent: Value) -> list[Parts]:
        """w^(exponent u) in all lanes, for u from 1 on."""
        w, lanes = self.w, self.numbers.lanes
        step, at = w.binary("shl", exponent, w.int(1)), ROOTS
        found: list[Parts] = []
        for _ in range(1, self.radix):
            at = self._moved(at, step)
            root = loaded(w, self.numbers.ring, self.dtype, at, 1)
            found.append(tuple(w.splat(part, lanes) for part in root))
        return found

    def _butterfly(self, x: Value, turns: list[Parts], y: Value) -> None:
        w, ring = self.w, self.numbers.ring
        numbers: list[Parts] = []
        for at in self._addresses(x, self.steps[0]):
            addresses = (at, self._moved(at, X_GAP))
            numbers.append(
                tuple(w.load(place, ring.vector, ring.scalar_bytes) for place in addresses)
            )
        found = butterfly(self.complex, numbers)
        for u, (at, number) in enumerate(
            zip(self._addresses(y, self.steps[1]), found, strict=True)
        ):
            if u and turns:
                number = self.complex.times(number, turns[u - 1])
            w.store(number[0], at, ring.scalar_bytes)
            w.store(number[1], self._moved(at, Y_GAP), ring.scalar_bytes)

    def _of_prime(self, x: Value, exponent: Value, y: Value) -> None:
        """A butterfly by loops over its terms; exponent: of the turn of its second result."""
        w, nest = self.w, self.nest
        terms = Terms(x, X_GAP, self.steps[0], ROOTS, w.binary("mul", S, M))
        made = PrimePass(self.numbers, self.complex, self.radix, terms)

        def put(u: Value, number: Parts) -> None:
            if not self.is_last:
                at = self._moved(ROOTS, w.binary("shl", w.binary("mul", exponent, u), w.int(1)))
                root = loaded(w, self.numbers.ring, self.dtype, at, 1)
                number = self.complex.times(number, self.numbers.splat(root, self.numbers.lanes))
            made.put_number(self._moved(y, w.binary("mul", self.steps[1], u)), Y_GAP, number)

        def several(count: int) -> Callable[[Value, list[Value]], list[Value]]:
            def run(first: Value, _: list[Value]) -> list[Value]:
                for k, (low, high) in enumerate(made.results(first, count)):
                    u = w.binary("add", first, w.int(k))
                    put(u, low)
                    put(w.binary("sub", w.int(self.radix), u), high)
                return []

            return run

        made.put_number(y, Y_GAP, made.halves())
        together, half = made.together, made.half
        whole = half - half % together
        nest.loop(1, whole + 1, together, [], several(together))
        nest.loop(whole + 1, half + 1, 1, [], several(1))

    def _addresses(self, first: Value, step: Value) -> list[Value]:
        addresses = [first]
        for _ in range(1, self.radix):
            addresses.append(self._moved(addresses[-1], step))
        return addresses
