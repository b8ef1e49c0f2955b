"""Reading: what an expression reads, by name, as a loop schedule shows it."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.backend.emitters.elemental import Elemental, Path
from hlo.backend.emitters.trace import reduced_index, trace
from hlo.backend.lanes.access import Memory
from hlo.indexing import affine
from hlo.indexing.affine import Index, Variable
from hlo.ir.instruction import Instruction


def read_by(elemental: Elemental, fold: Instruction) -> tuple[str, ...]:
    """What a reduce or reduce-window reads."""
    dims = fold.shape.elements[0].dims if fold.shape.is_tuple else fold.shape.dims
    if fold.opcode == "reduce":
        at = tuple(affine.of(Variable(f"d{k}", 0, max(n - 1, 0))) for k, n in enumerate(dims))
        index, _ = reduced_index(fold, at)
    else:
        index = free_index(fold.operands[0].shape.dims)
    arrays = fold.operands[: len(fold.operands) // 2]
    return names_read(elemental, [(x, index, ()) for x in arrays])


def free_index(dims: Sequence[int]) -> Index:
    """An index that may be any."""
    return tuple(affine.of(Variable("any", 0, max(n - 1, 0))) for n in dims)


def names_read(
    elemental: Elemental, roots: list[tuple[Instruction, Index, Path]]
) -> tuple[str, ...]:
    """Operands p0, p1, ..; folds and kept values by their names, these only where they are read.

    The first that computes a kept value fills it meanwhile.
    """
    own, filled = elemental.memory, {}
    base = next(iter(own.values()), None)
    for kept, saved in elemental.saved.items():
        if saved.is_filled and base is not None:
            filled[kept, ()] = Memory(base.base, base.dtype, 0, -1)
    elemental.memory = own | filled
    try:
        found = trace(elemental, roots)
    finally:
        elemental.memory = own
    leaves = sorted({r.leaf for r in found.reads if r.leaf >= 0})
    values = [r.source.name for r in found.reads if r.leaf < 0]
    values += [fold.name for fold, _ in found.reductions]
    return (*(f"p{leaf}" for leaf in leaves), *dict.fromkeys(values))
