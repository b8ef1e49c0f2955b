"""table-lookup-mover: a function of an element of a constant table is an element of another table.

    loop: f(table[i])   =>   loop: f_of_table[i]

A search in a sorted table looks up an element a step and prepares it for the comparison: that is
longer than the look-up, and the table never changes. Totally ordered comparisons of such elements
become comparisons of integers first, so that the order's keys are prepared as well.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.while_loops.loop_state import element_index, is_extensible, unchanged_elements
from hlo.errors import HloError
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.graph import callers, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.machine import COMMON
from hlo.ops.making import make, make_constant
from hlo.ops.table import OPS, evaluation_keywords
from hlo.passes.liveness import awaited
from hlo.passes.rewriting import is_pinned

# The largest table: the old one and the new one stay in the cache.
MOST_BYTES = COMMON.first_cache.bytes
_KEYS = {dt.F16: dt.S16, dt.BF16: dt.S16, dt.F32: dt.S32, dt.F64: dt.S64}

Lookups = dict[Instruction, Instruction]  # what is computed from one look-up alone, and which


def table_lookup_mover(module: Module) -> bool:
    """Let loops look up functions of a constant table's elements in a table of their own.

    O(instructions of loops that look something up).
    """
    changed = False
    calls = callers(module)
    for computation in module.computations:
        for loop in computation.instructions:
            if loop.opcode == "while" and is_extensible(loop, calls):
                tables = _tables(loop)
                if tables:
                    body = loop.called_computations()[0]
                    changed |= _with_keys(body, tables)
                    changed |= _moved(body, tables)
    return changed


def _tables(loop: Instruction) -> dict[Instruction, np.ndarray]:
    """Values of the body that are one constant array in all iterations, looked up by slices."""
    body = loop.called_computations()[0]
    sources = {i.operands[0] for i in body.instructions if i.opcode == "dynamic-slice"}
    (start,) = loop.operands
    kept = unchanged_elements(body) if sources and start.opcode == "tuple" else set()
    found = {}
    for source in sources:
        origin = start.operands[element_index(source)] if source in kept else source
        literal = origin.get("literal") if origin.opcode == "constant" else None
        is_small = source.shape.size > 1 and source.shape.size_bytes <= MOST_BYTES
        if is_small and isinstance(literal, Literal) and not literal.is_elided:
            found[source] = literal.array
    return found


def _lookups(body: Computation, tables: dict[Instruction, np.ndarray]) -> Lookups:
    """All that is computed from one look-up, elements that are constants, and nothing else."""
    found: Lookups = {}
    kept = awaited(body)
    for i in post_order(body):
        if i in kept or "control-predecessors" in i.attributes or not i.shape.is_array:
            continue
        if i.opcode == "dynamic-slice" and i.operands[0] in tables:
            found[i] = i
        elif i.opcode == "reshape" and i.operands[0] in found:
            found[i] = found[i.operands[0]]
        elif is_elementwise(i) or _rereads(i):
            origins = {found.get(o) for o in i.operands if _constant(o) is None}
            if len(origins) == 1 and None not in origins:
                (origin,) = origins
                assert origin is not None, "a look-up"
                found[i] = origin
    return found


def _rereads(i: Instruction) -> bool:
    """Whether bits of an element are read as another type of the same width."""
    same = i.shape.is_array and i.operands and i.operands[0].shape.dims == i.shape.dims
    return i.opcode == "bitcast-convert" and bool(same)


def _constant(operand: Instruction) -> np.ndarray | None:
    """The one value of all elements of a constant."""
    if operand.opcode == "broadcast":
        (operand,) = operand.operands
    literal = operand.get("literal")
    is_known = operand.opcode == "constant" and isinstance(literal, Literal)
    if not is_known or not operand.shape.is_scalar:
        return None
    assert isinstance(literal, Literal), "a constant holds a literal"
    return None if literal.is_elided else literal.array


# -- keys of the total order -----------------------------------------------------------------------


def _with_keys(body: Computation, tables: dict[Instruction, np.ndarray]) -> bool:
    """x < y  =>  key(x) < key(y)  in the total order of floats, where one side is looked up."""
    found, kept = _lookups(body, tables), awaited(body)
    compares = [
        i
        for i in body.instructions
        if i.opcode == "compare"
        and i.get("type") == "TOTALORDER"
        and not (i in found or i in kept or is_pinned(i))
        and any(o in found for o in i.operands)
        and i.operands[0].shape.dtype in _KEYS
    ]
    for compare in compares:
        x, y = (_key(o) for o in compare.operands)
        direction = compare["direction"]
        body.replace_uses(compare, make(compare, "compare", x, y, direction=direction))
        body.remove(compare)
    return bool(compares)


def _key(x: Instruction) -> Instruction:
    """i ^ (i >> all, as bits without the sign): integers in the order of the floats x."""
    key = _KEYS[x.shape.dtype]
    most = np.iinfo(key.numpy).max
    bits = make(x, "bitcast-convert", x, shape=x.shape.with_dtype(key))
    sign = make(x, "shift-right-arithmetic", bits, _filled(bits, key.bits - 1))
    return make(x, "xor", bits, make(x, "and", sign, _filled(bits, int(most))))


def _filled(like: Instruction, value: int) -> Instruction:
    scalar = Shape.array(like.shape.dtype, ())
    one = make_constant(like, Literal.of(np.array(value, like.shape.dtype.numpy), scalar))
    if like.shape.is_scalar:
        return one
    return make(like, "broadcast", one, shape=like.shape, dimensions=())


# -- tables of functions ---------------------------------------------------------------------------


def _moved(body: Computation, tables: dict[Instruction, np.ndarray]) -> bool:
    """Each value that the rest of the body takes from a look-up, out of a table of its own.

    All tables are known before the first edit: one end may be computed from another.
    """
    found = _lookups(body, tables)
    functions = _functions_of_tables(found, tables)
    ends = [i for i in _ends(found) if i in functions]
    for last in ends:
        lookup = found[last]
        shape = Shape.array(last.shape.dtype, lookup.operands[0].shape.dims)
        table = make_constant(last, Literal.of(functions[last], shape))
        _, *starts = lookup.operands
        sizes = lookup["dynamic_slice_sizes"]
        element = make(last, "dynamic-slice", table, *starts, dynamic_slice_sizes=sizes)
        if element.shape != last.shape:
            element = make(last, "reshape", element, shape=last.shape)
        body.replace_uses(last, element)
    return bool(ends)


def _ends(found: Lookups) -> Iterator[Instruction]:
    """What is computed from a look-up and used by anything else."""
    for instruction in found:
        if instruction.opcode in ("dynamic-slice", "reshape"):
            continue
        if instruction.is_root or any(user not in found for user in instruction.users):
            yield instruction


def _functions_of_tables(
    found: Lookups, tables: dict[Instruction, np.ndarray]
) -> dict[Instruction, np.ndarray]:
    """The values for every element of the table; without those that the reference refuses."""
    values: dict[Instruction, np.ndarray] = {}
    for i, lookup in found.items():
        table = tables[lookup.operands[0]]
        if i is lookup:  # its place may be a function of another look-up: it stays as it is
            values[i] = table
            continue
        known = [values.get(o) if o in found else _constant(o) for o in i.operands]
        arrays = [np.broadcast_to(k, table.shape) for k in known if k is not None]
        if len(arrays) == len(known):
            value = arrays[0] if i.opcode == "reshape" else _evaluated(i, arrays)
            if value is not None:
                values[i] = value
    return values


def _evaluated(instruction: Instruction, arrays: list[np.ndarray]) -> np.ndarray | None:
    keywords = evaluation_keywords(instruction)
    try:
        with np.errstate(all="ignore"):
            return np.asarray(OPS[instruction.opcode].evaluate(*arrays, **keywords))
    except HloError:
        return None
