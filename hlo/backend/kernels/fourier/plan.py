"""Plans of Fourier transforms: which lines of numbers are transformed, by which factors.

    axis of an array --> Lines: equal transforms whose lanes lie a stride apart

A length is a product of small factors, or it goes through a convolution of such a length (Bluestein
1970). Roots of unity come from extended precision, rounded once.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import numpy as np
from msgspec import Struct

from hlo.ir.dtype import DType

LARGEST_FACTOR = 13  # Of butterflies in registers.
# The most that the prime factors beyond it may add up to. A number costs as many multiplications as
# they are, a convolution (Bluestein) two transforms of more than twice the length.
MOST_OF_PRIMES = 160
MOST_TWIST_BYTES = 1 << 19  # The most bytes of the twist, which is a constant of the code.
SMOOTH = (2, 3, 5)  # The factors of a convolution's length.


class Side(Struct, frozen=True):
    """Scalars from an outer line, a lane, an element of a line to the next; parts: 1 if real."""

    outer: int
    lane: int
    step: int
    parts: int = 2

    @property
    def is_beside(self) -> bool:
        """Whether lines are neighbours in memory."""
        return self.lane == self.parts == 2


class Lines(Struct, frozen=True):
    """`outer` x `lanes` transforms of `size` numbers.

    kind: FFT or IFFT; RFFT and IRFFT with `size` real numbers on one side and half on the other.
    scale: of the results. total: beside the transform, element k of lane j is multiplied by
    e^(-2 pi i k j / total), the twist of the first half of a long transform; 0: by nothing.
    """

    complex: DType
    kind: str
    size: int
    outer: int
    lanes: int
    source: Side
    target: Side
    scale: float = 1.0
    total: int = 0

    @property
    def is_inverse(self) -> bool:
        return self.kind.startswith("I")

    @property
    def is_far(self) -> bool:
        """Whether the twist is a product of two numbers, as a table of it would be too large."""
        return self.total * self.complex.item_bytes > MOST_TWIST_BYTES

    @property
    def folds(self) -> bool:
        """Whether the real numbers are an even count, that is half as many complex ones."""
        return self.kind in ("RFFT", "IRFFT") and self.size % 2 == 0

    @property
    def text(self) -> str:
        """What it says, in a line."""
        passes = " x ".join(map(str, factors(self.inner))) or "1"
        if not is_smooth(self.inner):
            passes = f"a convolution of {convolution_length(self.inner)}"
        many = f"{self.outer} x {self.lanes} lines of {self.size}"
        return f"{self.kind}: {many}, {passes}" + (", twisted" if self.total else "")

    @property
    def inner(self) -> int:
        """The length of the complex transform that is computed."""
        return self.size // 2 if self.folds else self.size

    @property
    def passed(self) -> int:
        """The length of the passes: a convolution's where that has large factors."""
        return self.inner if is_smooth(self.inner) else convolution_length(self.inner)


@lru_cache(maxsize=1024)
def factors(n: int) -> tuple[int, ...]:
    """The radices of passes; empty where primes beyond LARGEST_FACTOR are too large together, or
    where n is 1."""
    found, n = _divided(n, (13, 11, 7, 5, 3))
    twos = (n & -n).bit_length() - 1
    primes, n = _divided(n >> twos, range(LARGEST_FACTOR + 4, MOST_OF_PRIMES + 1, 2))
    if n > 1 or sum(primes) > MOST_OF_PRIMES:
        return ()
    fours = {0: 0, 1: 2, 2: 1}[twos % 3] if twos > 1 else 0
    eights = (twos - 2 * fours) // 3
    twos -= 2 * fours + 3 * eights
    return (*[8] * eights, *[4] * fours, *[2] * twos, *found, *primes)


def _divided(n: int, divisors: Iterable[int]) -> tuple[list[int], int]:
    """The divisors that divide n, as often as they do, and what is left of it."""
    found = []
    for divisor in divisors:
        while n % divisor == 0:
            found.append(divisor)
            n //= divisor
    return found, n


def flops_each(n: int) -> int:
    """Operations for a number of a line that passes of n transform."""
    primes = sum(r for r in factors(n) if r > LARGEST_FACTOR)
    return 5 * max(1, n.bit_length()) + 2 * primes


def is_smooth(n: int) -> bool:
    """Whether passes transform a length."""
    return n == 1 or bool(factors(n))


@lru_cache(maxsize=256)
def convolution_length(n: int) -> int:
    """The least product of small factors from 2n - 1 on."""
    length = 2 * n - 1
    while True:
        rest = length
        for prime in SMOOTH:
            while rest % prime == 0:
                rest //= prime
        if rest == 1:
            return length
        length += 1


def roots(exponents: np.ndarray, n: int) -> np.ndarray:
    """e^(-2 pi i k / n) for integers k, as complex128 of rounded extended numbers."""
    # pi to 64 bits: NumPy's own has 53
    pi = np.longdouble("3.14159265358979323846264338327950288")
    k = np.asarray(exponents, np.int64) % n
    eighth, rest = np.divmod(8 * k, n)  # the octant keeps angles small
    angle = 2 * pi * (rest.astype(np.longdouble) / (8 * np.longdouble(n)))
    cosine, sine = np.cos(angle), np.sin(angle)
    half = np.sqrt(np.longdouble(0.5))
    diagonal = eighth % 2 == 1
    x = np.where(diagonal, (cosine - sine) * half, cosine)
    y = np.where(diagonal, (cosine + sine) * half, sine)
    quarter = eighth // 2
    real = np.choose(quarter, [x, -y, -x, y])
    imaginary = np.choose(quarter, [y, x, -y, -x])
    return np.asarray(real.astype(np.float64) - 1j * imaginary.astype(np.float64))


def chirp(n: int) -> np.ndarray:
    """e^(-pi i k^2 / n) for k < n."""
    k = np.arange(n, dtype=np.int64)
    return roots(k * k % (2 * n), 2 * n)


def chirp_spectrum(n: int, length: int) -> np.ndarray:
    """The transform of the conjugate chirp, wrapped around `length`, over `length`."""
    wrapped = np.zeros(length, np.complex128)
    tail = np.conj(chirp(n))
    wrapped[:n] = tail
    wrapped[length - n + 1 :] = tail[1:][::-1]
    return np.asarray(np.fft.fft(wrapped) / length)
