"""Transposed loads: a square of elements read by rows and turned in registers.

positions p, p+1, .. p+n-1, lanes a constant stride apart  =>  one row load per lane, log2(n) rounds
of interleaving (row k with row k + n/2), n vectors with the lanes that were asked for.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.codegen import types
from hlo.backend.codegen.access import Memory, mask_of, stride
from hlo.backend.codegen.indexing import Atom, Expr, Variable
from hlo.backend.codegen.nest import Nest
from hlo.backend.codegen.permuted import permuted
from hlo.backend.codegen.types import Lanes
from hlo.backend.codegen.writer import Value, vector_of


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
    if n == 16 and rows[0].type == "<16 x i16>":
        return _transposed_halves(nest, rows)
    for _ in range(n.bit_length() - 1):
        rows = _interleaved(nest, rows, n)
    return rows


def _transposed_halves(nest: Nest, rows: list[Value]) -> list[Value]:
    """Two registers' halves exchanged, then interleaving inside of halves only, which is cheaper
    than across them for elements of 16 bits.
    """
    n = len(rows)
    half = n // 2
    turned: list[Value] = []
    for which in (0, 1):
        first = range(which * half, which * half + half)
        order = [*first, *(n + lane for lane in first)]
        block = [permuted(nest, rows[k], rows[half + k], order) for k in range(half)]
        for _ in range(half.bit_length() - 1):
            block = _interleaved(nest, block, half)
        turned += block
    return turned


def _interleaved(nest: Nest, rows: list[Value], width: int) -> list[Value]:
    """Row k's lanes between those of row k + n/2, inside of each `width` lanes."""
    n = len(rows)
    lanes = rows[0].lanes
    mixed: list[Value] = []
    for k in range(n // 2):
        for start in (0, width // 2):
            order = [
                base + start + lane // 2 + lane % 2 * lanes
                for base in range(0, lanes, width)
                for lane in range(width)
            ]
            mixed.append(permuted(nest, rows[k], rows[k + n // 2], order))
    return mixed
