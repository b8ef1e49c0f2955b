"""Reading: what an expression reads, by name, as a loop schedule shows it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from hlo.backend.loops.expression import Expression, Leaf, Node, Path
from hlo.backend.loops.trace import reduced_index, trace
from hlo.indexing import affine
from hlo.indexing.affine import Index, Variable
from hlo.indexing.queries import result_dims
from hlo.ir.dtype import F32
from hlo.ir.instruction import Instruction

Root = tuple[Instruction, Index, Path]


def arrays_of(reduction: Instruction) -> list[Root]:
    """What is reduced, at an index that may be any."""
    dims = result_dims(reduction)
    if reduction.opcode == "reduce":
        at = tuple(affine.of(Variable(f"d{k}", 0, max(n - 1, 0))) for k, n in enumerate(dims))
        index, _ = reduced_index(reduction, at)
    else:
        index = free_index(reduction.operands[0].shape.dims)
    arrays = reduction.operands[: len(reduction.operands) // 2]
    return [(x, index, ()) for x in arrays]


def free_index(dims: Sequence[int]) -> Index:
    """An index that may be any."""
    return tuple(affine.of(Variable("any", 0, max(n - 1, 0))) for n in dims)


def names_read(
    expression: Expression, kept: Iterable[Instruction], roots: Sequence[Root]
) -> tuple[str, ...]:
    """Operands p0, p1, ..; reductions and what stages have left (kept) by their names, in place of
    what these read.
    """
    own, left = expression.leaves, Leaf(F32, 0)
    made: dict[Node, Leaf] = {(value, ()): left for value in kept}
    expression.leaves = own | made
    try:
        reductions = [reduction for reduction, _ in trace(expression, list(roots)).reductions]
        for reduction in (*reductions, *_windows(expression, roots)):
            count = len(reduction.shape.elements) if reduction.shape.is_tuple else 0
            paths: list[Path] = [(k,) for k in range(count)] or [()]
            made |= {(reduction, path): left for path in paths}
        expression.leaves = own | made
        found = trace(expression, list(roots))
    finally:
        expression.leaves = own
    leaves = sorted({r.leaf for r in found.reads if r.leaf >= 0})
    values = dict.fromkeys(r.source.name for r in found.reads if r.leaf < 0)
    return (*(f"p{leaf}" for leaf in leaves), *values)


def _windows(expression: Expression, roots: Sequence[Root]) -> list[Instruction]:
    """The reductions over windows that the roots rest on, those first that are met first."""
    stack = [expression.source(o, path) for o, _, path in roots]
    seen = set(stack)
    found: list[Instruction] = []
    while stack:
        top, path = stack.pop()
        if (top, path) in expression.leaves:
            continue
        if top.opcode == "reduce-window":
            found.append(top)
            continue
        for source in _sources(expression, top):
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return found


def _sources(expression: Expression, instruction: Instruction) -> Iterator[Node]:
    """What an op reads; a while, the elements of its state."""
    for operand in instruction.operands:
        paths = range(len(operand.shape.elements)) if operand.shape.is_tuple else ()
        yield from (expression.source(operand, (k,)) for k in paths)
        if operand.shape.is_array:
            yield expression.source(operand, ())
