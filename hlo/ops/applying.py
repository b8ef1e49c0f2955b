"""Applying a scalar computation to whole arrays, element by element in meaning, at once in fact."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from hlo.ops.callee import Callee


Array = np.ndarray


def applied(callee: Callee, arrays: Sequence[Array]) -> tuple[Array, ...]:
    """The results of `callee` on each element of equally shaped arrays, one array per result."""
    results = callee.program_shape.result
    shapes = results.elements if results.is_tuple else (results,)
    extents = arrays[0].shape if arrays else ()
    if callee.is_elementwise:
        called = callee(*arrays)
        values = called if isinstance(called, tuple) else (called,)
        return tuple(np.broadcast_to(np.asarray(v), extents) for v in values)
    columns = [np.empty(extents, s.dtype.numpy) for s in shapes]
    for index in np.ndindex(*extents):
        called = callee(*(a[index].reshape(()) for a in arrays))
        values = called if isinstance(called, tuple) else (called,)
        for column, value in zip(columns, values, strict=True):
            column[index] = value
    return tuple(columns)
