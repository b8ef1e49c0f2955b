"""Spaces: an array's dimensions as the fewest loops in which every access is affine.

    dims + the expressions met at an index --factored--> extents of loops, row-major

A dimension is split where some expression divides its variable (`k // 8`, `k % 8`), and neighbours
become one loop where every expression steps through both without a seam.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from hlo.indexing import affine
from hlo.indexing.affine import DivMod, Expr, Index, Variable

Extents = tuple[int, ...]

_SPLITS = 8  # More splits than any chain of reshapes has been seen to need.


def variables_of(extents: Sequence[int]) -> list[Variable]:
    """Stand-ins for loop variables, to trace with."""
    return [Variable(f"x{k}", 0, n - 1) for k, n in enumerate(extents)]


def factored(dims: Sequence[int], expressions: Callable[[Index], list[Expr]]) -> Extents:
    """Extents whose product is that of dims (non-zero), none of them 1."""
    return factored_with(dims, expressions)[0]


def factored_with(
    dims: Sequence[int],
    expressions: Callable[[Index], list[Expr]],
    first: Sequence[Variable] = (),
) -> tuple[Extents, list[Variable]]:
    """The same with the variables of the index that expressions were asked for last, one for each
    extent; no variables where it was asked for other extents.

    first: variables of the dimensions, to ask with first where none of these is 1.
    """
    extents = tuple(n for n in dims if n != 1)
    splits = 0
    while True:
        is_first = not splits and len(first) == len(extents)
        variables = list(first) if is_first else variables_of(extents)
        index = affine.reshaped(tuple(affine.of(v) for v in variables), extents, dims)
        met = expressions(index)
        split = _split(met, variables, extents) if splits < _SPLITS else None
        if split is None:
            merged = _merged(met, variables, extents)
            return merged, variables if merged == extents else []
        extents = split
        splits += 1


def _split(met: list[Expr], variables: list[Variable], extents: Extents) -> Extents | None:
    """The extents with one of them cut so that some quotient or remainder vanishes."""
    for e in met:
        for part in e.parts():
            for k, v in enumerate(variables):
                inner = _divisor(part, v)
                if 1 < inner < extents[k] and extents[k] % inner == 0:
                    return (*extents[:k], extents[k] // inner, inner, *extents[k + 1 :])
    return None


def _divisor(part: DivMod, v: Variable) -> int:
    """The extent that an inner factor of v needs for the part to fall away; 1 if there is none."""
    coefficient = part.inner.terms.get(v)
    if coefficient is None:
        return 1
    return part.divisor // gcd(part.divisor, coefficient)


def _merged(met: list[Expr], variables: list[Variable], extents: Extents) -> Extents:
    steps = [tuple(_step(e, v) for e in met) for v in variables]
    result: list[int] = []
    for k, n in enumerate(extents):
        if k and _is_seamless(steps[k - 1], steps[k], n):
            result[-1] *= n
        else:
            result.append(n)
    return tuple(result)


def _step(e: Expr, v: Variable) -> int | None:
    """How far a step of v goes in e, None where that is not constant. A run-time value is where it
    was: what it is made of is met by itself.
    """
    if any(isinstance(a, DivMod) and a.inner.depends_on(v) for a in e.terms):
        return None
    return e.terms.get(v, 0)


def _is_seamless(outer: Sequence[int | None], inner: Sequence[int | None], extent: int) -> bool:
    return all(
        a is not None and b is not None and a == b * extent
        for a, b in zip(outer, inner, strict=True)
    )
