"""A program that sums, with its exact results: what `benchmarks.errors` measures.

    Case: HLO text, shapes of the arguments, wide arguments -> (exact results, magnitudes)

Magnitudes are what errors are counted against, times eps: sums of abs(a * b) for sums of a * b.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

TYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64,
    "c64": np.complex64, "c128": np.complex128,
}  # fmt: skip
WIDE = {"f64": np.longdouble, "c64": np.complex128, "c128": np.clongdouble}
Truth = tuple[np.ndarray, np.ndarray]
Shape = tuple[int, ...]


@dataclass(frozen=True)
class Case:
    """dtype: of the arguments; out: of the results."""

    name: str
    text: str
    shapes: tuple[Shape, ...]
    truth: Callable[..., Truth]
    dtype: str = "f32"
    out: str = ""

    @property
    def eps(self) -> float:
        return float(ml_dtypes.finfo(TYPES[self.out or self.dtype]).eps)

    def arguments(self, kind: str) -> list[np.ndarray]:
        """kind: "mixed" signs, or "positive", where errors add up most."""
        rng = np.random.default_rng(len(self.text))

        def part(shape: Shape) -> np.ndarray:
            return rng.random(shape) if kind == "positive" else rng.standard_normal(shape)

        complex_ = self.dtype[0] == "c"
        made = (part(s) + 1j * part(s) if complex_ else part(s) for s in self.shapes)
        return [np.asarray(a).astype(TYPES[self.dtype]) for a in made]

    def exact(self, arguments: Sequence[np.ndarray]) -> Truth:
        """The results in more digits, and what errors are counted against."""
        wide = WIDE.get(self.dtype, np.float64)
        return self.truth(*(a.astype(wide) for a in arguments))


def array(dtype: str, shape: Sequence[int]) -> str:
    """A shape in HLO's spelling."""
    return f"{dtype}[{','.join(map(str, shape))}]"


def module(parameters: Sequence[str], *lines: str, add: str = "") -> str:
    """A module of these lines over p0, p1, ..; add: the type of its computation `add`."""
    heads = [f"p{n} = {p} parameter({n})" for n, p in enumerate(parameters)]
    reducer = f"add {{ a = {add} parameter(0) b = {add} parameter(1) ROOT r = {add} add(a, b) }}\n"
    body = "\n  ".join([*heads, *lines])
    return f"HloModule m\n{reducer if add else ''}ENTRY e {{\n  {body}\n}}\n"


def zero(dtype: str) -> str:
    """The constant in HLO's spelling."""
    return "(0, 0)" if dtype[0] == "c" else "0"
