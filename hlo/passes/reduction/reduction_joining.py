"""reduction-joining: reductions of a kernel that go through the same array become one.

    s = reduce(x, 0), add;  q = reduce(x * x, 0), add;  m = reduce(x, -inf), maximum
        =>  (s, q, m) = reduce(x, x * x, x, 0, 0, -inf), tuple(add, add, maximum)

Means and variances by squares, smallest and largest elements, sums of products of two signals: a
kernel has a loop for each reduction, which reads again what another one has read. Joined, they are
one loop with as many partial results.

Only reductions along the innermost dimension: those of columns are made in one pass as they stand
(backend/loops/choose_streams.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from hlo.analysis.decisions import decisions_of
from hlo.analysis.legality import family_of
from hlo.analysis.reducers import reducer_of
from hlo.ir.computation import Computation
from hlo.ir.graph import post_order, reachable_computations
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Ints, Shape
from hlo.ops.making import make
from hlo.ops.table import KernelFamily, Trait, has_trait
from hlo.passes.liveness import awaited, outside_fusions
from hlo.passes.rewriting import is_pinned

# Shorter rows are written out in the code, where what one reduction reads is there for the others.
_LEAST_LENGTH = 32
_MOST = 4  # Reductions in one loop: their partial results, each several vectors, stay in registers.
_MOST_LOOKED_AT = 64  # Reductions of a kernel; those that `fusion` makes have less.

Read = tuple[Instruction, tuple[str, ...]]  # An array, and the parts of it that are taken in turn.


def reduction_joining(module: Module) -> bool:
    """Join reductions of one kernel that read the same array. O(reductions * edges)."""
    bodies: dict[Computation, None] = {}
    for _, instruction, _ in outside_fusions(module):
        if instruction.opcode == "fusion" and family_of(instruction) is KernelFamily.LOOPS:
            bodies.update(dict.fromkeys(instruction.called_computations()))
    changed = False
    for body in bodies:
        read: dict[Instruction, frozenset[Read]] = {}
        while group := _group(body, read):
            _join(module, body, group)
            changed = True
    if changed:  # the reducers that nobody calls any more: no other pass comes after this one
        module.remove_all(set(module.computations) - reachable_computations(module))
    return changed


def _group(body: Computation, read: dict[Instruction, frozenset[Read]]) -> list[Instruction]:
    """The first reductions that may be one; none, or at least two. read: what is known already of
    what reductions meet."""
    order, kept = post_order(body), awaited(body)
    reductions = [i for i in order if i not in kept and _may_join(i)][:_MOST_LOOKED_AT]
    if len(reductions) < 2:
        return []
    bits = {reduction: 1 << n for n, reduction in enumerate(reductions)}
    above = _made_from(order, bits)
    for reduction in reductions:
        if reduction not in read:
            read[reduction] = _arrays(reduction.operands[0])
    for n, first in enumerate(reductions):
        group, members = [first], bits[first]
        arrays, rests_on = read[first], above[first]
        alike = [r for r in reductions[n + 1 :] if _form(r) == _form(first)]
        for _ in range(_MOST):  # what shares an array with a later one alone comes in another turn
            for other in alike:
                is_apart = not (bits[other] & (members | rests_on) or above[other] & members)
                if len(group) < _MOST and is_apart and arrays & read[other]:
                    group.append(other)
                    members, arrays = members | bits[other], arrays | read[other]
                    rests_on |= above[other]
        if len(group) > 1:
            return sorted(group, key=reductions.index)
    return []


def _made_from(
    order: Sequence[Instruction], bits: Mapping[Instruction, int]
) -> dict[Instruction, int]:
    """Of each instruction, which of the reductions it is made from: their bits. O(edges)."""
    above: dict[Instruction, int] = {}
    for one in order:
        found = 0
        for operand in one.operands:
            found |= above[operand] | bits.get(operand, 0)
        above[one] = found
    return above


def _may_join(reduction: Instruction) -> bool:
    """Whether it is one of a long row by a plain op, of which nothing is said or looked for."""
    if reduction.opcode != "reduce" or not reduction.shape.is_array or is_pinned(reduction):
        return False
    reducer, x = reducer_of(reduction), reduction.operands[0]
    if not (reducer.sums or reducer.selects) or x.shape.is_dynamic:
        return False  # products are looked at by themselves
    if reduction.shape.dtype.is_pred or x.shape.dtype.is_complex:
        return False
    if decisions_of(reduction).sums:
        return False
    dims = _dimensions(reduction)
    length = prod(x.shape.dims[d] for d in dims)
    # A mask's bounds are found for one array (backend/loops/ranges.py).
    return x.shape.rank - 1 in dims and length >= _LEAST_LENGTH and not _is_masked(x)


def _dimensions(reduction: Instruction) -> Ints:
    return reduction["dimensions"]  # type: ignore[return-value]


def _form(reduction: Instruction) -> tuple[object, ...]:
    """What reductions in one loop have in common."""
    x = reduction.operands[0].shape
    return x.dims, _dimensions(reduction), x.dtype.bits, reduction.shape.dtype.bits


def _arrays(x: Instruction) -> frozenset[Read]:
    """What a reduction meets in the order of its own elements, by ops that keep their order."""
    waiting: list[Read] = [(x, ())]
    seen, found = {waiting[0]}, set[Read]()
    while waiting:
        one, parts = read = waiting.pop()
        if one.opcode == "slice":
            new = [(one.operands[0], (*parts, str(one["slice"])))]
        elif one.opcode == "reshape":
            new = [(one.operands[0], parts)]
        elif one.operands and has_trait(one, Trait.ELEMENTWISE):
            new = [(o, parts) for o in one.operands if o.shape.dims == one.shape.dims]
        else:
            new = []
            is_made = not one.operands and one.opcode != "parameter"
            if not is_made and not has_trait(one, Trait.REPEATS):
                found.add(read)
        waiting += (r for r in new if r not in seen)
        seen.update(new)
    return frozenset(found)


def _is_masked(x: Instruction) -> bool:
    """Whether positions that are counted choose what is reduced."""
    if x.opcode != "select":
        return False
    waiting, seen = [x.operands[0]], {x.operands[0]}
    while waiting:
        one = waiting.pop()
        if one.opcode == "iota":
            return True
        waiting += (o for o in one.operands if o not in seen)
        seen.update(one.operands)
    return False


def _join(module: Module, body: Computation, group: Sequence[Instruction]) -> None:
    """One reduction in place of several."""
    from hlo.passes.loop_making import adopted, new_computation, parameter  # few kernels have such

    last = group[-1]
    made = new_computation(last, "joined")
    scalars = [Shape.array(r.operands[1].shape.dtype, ()) for r in group]
    accumulators = [parameter(made, n, s) for n, s in enumerate(scalars)]
    elements = [parameter(made, len(group) + n, s) for n, s in enumerate(scalars)]
    results = [
        made.new(reducer_of(r).opcodes[0], a.shape, (a, x))
        for r, a, x in zip(group, accumulators, elements, strict=True)
    ]
    made.root = made.new("tuple", Shape.tuple(scalars), results)
    attributes = {"dimensions": _dimensions(last), "to_apply": adopted(module, last, made)}
    operands = [*(r.operands[0] for r in group), *(r.operands[1] for r in group)]
    shape = Shape.tuple([r.shape for r in group])
    joined = body.new("reduce", shape, operands, attributes, like=last)
    for n, reduction in enumerate(group):
        body.replace_uses(reduction, make(joined, "get-tuple-element", joined, index=n))
        body.remove(reduction)
