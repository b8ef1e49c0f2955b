"""Block sums: results that are sums over blocks, as the gradients of a product's shared factor are.

Each block adds its part, in the order of the blocks. In a loop that a block runs by itself, what
trips add to an element of the state is such a sum, too: each block begins with zero, or with what
the blocks before it have added up.
"""

from __future__ import annotations

from hlo.analysis.blocks.block import SUMMED, WHOLE, Block, Cut
from hlo.analysis.blocks.rules import is_whole_array, led_span
from hlo.analysis.fusibility import is_scalar_constant, is_zero
from hlo.analysis.reducers import reducer_of
from hlo.ir.instruction import Instruction
from hlo.ops.contraction import DotAttributes
from hlo.ops.reduction import ReduceAttributes


def may_be_summed(instruction: Instruction) -> bool:
    """Whether some instruction of its opcode is a sum of what blocks give."""
    return instruction.opcode in ("dot", "scatter")


def is_summed(instruction: Instruction, block: Block) -> bool:
    """Whether an instruction is a sum of what the blocks along the last cut dimension give."""
    return bool(summed_cuts(instruction, block))


def is_in_order(root: Instruction) -> bool:
    """Whether a sum over blocks is one after the other, as a scatter's is: no parts are made."""
    return root.opcode == "scatter"


def summed_cuts(instruction: Instruction, block: Block) -> list[Cut]:
    """What every block adds up of an instruction that is a sum over blocks, and how it is cut;
    none where it is no such sum. A product's type has to hold partial sums as well as whole ones.
    """
    if not may_be_summed(instruction):
        return []
    shapes = (instruction.shape, *(o.shape for o in instruction.operands))
    if not all(map(is_whole_array, shapes)) or "control-predecessors" in instruction.attributes:
        return []
    summed = _summed_factors if instruction.opcode == "dot" else _summed_updates
    return summed(instruction, block)


def _summed_factors(dot: Instruction, block: Block) -> list[Cut]:
    """dot(x, y) where both begin with the cut dimensions, of which the last is contracted and the
    others are its batch, in the order in which the result has them: every block adds the product
    of its parts to the same elements.
    """
    if "sparsity" in dot.attributes:
        return []
    dims = DotAttributes.of(dot.attributes).dims
    sides = ((dims.lhs_batch, dims.lhs_contracting), (dims.rhs_batch, dims.rhs_contracting))
    found: list[tuple[tuple[int, ...], int]] = []
    for operand, (batch, depth) in zip(dot.operands, sides, strict=True):
        places = block.places(operand.shape, block.all)
        if places is None or places[-1] not in depth or not set(places[:-1]) <= set(batch):
            return []
        found.append((tuple(map(batch.index, places[:-1])), depth.index(places[-1])))
    is_sum = found[0] == found[1] and found[0][0] == block.places(dot.shape, block.outer)
    return [(operand, block.all) for operand in dot.operands] if is_sum else []


def _summed_updates(scatter: Instruction, block: Block) -> list[Cut]:
    """scatter(0, indices, updates) where updates begin with the cut dimensions, of which the last
    is none of the table's, and the others are its first ones: every block adds its updates to the
    same elements, those of earlier rows first, as the scatter does.
    """
    from hlo.analysis.lookups import is_sum_from_zero, lookup_of  # for programs with one

    found = lookup_of(scatter)
    if found is None or not is_sum_from_zero(scatter):
        return []
    _, indices, updates = scatter.operands
    places = block.places(updates.shape, block.all)
    if places is None or found.of_table[places[-1]] is not None:
        return []
    if tuple(found.of_table[p] for p in places[:-1]) != block.places(scatter.shape, block.outer):
        return []
    read = led_span(found.indices_steps(indices.shape), indices.shape.dims, places)
    return [] if read is None else [(indices, read), (updates, block.all)]


def added_cuts(instruction: Instruction, block: Block) -> list[Cut] | None:
    """The operands of which blocks have parts where an instruction is the sum over all blocks of
    what each makes of its own, and how these are cut; None where it is no such sum.
    """
    match instruction.opcode:
        case "add" | "tuple" | "get-tuple-element" | "reshape" | "transpose" | "copy":
            return [(operand, SUMMED) for operand in instruction.operands]
        case "multiply" | "divide":
            return _scaled(instruction)
        case "dot":
            return summed_cuts(instruction, block) or None
        case "reduce":
            return _added_rows(instruction, block)
    return [] if is_zero(instruction) else None


def _scaled(product: Instruction) -> list[Cut] | None:
    """A multiple of a sum by one number. Of integers a quotient is none: it is cut off."""
    left, right = product.operands
    if product.opcode == "divide" and product.shape.dtype.is_integral:
        return None
    if is_spread_number(right):
        return [(left, SUMMED), (right, WHOLE)]
    if is_spread_number(left) and product.opcode == "multiply":
        return [(left, WHOLE), (right, SUMMED)]
    return None


def _added_rows(reduction: Instruction, block: Block) -> list[Cut] | None:
    """reduce(x, 0), add: of all cut dimensions, with which x begins, or of a sum over blocks."""
    if len(reduction.operands) != 2 or reducer_of(reduction).opcodes != ("add",):
        return None
    rows, start = reduction.operands
    places = block.places(rows.shape, block.all)
    dims = ReduceAttributes.of(reduction.attributes).dimensions
    if not is_zero(start):
        return None
    is_over_rows = places is not None and set(places) <= set(dims)
    return [(rows, block.all if is_over_rows else SUMMED), (start, WHOLE)]


def is_spread_number(value: Instruction) -> bool:
    """Whether a value is a constant number everywhere."""
    is_spread = value.opcode == "broadcast"
    return is_scalar_constant(value.operands[0] if is_spread else value)
