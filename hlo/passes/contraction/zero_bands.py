"""zero-bands: dots say outside of which diagonals a factor is zero, for their kernels to look.

    dot(select(iota >= iota, x, 0), y)  =>  .., backend_config={"hlo":{"zeros":[[0,0,1,-699,0]]}}

A triangular factor's product is half the work. Whether it may be left out, the run decides: it
looks whether the factor is zero there and what it meets is finite
(contraction/products/zero_check.py), so that what is said here need not be proved, and other passes
may do with the dot what they like.
"""

from __future__ import annotations

from hlo.analysis.bands import Band, Truth, bands_of
from hlo.analysis.decisions import Decisions, config_of
from hlo.indexing.queries import kept_dims
from hlo.ir.dtype import F32, F64
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.contraction import DotAttributes
from hlo.ops.table import Trait, opcodes
from hlo.passes.patterns.matching import is_plain, is_splat

LEAST = 64  # Rows, columns and depths of a product worth a look.
MOST_STEPS = 8  # From a factor back to its mask.
_MOVED = opcodes(Trait.REPEATS | Trait.REGROUPS | Trait.PERMUTES) | frozenset({"copy"})
Zeros = tuple[int, int, Band]  # two dimensions, and the band of elements that are not zero


def zero_bands(module: Module) -> bool:
    """Say of dots outside of which diagonals a masked factor is zero. O(instructions)."""
    changed = False
    for computation in module.computations:
        for dot in computation.instructions:
            if not _is_looked_at(dot):
                continue
            found = [(side, zeros_of(operand)) for side, operand in enumerate(dot.operands)]
            said = tuple([(side, *z[:2], z[2].low, z[2].high) for side, z in found if z])
            config = config_of(Decisions(zeros=said))
            if said and dot.attributes.get("backend_config") != config:
                attributes = {**dot.attributes, "backend_config": config}
                computation.set_attributes(dot, attributes)
                changed = True
    return changed


def _is_looked_at(dot: Instruction) -> bool:
    """Whether it is a product of matrices, large enough, which says nothing else yet."""
    if dot.opcode != "dot" or "sparsity" in dot.attributes or not is_plain(dot.shape):
        return False
    config = dot.attributes.get("backend_config", "")
    if dot.shape.dtype not in (F32, F64) or (config and '"zeros"' not in str(config)):
        return False
    dims = DotAttributes.of(dot.attributes).dims
    if len(dims.lhs_contracting) != 1 or dot.shape.rank != len(dims.lhs_batch) + 2:
        return False
    depth = dot.operands[0].shape.dims[dims.lhs_contracting[0] :][:1]
    return min(*dot.shape.dims[-2:], *depth) >= LEAST


def zeros_of(value: Instruction, steps: int = MOST_STEPS) -> Zeros | None:
    """Where a value may be something else than zero; None where nothing is known."""
    if not steps or not value.operands:
        return None
    if value.opcode in _MOVED:
        return _moved(value, zeros_of(value.operands[0], steps - 1))
    match value.opcode:
        case "select":
            return _selected(value)
        case "convert" if value.operands[0].shape.dtype.is_pred:
            truth = bands_of(value.operands[0])
            return _known(value, truth, truth.true) if truth else None
        case "multiply":
            found = (zeros_of(operand, steps - 1) for operand in value.operands)
            return next((zeros for zeros in found if zeros), None)
        case "negate" | "abs" | "convert" | "divide":  # zero where the first operand is
            return zeros_of(value.operands[0], steps - 1)
    return None


def _selected(select: Instruction) -> Zeros | None:
    predicate, on_true, on_false = select.operands
    is_zero = [is_splat(side, 0) for side in (on_true, on_false)]
    if predicate.shape.dims != select.shape.dims or is_zero.count(True) != 1:
        return None
    truth = bands_of(predicate)
    if truth is None:
        return None
    return _known(select, truth, truth.false if is_zero[0] else truth.true)


def _moved(value: Instruction, zeros: Zeros | None) -> Zeros | None:
    """Of elements that stand elsewhere."""
    if zeros is None:
        return None
    places = kept_dims(value, 0)
    first, second = places[zeros[0]], places[zeros[1]]
    return None if first is None or second is None else (first, second, zeros[2])


def _known(value: Instruction, truth: Truth, band: Band) -> Zeros | None:
    """A band that is not the whole array, within it."""
    rows, columns = (value.shape.dims[d] for d in (truth.first, truth.second))
    whole = Band(1 - rows, columns - 1)
    own = band.meet(whole)
    return None if own == whole or own.is_none else (truth.first, truth.second, own)
