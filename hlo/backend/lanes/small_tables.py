"""Small tables: what lanes choose from a few registers is picked by permutations, not gathered.

    lanes of table[row + index]  =  picked(registers of the row, index)

Codes of four bits, classes, kinds of atoms, fields of a board, coordinates in another order: a
gather goes to the load ports once for each lane, a permutation of one or two registers takes a
cycle. Of up to twice as many the index chooses between two permutations. The registers are loaded
once where the row is known, of a whole array where the function begins: what kernels read lane by
lane, they do not write. Numbers of 8 and 16 bits are words there; of more than registers hold so
(256 bytes: a tone curve, a substitution) they are parts of words, which a shift brings down, in
0.27 of the time of a gather on Zen 5. Indices are those of elements of the row; a lane for which
none holds gets any element, and touches no memory.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, vector_of
from hlo.backend.lanes import masked
from hlo.backend.lanes.nest import Nest
from hlo.indexing.affine import ZERO, Expr

_BITS = {"float": 32, "i32": 32, "i16": 16, "i8": 8}
_MOST_PICKS = 2  # Permutations that take less than a gather.
_LEAST_LANES = 4  # Fewer are loaded in less time than a row is.


def looked_up(nest: Nest, base: Value, size: int, position: Expr, element: str) -> Value | None:
    """The elements at the position of an array of `size` elements; None where registers do not
    hold those that lanes choose from, or nothing picks from them."""
    if not holds(nest, size, position, element):
        return None
    w, lanes, widest, bits = nest.w, position.lanes, nest.target.isa.lookup_lanes, _BITS[element]
    first, place, count = _row(size, position)
    in_word = _in_word(nest, count, bits)
    index = nest.lane_values(place, lanes, "i32")
    shift = None
    if in_word > 1:
        part = w.binary("and", index, w.int(in_word - 1, index.type))
        shift = w.binary("mul", part, w.int(bits, index.type))
        index = w.binary("lshr", index, w.int(in_word.bit_length() - 1, index.type))
    if lanes < widest:
        index = w.shuffle(index, None, [k % lanes for k in range(widest)])
    with nest.at(first.depth) as level:
        key = ("small table", base.text, first, count)
        if key not in level.memo:
            address = nest.pointer(base, first, element)
            level.memo[key] = _registers(nest, address, element, count, in_word)
        registers = level.memo[key]
    assert isinstance(registers, tuple), "registers under this key"
    found = _picked(nest, registers, index)
    if lanes < widest:
        found = w.shuffle(found, None, range(lanes))
    if element == "float":
        return found
    found = w.cast("bitcast", found, vector_of("i32", lanes))
    if shift is not None:
        found = w.binary("lshr", found, shift)
    return found if bits == 32 else w.cast("trunc", found, vector_of(element, lanes))


def holds(nest: Nest, size: int, position: Expr, element: str) -> bool:
    """Whether registers hold what lanes choose from, and something picks from them."""
    isa, lanes, bits = nest.target.isa, position.lanes, _BITS.get(element)
    if bits is None or not 1 < lanes <= isa.lookup_lanes:
        return False
    first, _, count = _row(size, position)
    if not 1 < count <= _most_words(nest) * _in_word(nest, count, bits):
        return False
    if lanes < _LEAST_LANES and not first.is_constant:
        return False
    return bits == 32 or isa.masks_loads_of(bits)


def _most_words(nest: Nest) -> int:
    return _MOST_PICKS * nest.target.isa.picked_at_once * nest.target.isa.lookup_lanes


def _in_word(nest: Nest, count: int, bits: int) -> int:
    """How many of so many elements a word holds."""
    return 1 if count <= _most_words(nest) else 32 // bits


def _picked(nest: Nest, registers: tuple[Value, ...], index: Value) -> Value:
    """Lanes of as many registers as are picked from at once, or of those behind."""
    w, isa = nest.w, nest.target.isa
    at_once = isa.picked_at_once
    parts = registers[:at_once], registers[at_once:]
    found = [isa.picked(w, part, index) for part in parts if part]
    first, behind = found[0], found[-1]
    assert first is not None, "registers that it picks from"
    assert behind is not None, "no more of them"
    if len(found) == 1:
        return first
    is_behind = w.compare("icmp sge", index, w.int(at_once * isa.lookup_lanes, index.type))
    return w.select(is_behind, behind, first)


def _row(size: int, position: Expr) -> tuple[Expr, Expr, int]:
    """Where what lanes choose from begins, their places behind that, and how many places there
    are: the whole array where a position may lie outside of it.
    """
    lanes = Expr({a: k for a, k in position.terms.items() if a.lanes > 1}, 0)
    if position.low < 0 or position.high >= size:
        return ZERO, position, size
    first = Expr({a: k for a, k in position.terms.items() if a.lanes == 1}, position.constant)
    return first + lanes.low, lanes - lanes.low, lanes.high - lanes.low + 1


def _registers(
    nest: Nest, address: Value, element: str, count: int, in_word: int
) -> tuple[Value, ...]:
    """So many elements, so many of them in a word as they lie in memory, zeros behind them."""
    w, lanes = nest.w, nest.target.isa.lookup_lanes
    whole = lanes * in_word
    found = []
    for first in range(0, count, whole):
        held = min(whole, count - first)
        mask = masked.constant_mask([k < held for k in range(whole)]) if held < whole else None
        start = w.address(address, w.int(first), element)
        row = masked.load(w, vector_of(element, whole), start, 1, mask)
        if in_word == 1 and _BITS[element] < 32:
            row = w.cast("zext", row, vector_of("i32", lanes))
        found.append(
            row if element == "float" else w.cast("bitcast", row, vector_of("float", lanes))
        )
    return tuple(found)
