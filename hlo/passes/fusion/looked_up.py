"""Looked-up values: whether what gathers read of a computed array is computed once, before them.

    gather(divide(x, y), i)  =>  a kernel for divide(x, y), one that gathers from its result

A gather of single elements goes to the load ports once for each lane and each array, while the
array's own kernel reads whole vectors. So what is computed of several arrays is kept as soon as
gathers take as many elements as it has. Slices of several elements are read in vectors; then it
takes more repeats until memory costs less than the arithmetic.
"""

from __future__ import annotations

from hlo.analysis.fusibility import is_elementwise
from hlo.ir.instruction import Instruction
from hlo.ops.table import Trait, has_trait
from hlo.passes.fusion.axes import takes_elements

_MANY_SLICES = 8  # Elements of slices for each that is computed.
_LEAST_ELEMENTS = 256  # Of fewer, the lookups take less time than a kernel more does.
_MOST_SEARCHED = 16


def is_looked_up_often(producer: Instruction) -> bool:
    """Whether it is computed of several arrays, and all that reads it are gathers of many elements,
    as a node's value along all its edges: each would gather from all of these arrays, and do the
    arithmetic again.
    """
    if not is_elementwise(producer) or not producer.shape.dims or not producer.users:
        return False
    if any(u.opcode != "gather" or producer in u.operands[1:] for u in producer.users):
        return False
    read, size = sum(u.shape.size for u in producer.users), producer.shape.size
    if all(map(takes_elements, producer.users)):
        return read >= max(size, _LEAST_ELEMENTS) and _reads_several_arrays(producer)
    return read >= _MANY_SLICES * size and _reads_several_arrays(producer)


def _reads_several_arrays(producer: Instruction) -> bool:
    """Whether the expression that would be computed with it reads more than one array of as many
    elements. What is counted or spread over them is none."""
    found: set[Instruction] = set()
    pending, left = [producer], _MOST_SEARCHED
    while pending and left and len(found) < 2:
        left -= 1
        for operand in pending.pop().operands:
            if is_elementwise(operand) and len(operand.users) == 1:
                pending.append(operand)
            elif operand.opcode != "iota" and not has_trait(operand, Trait.REPEATS):
                found.add(operand)
    return len(found) > 1
