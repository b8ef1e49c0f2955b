"""select-sinking: where a select takes one of two formulas of one form, one is computed.

    select(p, f(x, a), f(y, b))       =>  f(select(p, x, y), select(p, a, b))
    select(p, x, y / b)               =>  select(p, x, y) / select(p, 1, b)
    select(p, x, y * b)               =>  select(p, x, y) * select(p, 1, b)
    select(p, x, select(q, y, c))     =>  select(select(p, true, q), select(p, x, y), c)

A special function has a polynomial for each part of its domain, both Horner's or Clenshaw's scheme
with other numbers: a step of it is two operations on each side, and a select of two numbers here.
Every lane takes the steps that it took, so that its bits stay. Only what goes away on both sides is
put together, as far down as that is less work than it was.
"""

from __future__ import annotations

import numpy as np
from msgspec import Struct, field

from hlo.analysis.fusibility import is_elementwise, op_cost
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.ops.table import Trait, opcodes
from hlo.passes.liveness import awaited, replaceable
from hlo.passes.patterns.matching import splat, splat_literal
from hlo.passes.simplify.cse import cse
from hlo.passes.simplify.dce import drop_unread

Operand = Instruction | int  # 1, True or False: everywhere
Pair = tuple[Operand, Operand]  # what is computed where the predicate holds, and elsewhere

_COMMUTATIVE = opcodes(Trait.COMMUTATIVE)
_LOOKED_AHEAD = 4  # operations
_SELECT_COST = 1  # in additions, as op_cost has it


def select_sinking(module: Module) -> bool:
    """Compute one of two formulas of one form between which a select chooses."""
    changed = False
    numbers = _Numbers()
    for select in replaceable(module, "select"):
        if select.computation is None:  # it went away with what another one chose between
            continue
        form = _Form(select, numbers)
        form.grow()
        form.cut_back()
        if form.gain > 0:
            form.apply()
            changed = True
    if changed:
        cse(module)  # two formulas may choose between the same
    return changed


class _Step(Struct, frozen=True):
    """An operation that stands for a pair. saved: additions, of the other one."""

    operation: Instruction
    operands: tuple[Pair, ...]
    saved: int


class _Numbers(Struct, eq=False):
    """Arrays of one number by their bits, shape and computation: those that are there are read."""

    known: dict[Computation, dict[tuple[bytes, Shape], Instruction]] = field(default_factory=dict)

    def spread(self, like: Instruction, number: int, shape: Shape) -> Instruction:
        """The number everywhere, in `like`'s computation."""
        computation = like.computation
        assert computation is not None, "an instruction in a computation"
        if computation not in self.known:
            spread = [i for i in computation.instructions if i.opcode == "broadcast"]
            found = {i: splat_literal(i) for i in reversed(spread)}  # the first one stays
            self.known[computation] = {
                (one.tobytes(), i.shape): i for i, one in found.items() if one is not None
            }
        key = (np.array(number, shape.dtype.numpy).tobytes(), shape)
        made = self.known[computation].get(key)
        if made is None or made.computation is None:
            made = self.known[computation][key] = splat(like, number, shape)
        return made


class _Form(Struct, eq=False):
    """Steps above a select, each after those that read it."""

    select: Instruction
    numbers: _Numbers
    steps: dict[Pair, _Step] = field(default_factory=dict)

    @property
    def root(self) -> Pair:
        return self.select.operands[1], self.select.operands[2]

    def grow(self) -> None:
        """All pairs that nothing else reads. O(pairs squared), of few."""
        assert self.select.computation is not None, "an instruction in a computation"
        kept = awaited(self.select.computation)
        # What reads on each side, and goes away.
        sides: tuple[set[Instruction], set[Instruction]] = ({self.select}, {self.select})
        candidates = _Steps()
        pairs, waiting = [self.root], [self.root]
        while ready := [p for p in waiting if self._is_free(p, sides, pairs)]:
            for pair in ready:
                waiting.remove(pair)
                step = candidates.best(pair)
                if step is None or not kept.isdisjoint(taken := _taken(pair, step)):
                    continue
                for one, side in zip(pair, sides, strict=True):
                    if isinstance(one, Instruction) and one in taken:
                        side.add(one)
                self.steps[pair] = step
                pairs += [q for q in step.operands if q not in pairs]
                waiting += [q for q in step.operands if q not in (*waiting, *self.steps)]

    def _is_free(
        self, pair: Pair, sides: tuple[set[Instruction], set[Instruction]], pairs: list[Pair]
    ) -> bool:
        """Whether what reads them goes away with its own side, and no other pair has them."""
        for k, (one, side) in enumerate(zip(pair, sides, strict=True)):
            if not isinstance(one, Instruction) or one.is_root or not side.issuperset(one.users):
                return False
            others = [q for q in pairs if q[k] is one and q != pair]
            if any(q not in self.steps or one in _taken(q, self.steps[q]) for q in others):
                return False
        return True

    def cut_back(self) -> None:
        """Without those, from the lowest, whose operands take no fewer selects than they save."""
        for pair, step in reversed(list(self.steps.items())):
            if any(q in self.steps for q in step.operands):
                continue
            others = {q for p, s in self.steps.items() if p != pair for q in s.operands}
            own = sum(not _are_same(q) for q in set(step.operands) - others)
            if (own - 1) * _SELECT_COST >= step.saved:
                del self.steps[pair]

    @property
    def gain(self) -> int:
        """Additions that are saved."""
        if self.root not in self.steps:
            return 0
        ends = {q for s in self.steps.values() for q in s.operands if q not in self.steps}
        selects = sum(not _are_same(q) for q in ends)
        return sum(s.saved for s in self.steps.values()) - (selects - 1) * _SELECT_COST

    def apply(self) -> None:
        """Write the one formula in place of the select."""
        made: dict[Pair, Instruction] = {}
        for pair, step in reversed(self.steps.items()):
            for q in step.operands:
                if q not in made:
                    made[q] = self._chosen(q)
            like = step.operation
            operands = [made[q] for q in step.operands]
            made[pair] = make(like, like.opcode, *operands, shape=like.shape, **like.attributes)
        computation = self.select.computation
        assert computation is not None, "an instruction in a computation"
        computation.replace_uses(self.select, made[self.root])
        drop_unread(self.select)

    def _chosen(self, pair: Pair) -> Instruction:
        """One or the other, as the select chooses."""
        shape = next(one.shape for one in pair if isinstance(one, Instruction))
        a, b = (
            one if isinstance(one, Instruction) else self.numbers.spread(self.select, one, shape)
            for one in pair
        )
        if _are_same(pair):
            return a
        return make(self.select, "select", self.select.operands[0], a, b, shape=shape)


