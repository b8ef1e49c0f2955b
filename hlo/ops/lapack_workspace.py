"""Sizes of LAPACK's workspaces: what each routine must have, and room for blocks of columns.

The numbers decide how LAPACK blocks its work, hence its rounding: the interpreter and compiled code
take them from here. Source: the "LWORK" paragraphs of LAPACK's reference.
"""

from __future__ import annotations

from collections.abc import Callable

BLOCK = 64  # the largest block of columns that LAPACK works on
REFLECTORS = (BLOCK + 1) * BLOCK  # where gehrd and ormqr keep a block's triangular factor

# name -> (rows, columns, smaller, larger of the two, with vectors) -> least elements
_LEAST: dict[str, Callable[[int, int, int, int, bool], int]] = {
    "geqp3": lambda m, n, least, most, v: 3 * n + 1,
    "real gesdd": lambda m, n, least, most, v: (
        4 * least * least + most + 9 * least if v else 14 * least + 4 + 25 * 33 + most
    ),
    "complex gesdd": lambda m, n, least, most, v: 2 * least * least * v + most + 2 * least,
    "gesvd": lambda m, n, least, most, v: 2 * least * least + 5 * least + most,
    "real syevd": lambda m, n, least, most, v: 1 + 6 * n + 2 * n * n if v else 2 * n + 1,
    "complex heevd": lambda m, n, least, most, v: 2 * n + n * n if v else n + 1,
    "geev": lambda m, n, least, most, v: 4 * n,
    "gees": lambda m, n, least, most, v: 3 * n,
}


def work_size(letter: str, name: str, rows: int, columns: int, *, vectors: bool = True) -> int:
    """Elements of `work` for a routine on a matrix, as real or complex numbers."""
    kind = "real" if letter in "sd" else "complex"
    least = _LEAST.get(name) or _LEAST.get(f"{kind} {name}")
    small, large = sorted((rows, columns))
    needed = least(rows, columns, small, large, vectors) if least else large
    return needed + BLOCK * (rows + columns + 1) + REFLECTORS


def integer_work_size(size: int, *, vectors: bool) -> int:
    """Elements of syevd's and heevd's `iwork`."""
    return 3 + 5 * size if vectors else 1


def real_work_size(size: int, *, vectors: bool) -> int:
    """Elements of heevd's `rwork`."""
    return 1 + 5 * size + 2 * size * size if vectors else max(size, 1)
