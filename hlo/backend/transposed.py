"""Transposed loads: a square of elements read by rows and turned in registers.

positions p, p+1, .. p+n-1, lanes a constant stride apart  =>  one row load per lane, log2(n) rounds
of interleaving (row k with row k + n/2), n vectors with the lanes that were asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend import types
from hlo.backend.access import Memory, mask_of, stride
from hlo.backend.indexing import Atom, Expr, Variable
from hlo.backend.nest import Nest
from hlo.backend.types import Lanes
from hlo.backend.writer import Value, vector_of


def is_square(positions: Sequence[Expr]) -> bool:
    """Whether the positions are one square: as many as lanes, neighbours in memory."""
    first = positions[0]
    lanes = first.lanes
    if lanes < 4 or len(positions) != lanes:
        return False
    step = stride(first)
    if step is None or abs(step) < 2 or not _is_known(mask_of(first)):
        return False
    return all(
        p.terms == first.terms and p.constant == first.constant + k for k, p in enumerate(positions)
    )


def _is_known(mask: object) -> bool:
    return mask is None or (isinstance(mask, Value) and mask.text.startswith("<"))


def load_square(nest: Nest, memory: Memory, positions: Sequence[Expr]) -> list[Lanes]:
    """The lanes at each position."""
    w = nest.w
    first = positions[0]
    lanes = first.lanes
    element = types.storage_scalar(memory.dtype)
    type = vector_of(element, lanes)
    mask = mask_of(first)
    live = lanes if mask is None else mask.text.count("i1 1")
    step = stride(first)
    assert step is not None
    # Lane 0 of the loop variable is its scalar value; lane l lies l steps further.
    base = Expr({_scalar(a): k for a, k in first.terms.items()}, first.constant)
    pointer = nest.pointer(memory.base, base, element)
    rows = []
    for lane in range(lanes):
        if lane < live:
            at = w.address(pointer, w.int(lane * step), element) if lane else pointer
            rows.append(w.load(at, type, 1))
        else:
            rows.append(w.zero(type))
    turned = transposed(nest, rows)
    return [types.decoded(w, nest.target, raw, memory.dtype) for raw in turned]


def _scalar(atom: Atom) -> Atom:
    """A loop variable over lanes as the position of its lane 0."""
    if atom.lanes == 1:
        return atom
    assert isinstance(atom, Variable), "lanes lie a constant stride apart"
    return Variable(atom.name, atom.low, atom.high, atom.depth, 1, atom.value)


def transposed(nest: Nest, rows: list[Value]) -> list[Value]:
    """n vectors of n lanes turned: result k holds lane k of every row."""
    n = len(rows)
    w = nest.w
    low = ", ".join(f"i32 {lane // 2 + lane % 2 * n}" for lane in range(n))
    high = ", ".join(f"i32 {n // 2 + lane // 2 + lane % 2 * n}" for lane in range(n))
    rounds = n.bit_length() - 1
    for _ in range(rounds):
        mixed: list[Value] = []
        for k in range(n // 2):
            pair = f"{rows[k].typed}, {rows[k + n // 2].typed}"
            for order in (low, high):
                mixed.append(w.pure(rows[k].type, f"shufflevector {pair}, <{n} x i32> <{order}>"))
        rows = mixed
    return rows