class _Steps(Struct, eq=False):
    """Which operation may stand for a pair; each looked at once."""

    found: dict[Pair, list[_Step]] = field(default_factory=dict)
    likeness: dict[tuple[Pair, int], int] = field(default_factory=dict)

    def best(self, pair: Pair) -> _Step | None:
        """The operation that both are, or one of them while the other one is as if it were: of
        those that there are the one with the most alike operands.
        """
        found = [s for s in self.of(pair) if s.saved or self._sum(s, _LOOKED_AHEAD)]
        return max(found, key=lambda s: self._sum(s, _LOOKED_AHEAD), default=None)

    def of(self, pair: Pair) -> list[_Step]:
        found = self.found.get(pair)
        if found is None:
            found = self.found[pair] = _steps(pair)
        return found

    def _sum(self, step: _Step, depth: int) -> int:
        return sum(self._like(q, depth) for q in step.operands)

    def _like(self, pair: Pair, depth: int) -> int:
        """How many operations two formulas have in common, from their results upwards."""
        if not depth:
            return 0
        found = self.likeness.get((pair, depth))
        if found is None:
            counts = [bool(s.saved) + self._sum(s, depth - 1) for s in self.of(pair)]
            found = self.likeness[pair, depth] = max(counts, default=0)
        return found


def _steps(pair: Pair) -> list[_Step]:
    """The operations that both are, or one of them."""
    a, b = pair
    if not isinstance(a, Instruction) or not isinstance(b, Instruction):
        return []
    if a is b or a.shape != b.shape or not (_is_of_one_type(a) and _is_of_one_type(b)):
        return []
    if a.opcode == b.opcode:
        return _steps_of_both(a, b)
    found = [_Step(a, operands, 0) for operands in _with_neutral(a, b)]
    return found + [
        _Step(b, tuple((x, y) for y, x in operands), 0) for operands in _with_neutral(b, a)
    ]


def _steps_of_both(a: Instruction, b: Instruction) -> list[_Step]:
    """The operation that both are; where it commutes, either way round."""
    if a.attributes != b.attributes:
        return []
    orders = [tuple(b.operands)]
    if a.opcode in _COMMUTATIVE and len(a.operands) == 2:
        orders.append(tuple(reversed(b.operands)))
    return [_Step(a, tuple(zip(a.operands, order, strict=True)), op_cost(a)) for order in orders]


def _with_neutral(a: Instruction, b: Instruction) -> list[tuple[Pair, ...]]:
    """The operands of a beside those with which the same operation gives b, exactly."""
    if a.opcode == "select":
        p, x, y = a.operands
        return [((p, True), (x, b), (y, y)), ((p, False), (x, x), (y, b))]
    if not a.shape.dtype.is_float or a.opcode not in ("multiply", "divide"):
        return []
    x, y = a.operands
    first: tuple[Pair, ...] = ((x, b), (y, 1))
    return [first] if a.opcode == "divide" else [first, ((x, 1), (y, b))]


def _taken(pair: Pair, step: _Step) -> set[Operand]:
    """What goes away: both, or the one with the operation."""
    return set(pair) if step.saved else {step.operation}


def _is_of_one_type(x: Instruction) -> bool:
    """Whether an element is arithmetic on elements of its own type, or one of two."""
    if "control-predecessors" in x.attributes or not x.operands or not is_elementwise(x):
        return False
    if x.opcode == "select":
        return all(o.shape.dims == x.shape.dims for o in x.operands)
    return all(o.shape == x.shape for o in x.operands)


def _are_same(pair: Pair) -> bool:
    """One value, or one number everywhere."""
    a, b = pair
    if a is b:
        return True
    if not isinstance(a, Instruction) or not isinstance(b, Instruction):
        return False
    value, other = splat_literal(a), splat_literal(b)
    if value is None or other is None or a.shape != b.shape:
        return False
    return value.tobytes() == other.tobytes()
