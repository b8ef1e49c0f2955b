"""Updates applied one after the other to elements of an array, several at once where none collide.

for k in order: result[targets[k]] = f(result[targets[k]], updates[k])
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from hlo.ops.applying import applied
from hlo.ops.axis_reductions import ARITHMETIC, combined, narrowed, operations, widened
from hlo.ops.numerics.representation import Array, dtype_of

if TYPE_CHECKING:
    from hlo.ops.callee import Callee


def accumulated_at(
    f: Callee, results: Sequence[Array], targets: Array, updates: Sequence[Array]
) -> tuple[Array, ...]:
    """The arrays after all updates; targets[m] are linear indices, updates[m] for each array."""
    n = len(results)
    simple = operations(f.computation, n)
    if simple:
        at_once = [*map(_has_ufunc, simple, results)]
        turns = results if all(at_once) else _called_at(f, results, targets, updates)
        columns = zip(at_once, simple, results, updates, turns, strict=True)
        return tuple(_summed_at(o, r, targets, u) if a else t for a, o, r, u, t in columns)
    if _is_replacement(f, n):
        return tuple(_replaced_at(r, targets, u) for r, u in zip(results, updates, strict=True))
    return _called_at(f, results, targets, updates)


def _has_ufunc(operation: str, result: Array) -> bool:
    """Not the maximum of floats, whose zeros NumPy does not order."""
    return operation not in ("maximum", "minimum") or not dtype_of(result).is_float


def _summed_at(operation: str, result: Array, targets: Array, updates: Array) -> Array:
    """All updates of an element reduced with it at once: sorted by element, one run each."""
    flat = np.array(result).reshape(-1)
    if not len(targets):
        return flat.reshape(result.shape)
    dtype = dtype_of(result)
    order = np.argsort(targets, kind="stable")
    in_order = targets[order]
    starts = np.flatnonzero(np.diff(in_order, prepend=-1))
    touched = in_order[starts]
    with np.errstate(all="ignore"):
        sums = ARITHMETIC[operation].reduceat(widened(updates[order], dtype), starts)
        sums = sums.astype(widened(flat[:0], dtype).dtype)  # NumPy widens sums of small integers
    flat[touched] = narrowed(combined(operation, widened(flat[touched], dtype), sums), dtype)
    return flat.reshape(result.shape)


def _is_replacement(f: Callee, n: int) -> bool:
    """Whether f returns its updates."""
    root = f.computation.root
    results = root.operands if root.opcode == "tuple" else (root,)
    return [r.attributes.get("parameter_number") for r in results] == list(range(n, 2 * n))


def _replaced_at(result: Array, targets: Array, updates: Array) -> Array:
    flat = np.array(result).reshape(-1)
    last = len(targets) - 1 - np.unique(targets[::-1], return_index=True)[1]
    flat[targets[last]] = updates[last]
    return flat.reshape(result.shape)


def _called_at(
    f: Callee, results: Sequence[Array], targets: Array, updates: Sequence[Array]
) -> tuple[Array, ...]:
    """In rounds: the k-th update of every element in round k."""
    flat = [np.array(r).reshape(-1) for r in results]
    order = np.argsort(targets, kind="stable")
    sorted_targets = targets[order]
    starts = np.flatnonzero(np.diff(sorted_targets, prepend=-1))
    lengths = np.diff(starts, append=len(targets))
    for turn in range(int(lengths.max(initial=0))):
        chosen = order[starts[lengths > turn] + turn]
        at = targets[chosen]
        stepped = applied(f, (*(r[at] for r in flat), *(u[chosen] for u in updates)))
        for column, values in zip(flat, stepped, strict=True):
            column[at] = values
    return tuple(c.reshape(r.shape) for c, r in zip(flat, results, strict=True))
