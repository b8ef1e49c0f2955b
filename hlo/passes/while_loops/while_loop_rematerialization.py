"""while-loop-rematerialization: a loop computes again what another one would keep for it.

    for i: r[i] = f(a[i], b[i], w)     for j: .. r[n - 1 - j] ..
      =>   for i: ..                   for j: .. f(a[n - 1 - j], b[n - 1 - j], w) ..

JAX keeps for the gradients of a scan over layers what each layer computed: of attention the
probabilities, a number for each pair of tokens in every layer and head. They come from queries and
keys, which are kept as well; one more short product in the backward loop computes them where they
are read, and there no memory holds them (block-fusion): Chen et al. 2016, arXiv 1604.06174; as
`jax.checkpoint` asks for by hand. analysis/while_loops/residuals.py says which arrays these are,
and why the loops' rows belong together.

What is computed again is the same expression of the same bits: of rows that stay, of what the first
loop never changes, which the second one is given too, and of the trip's number, which follows from
the row's. A product may add its terms up in another order there, as any may. Both loops run to
their ends whatever the numbers are, for these reach neither counter nor condition.
"""

from __future__ import annotations

from itertools import pairwise

from hlo.analysis.while_loops.loop_state import (
    element_index,
    extend,
    is_extensible,
    start_of,
    unchanged_elements,
)
from hlo.analysis.while_loops.residuals import Plan, Rows, plan_of, same_elements
from hlo.analysis.while_loops.row_updates import row_dim
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, callers, clone_instruction
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.permutation import inverse
from hlo.ir.shape import Shape
from hlo.ops.making import make, make_constant
from hlo.passes.liveness import awaited
from hlo.passes.patterns.matching import ints
from hlo.passes.simplify.dce import drop_unread
from hlo.passes.while_loops.loop_shrinking import shrink


def while_loop_rematerialization(module: Module) -> bool:
    """Compute again in a loop what another one would keep for it in large arrays.

    O(edges of both bodies) for each array.
    """
    changed = False
    calls = callers(module)
    for computation in callees_first(module):
        while (plan := _plan(computation, calls)) is not None:
            _rewrite(plan)
            changed = True
    return changed


def _plan(computation: Computation, calls: dict[Computation, list[Instruction]]) -> Plan | None:
    """Two loops of a computation with arrays between them that need not be kept."""
    kept = awaited(computation)
    loops = [
        i
        for i in computation.instructions
        if i.opcode == "while" and i not in kept and is_extensible(i, calls)
    ]
    for second in loops if len(loops) > 1 else ():
        (state,) = second.operands
        if state.opcode != "tuple" or list(state.users) != [second]:
            continue
        ends = [o for o in state.operands if o.opcode == "get-tuple-element"]
        for first in dict.fromkeys(end.operands[0] for end in ends):
            if first in loops and all(u.opcode == "get-tuple-element" for u in first.users):
                plan = plan_of(first, second)
                if plan is not None:
                    return plan
    return None


def _rewrite(plan: Plan) -> None:
    """Compute again what the plan says, and let the loops' states go without its arrays."""
    again = _Again(plan)
    for residual in plan.dropped:
        target, row = residual.rows.update.operands[:2]
        dim = row_dim(target.shape, row.shape)
        assert dim is not None, "a row is one of several"
        for read in residual.reads:
            again.body.replace_uses(read, again.value(row, read.operands[1 + dim]))
            again.body.remove(read)
    shrink(again.second, {residual.number for residual in plan.dropped})
    shrink(plan.first, {residual.rows.number for residual in plan.dropped})


class _Again:
    """Values of the first loop's body, computed in the second one's, for each place of a row."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.order = plan.dropped[0].rows.order
        self.members = set(plan.members)
        self.known: dict[tuple[Instruction, Instruction], Instruction] = {}
        leaves = (o for member in plan.members for o in member.operands)
        rows = [residual.rows.row for residual in plan.dropped]
        outside = dict.fromkeys(v for v in (*leaves, *rows) if v not in self.members)
        starts = {v: s for v in outside if (s := self._start(v)) is not None}
        self.second, self.elements = _given(plan.second, starts)
        self.body = self.second.called_computations()[0]

    def _start(self, value: Instruction) -> Instruction | None:
        """What stands behind a value before the second loop: of a kept row all rows, of what never
        changes its start; None of the counter.
        """
        rows = self.plan.kept.get(value)
        if rows is not None:
            ends = [u for u in self.plan.first.users if element_index(u) == rows.number]
            like = self.plan.first
            return ends[0] if ends else make(like, "get-tuple-element", like, index=rows.number)
        number = element_index(value)
        return None if number == self.plan.counter.element else start_of(self.plan.first, number)

    def value(self, row: Instruction, at: Instruction) -> Instruction:
        """A row, or a row of one that is kept, of the trip that has it at a place."""
        for member in self.plan.members:
            if (member, at) not in self.known:
                operands = tuple(self._operand(o, at) for o in member.operands)
                self.known[member, at] = self.body.adopt(clone_instruction(member, operands))
        return self._operand(row, at)

    def _operand(self, value: Instruction, at: Instruction) -> Instruction:
        if (value, at) not in self.known:
            self.known[value, at] = self._read(value, at)
        return self.known[value, at]

    def _read(self, value: Instruction, at: Instruction) -> Instruction:
        """What is no member: an element that never changes, part of a kept row, or the counter."""
        if value in self.plan.kept:
            return self._kept(value, self.plan.kept[value], at)
        if value in self.elements:
            return self.elements[value]
        if at.shape.dtype != value.shape.dtype:
            at = make(at, "convert", at, shape=value.shape)
        number, dtype = self.order.offset, value.shape.dtype
        number = number if dtype.is_signed else number % (1 << dtype.bits)
        offset = make_constant(at, Literal.of(number, value.shape))
        return make(at, "subtract", *((at, offset) if self.order.sign > 0 else (offset, at)))

    def _kept(self, value: Instruction, rows: Rows, at: Instruction) -> Instruction:
        """A value of which a kept array has the elements: the row there, moved back."""
        target, row = rows.update.operands[:2]
        dim = row_dim(target.shape, row.shape)
        zero = make_constant(at, Literal.of(0, at.shape))
        starts = [at if d == dim else zero for d in range(target.shape.rank)]
        sizes = row.shape.dims
        found = make(
            at, "dynamic-slice", self.elements[value], *starts,
            shape=Shape.array(row.shape.dtype, sizes), dynamic_slice_sizes=sizes,
        )  # fmt: skip
        moves = same_elements(row)
        for move, before in pairwise(moves[: moves.index(value) + 1]):
            if move.opcode == "reshape":
                shape = Shape.array(before.shape.dtype, before.shape.dims)
                found = make(at, "reshape", found, shape=shape)
            else:
                turned = inverse(ints(move, "dimensions"))
                found = make(at, "transpose", found, dimensions=turned)
        return found


def _given(
    loop: Instruction, starts: dict[Instruction, Instruction]
) -> tuple[Instruction, dict[Instruction, Instruction]]:
    """The loop with elements of its state that no trip changes and that begin as the starts, those
    among them that it had before; and they, in its body.
    """
    body = loop.called_computations()[0]
    (state,) = loop.operands
    unchanged = {element_index(e): e for e in unchanged_elements(body)}
    found = {state.operands[n]: e for n, e in unchanged.items()}
    missing = [s for s in dict.fromkeys(starts.values()) if s not in found]
    if missing:
        loop, elements = extend(loop, missing)
        drop_unread(state)
        found |= dict(zip(missing, elements, strict=True))
    return loop, {value: found[start] for value, start in starts.items()}
