"""Small tables: an array of which a register or two hold all elements is read by a permutation.

    lanes of table[index]  =  picked(registers, index)        for 2 to 16 or 32 f32, u32, s32

Codes of four bits, classes, kinds of atoms: a gather goes to the load ports once for each lane, a
permutation takes a cycle. The registers are loaded once, where the function begins: what kernels
read lane by lane, they do not write. Indices are those of elements of the array; a lane for which
none holds gets any element, and touches no memory.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, vector_of
from hlo.backend.lanes import masked
from hlo.backend.lanes.nest import Nest
from hlo.indexing.affine import Expr

_WORDS = ("float", "i32")


def looked_up(nest: Nest, base: Value, size: int, position: Expr, element: str) -> Value | None:
    """The elements at the position of an array of `size` elements; None where registers do not
    hold it, or nothing picks from them."""
    w, isa, lanes, widest = nest.w, nest.target.isa, position.lanes, nest.target.isa.lookup_lanes
    if element not in _WORDS or not 1 < lanes <= widest or size < 2:
        return None
    type = vector_of("float", widest)
    if size > (2 * widest if isa.picks(type) else widest):
        return None
    index = nest.lane_values(position, lanes, "i32")
    if lanes < widest:
        index = w.shuffle(index, None, [k % lanes for k in range(widest)])
    with nest.at(0) as level:
        key = ("small table", base.text, size)
        if key not in level.memo:
            level.memo[key] = _registers(nest, base, size, type)
        registers = level.memo[key]
    assert isinstance(registers, tuple), "registers under this key"
    found = isa.picked(w, registers, index)
    if found is None:
        return None
    if lanes < widest:
        found = w.shuffle(found, None, range(lanes))
    return found if element == "float" else w.cast("bitcast", found, vector_of(element, lanes))


def _registers(nest: Nest, base: Value, size: int, type: str) -> tuple[Value, ...]:
    """The array's elements, zeros behind them."""
    w, lanes = nest.w, nest.target.isa.lookup_lanes
    found = []
    for first in range(0, size, lanes):
        count = min(lanes, size - first)
        mask = masked.constant_mask([k < count for k in range(lanes)]) if count < lanes else None
        address = w.address(base, w.int(first), "float")
        found.append(masked.load(w, type, address, 1, mask))
    return tuple(found)
