"""Reading: what an expression reads, by name, as a loop schedule shows it."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.loops.expression import Leaf, Node, Path
from hlo.backend.loops.schedule import Reduction
from hlo.backend.loops.trace import reduced_index, trace
from hlo.indexing import affine
from hlo.indexing.affine import Index, Variable
from hlo.ir.dtype import F32
from hlo.ir.instruction import Instruction


def shown(elemental: Elemental, fold: Instruction, form: Reduction) -> Reduction:
    """How a reduce or reduce-window is made, with what it reads and leaves for later stages."""
    roots = _arrays(fold)
    met = trace(elemental.expression, roots)
    asked = {*met.heavy_at, *met.rounded_at, *(read.source for read in met.reads)}
    saved = elemental.saved.items()
    fills = (i.name for i, s in saved if i in asked and s.is_touched and not s.is_filled)
    return replace(form, reads=names_read(elemental, roots), fills=tuple(fills))


def read_by(elemental: Elemental, fold: Instruction) -> tuple[str, ...]:
    """What a reduce reads."""
    return names_read(elemental, _arrays(fold))


def _arrays(fold: Instruction) -> list[tuple[Instruction, Index, Path]]:
    """What is folded, at an index that may be any."""
    dims = fold.shape.elements[0].dims if fold.shape.is_tuple else fold.shape.dims
    if fold.opcode == "reduce":
        at = tuple(affine.of(Variable(f"d{k}", 0, max(n - 1, 0))) for k, n in enumerate(dims))
        index, _ = reduced_index(fold, at)
    else:
        index = free_index(fold.operands[0].shape.dims)
    arrays = fold.operands[: len(fold.operands) // 2]
    return [(x, index, ()) for x in arrays]


def free_index(dims: Sequence[int]) -> Index:
    """An index that may be any."""
    return tuple(affine.of(Variable("any", 0, max(n - 1, 0))) for n in dims)


def names_read(
    elemental: Elemental, roots: list[tuple[Instruction, Index, Path]]
) -> tuple[str, ...]:
    """Operands p0, p1, ..; folds and what stages have left by their names, in place of what these
    read.
    """
    expression = elemental.expression
    own, left = expression.leaves, Leaf(F32, 0)
    made: dict[Node, Leaf] = {}
    made |= {(kept, ()): left for kept, saved in elemental.saved.items() if saved.is_filled}
    expression.leaves = own | made
    try:
        folds = [fold for fold, _ in trace(expression, roots).reductions]
        for fold in (*folds, *_windows(elemental, roots)):
            count = len(fold.shape.elements) if fold.shape.is_tuple else 0
            paths: list[Path] = [(k,) for k in range(count)] or [()]
            made |= {(fold, path): left for path in paths}
        expression.leaves = own | made
        found = trace(expression, roots)
    finally:
        expression.leaves = own
    leaves = sorted({r.leaf for r in found.reads if r.leaf >= 0})
    values = dict.fromkeys(r.source.name for r in found.reads if r.leaf < 0)
    return (*(f"p{leaf}" for leaf in leaves), *values)


def _windows(
    elemental: Elemental, roots: list[tuple[Instruction, Index, Path]]
) -> list[Instruction]:
    """The folds over windows that the roots rest on, those first that are met first."""
    stack = [elemental.expression.source(o, path) for o, _, path in roots]
    seen = set(stack)
    found: list[Instruction] = []
    while stack:
        top, path = stack.pop()
        if (top, path) in elemental.memory:
            continue
        if top.opcode == "reduce-window":
            found.append(top)
            continue
        for operand in top.operands:
            source = elemental.expression.source(operand, ())
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return found
