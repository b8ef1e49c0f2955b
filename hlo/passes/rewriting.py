"""The rewriting driver: rules that are equations, tried on a worklist until none fires.

    @rewrite("transpose", operand="transpose")
    def merge_transposes(outer): ...  -> replacement or None

A rule never edits. The driver alone replaces uses, requeues neighbours, checks the shape and counts
hits; that count is also the fuel by which a bad rewrite is found by bisection.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Set
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from operator import attrgetter

from msgspec import Struct

from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.rewiring import is_wide
from hlo.ir.shape import compatible
from hlo.ops.table import Trait, opcodes
from hlo.passes.liveness import awaited, fused_computations, is_removable
from hlo.passes.settling import is_settled, reach_states, settle

log = logging.getLogger(__name__)

MOST_ROUNDS = 64  # A fixed point takes a few; what never ends must not hang a user.
_OPCODE = attrgetter("opcode")
_FAMILY = attrgetter("family")
_ACTING = opcodes(Trait.SIDE_EFFECT).holds
Rewrite = Callable[[Instruction], Instruction | None]


class Rule(Struct, frozen=True):
    """One equation. exact: bit-equal in IEEE arithmetic for every input (NaN payloads aside)."""

    name: str
    opcodes: Set[str]
    operand: str | None
    function: Rewrite
    exact: bool
    family: str

    @property
    def equation(self) -> str:
        paragraph = (self.function.__doc__ or "").split("\n\n")[0]
        return " ".join(paragraph.split("\n")).strip().replace("     ", " ")


Heard = Callable[[Rule, Instruction, Instruction], None]


class Rules(dict[str, Rule]):
    """The rules by name, of the families that are imported: a family enters its own.

    It is imported when a root is first met that it has rules for. Which families are there follows
    from what else this process has compiled; the order of an opcode's rules must not, so it is that
    of the families' names, and within a family that of its text.
    """

    def __init__(self) -> None:
        super().__init__()
        self._enter: Callable[[str], None] | None = None

    def fill_from(self, enter: Callable[[str], None]) -> None:
        """enter: imports all that has rules for an opcode."""
        self._enter = enter

    def of(self, opcode: str) -> list[Rule]:
        """Those for a root of an opcode."""
        if self._enter is not None:
            self._enter(opcode)
        return [rule for rule in self.in_order() if opcode in rule.opcodes]

    def in_order(self) -> list[Rule]:
        """Those that are there."""
        found = list(self.values())  # in one step: another thread may enter more meanwhile
        return sorted(found, key=_FAMILY)


RULES = Rules()


class RulesOf(dict[str, list[Rule]]):
    """By opcode, those of the rules that the limits allow; found when it is first met."""

    def __init__(self, allows: Callable[[Rule], bool]) -> None:
        super().__init__()
        self._allows = allows
        self._asked: dict[str, frozenset[str]] = {}  # of the operands, by the root's opcode
        self._among: dict[tuple[str, frozenset[str]], list[Rule]] = {}

    def __missing__(self, opcode: str) -> list[Rule]:
        found = [rule for rule in RULES.of(opcode) if self._allows(rule)]
        self._asked[opcode] = frozenset(r.operand for r in found if r.operand is not None)
        self[opcode] = found
        return found

    def among(self, instruction: Instruction) -> list[Rule]:
        """Those of an instruction's opcode that its operands have the opcodes for, in order.

        Found once for each set of operands' opcodes that a rule asks for: these are few.
        """
        opcode = instruction.opcode
        rules = self[opcode]
        asked = self._asked[opcode]
        if not asked:
            return rules
        key = (opcode, asked.intersection(map(_OPCODE, instruction.operands)))
        found = self._among.get(key)
        if found is None:
            found = [r for r in rules if r.operand is None or r.operand in key[1]]
            self._among[key] = found
        return found


def rewrite(
    *opcodes: str, among: Set[str] = frozenset(), operand: str | None = None, exact: bool = True
) -> Callable[[Rewrite], Rewrite]:
    """Register a rule for its root opcodes; `operand`: some operand must have this opcode."""

    def register(function: Rewrite) -> Rewrite:
        family = function.__module__.rsplit(".", 1)[-1]
        name = function.__name__.replace("_", "-")
        roots = frozenset(opcodes) if opcodes else among
        RULES[name] = Rule(name, roots, operand, function, exact, family)
        _allowed.cache_clear()
        return function

    return register


class Limits(Struct):
    """Which rules rewrite, how often, and who hears of it.

    inexact: also rules that are not exact. fuel: rewrites left, None for no limit. only,
    without: names of rules to use alone, or to leave out. heard: told of each rewrite, before it is
    made, with what is replaced and by what.
    """

    inexact: bool = False
    fuel: int | None = None
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    heard: Heard | None = None

    @property
    def rules(self) -> RulesOf:
        """Those that may be used, by the opcode of their root."""
        return _allowed(inexact=self.inexact, only=self.only, without=self.without)


@lru_cache(maxsize=8)
def _allowed(*, inexact: bool, only: frozenset[str], without: frozenset[str]) -> RulesOf:
    def allows(rule: Rule) -> bool:
        is_wanted = not only or rule.name in only
        return is_wanted and (rule.exact or inexact) and rule.name not in without

    return RulesOf(allows)


def apply_rules(module: Module, limits: Limits | None = None) -> Counter[str]:
    """Rewrite every computation outside fusions to a fixed point; how often each rule fired."""
    limits = limits or Limits()
    fused = fused_computations(module)
    hits: Counter[str] = Counter()
    reaches = reach_states(module)
    key = (apply_rules, limits.inexact, limits.only, limits.without)
    looked_at = []
    for computation, reach in reaches.items():  # callees first: rules ask what reducers compute
        if computation in fused or is_settled(computation, key, reach):
            continue
        if _fixed_point(computation, limits, hits):
            looked_at.append(computation)
    reaches = reach_states(module) if hits else reaches
    for computation in looked_at:
        settle(computation, key, reaches[computation])
    heard = _heard.get()
    if heard is not None:
        heard.update(hits)
    return hits


_heard: ContextVar[Counter[str] | None] = ContextVar("_heard", default=None)


@contextmanager
def counted_rules() -> Iterator[Counter[str]]:
    """Counts how often each rule fires within this, in all passes that apply rules."""
    hits: Counter[str] = Counter()
    token = _heard.set(hits)
    try:
        yield hits
    finally:
        _heard.reset(token)


def _fixed_point(
    computation: Computation,
    limits: Limits,
    hits: Counter[str],
) -> bool:
    """Rewrite until no rule fires; whether that was reached.

    A rule may look further than at what a rewrite puts on the worklist: at operands of operands,
    and at how many users an operand has. So all is looked at again until a round changes nothing.
    """
    budget = 64 * len(computation) + 1024  # two rules that undo each other must not hang a user
    for _ in range(MOST_ROUNDS):
        spent = _round(computation, limits.rules, limits, hits, budget)
        if limits.fuel is not None and limits.fuel <= 0:
            return False
        if not spent:
            return True
        budget -= spent
        if budget <= 0:
            break
    log.warning("algsimp stopped early in %s: %s", computation.name, hits.most_common(3))
    return False


def _round(
    computation: Computation,
    rules: RulesOf,
    limits: Limits,
    hits: Counter[str],
    budget: int,
) -> int:
    """Try each instruction, and what is near a rewrite again; how many rewrites, at most budget."""
    kept = awaited(computation)
    is_sized = computation.fact(_is_sized)
    work = dict.fromkeys(reversed(post_order(computation)))  # popped from the end: operands first
    spent = 0
    while work and spent < budget:
        instruction, _ = work.popitem()
        if not rules[instruction.opcode]:
            continue
        if instruction.computation is not computation or instruction in kept:
            continue
        if is_pinned(instruction) or (is_sized and _has_sizes(instruction)):
            continue
        if limits.fuel is not None and limits.fuel <= 0:
            break
        found = _first_match(instruction, rules)
        if found is None:
            continue
        rule, new = found
        hits[rule.name] += 1
        spent += 1
        if limits.fuel is not None:
            limits.fuel -= 1
        log.debug("%s: %s", rule.name, instruction.name)
        if limits.heard is not None:
            limits.heard(rule, instruction, new)
        _replace(computation, instruction, new, work, kept)
    return spent


def _is_sized(computation: Computation) -> bool:
    return any(i.shape.is_dynamic for i in computation.instructions)


def is_pinned(instruction: Instruction) -> bool:
    """Whether others depend on its very execution."""
    return "control-predecessors" in instruction.attributes or _ACTING[instruction.opcode]


def _first_match(instruction: Instruction, rules: RulesOf) -> tuple[Rule, Instruction] | None:
    for rule in rules.among(instruction):
        new = rule.function(instruction)
        if new is not None and new is not instruction:
            assert compatible(new.shape, instruction.shape), (
                f"rule {rule.name} turns {instruction!r} into {new!r}"
            )
            return rule, new
    return None


def _has_sizes(instruction: Instruction) -> bool:
    """Whether sizes that are known at run time only meet here: equations speak of whole arrays.

    The size itself is what a rule about sizes asks for.
    """
    shapes = (instruction.shape, *(o.shape for o in instruction.operands))
    return instruction.opcode != "get-dimension-size" and any(s.is_dynamic for s in shapes)


def _replace(
    computation: Computation,
    old: Instruction,
    new: Instruction,
    work: dict[Instruction, None],
    kept: frozenset[Instruction],
) -> None:
    users = [u for u in old.users if not is_wide(u)]  # Wide users are looked at once a round.
    computation.replace_uses(old, new)
    _requeue(work, (*users, new, *new.operands))
    dead = [old]
    while dead:
        candidate = dead.pop()
        if candidate.computation is not computation or candidate in kept:
            continue
        if is_removable(candidate):
            operands = candidate.operands
            computation.remove(candidate)
            dead += operands
            _requeue(work, operands)


def _requeue(work: dict[Instruction, None], instructions: Iterable[Instruction]) -> None:
    for instruction in instructions:
        work.pop(instruction, None)
        work[instruction] = None
