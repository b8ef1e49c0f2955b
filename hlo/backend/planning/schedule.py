"""Schedule: a total order of the instructions of each computation that control flow reaches.

    Module --schedule--> Schedule

Orders are tried: the module's own, a depth-first one that evaluates first the operand that needs
most, and where much is live a greedy one (list_order.py); the one with the lowest peak of live
bytes is taken (the module's own for a module that says is_scheduled); then readers are put before
what works in their operand's memory (update_order.py). Dead instructions without side effects are
left out. O(edges).
Does not know: offsets, kernels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from hlo.analysis.leaves import leaf_count, leaf_sizes, value_bytes
from hlo.analysis.legality import CONTROL, SOURCES, alias, is_forwarding
from hlo.backend.planning.deep_fusions import without_deep_fusions
from hlo.backend.planning.donation import donated_leaves
from hlo.backend.planning.update_order import (
    Order,
    Replaced,
    next_state,
    readers_first,
    results_of,
)
from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.graph import body_of, callees_first, control_predecessors, is_topological, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import Trait, opcodes

DEEPEST_NESTING = 100  # The deepest nesting of loops and branches; calls in calls have no bound.
LARGE_PEAK = 1 << 18  # From this peak of live bytes on a greedy order is tried too.
Source = tuple[Instruction, int]  # an instruction that defines a leaf, and the leaf's number


class Schedule(Struct, frozen=True, eq=False):
    """A module with an order of its instructions.

    orders: per computation, every instruction that runs or stands for a value, in order.

    invariant: per while body, the leaves of the state that it hands on untouched.
    unread: per while body, those of them that neither it nor the condition looks at.
    loops: of bodies and conditions, the loop that runs them, where it is one. branches: of branches
    of one conditional each, that and the operand which is theirs.
    """

    module: Module
    orders: dict[Computation, tuple[Instruction, ...]]
    invariant: dict[Computation, frozenset[int]]
    unread: dict[Computation, frozenset[int]]
    loops: dict[Computation, Instruction]
    branches: dict[Computation, tuple[Instruction, Instruction]]

    def resolve(self, instruction: Instruction, leaf: int) -> Source | None:
        """What defines a leaf, seen through loops that leave it alone as well."""
        return resolve_deep(self.invariant, instruction, leaf)

    def origin(self, instruction: Instruction, leaf: int) -> Source | None:
        """What defines a leaf, seen out of the loops around it too, which hand it on."""
        while True:
            found = self.resolve(instruction, leaf)
            if found is None or found[0].opcode != "parameter":
                return found
            home = found[0].computation
            loop = None if home is None else self.loops.get(home)
            if loop is None or found[1] not in self.invariant[body_of(loop)]:
                return found
            instruction, leaf = loop.operands[0], found[1]

    def is_kept(self, instruction: Instruction, leaf: int) -> bool:
        """Whether a leaf is handed on by the loop around, all of whose iterations see the same. A
        branch gets what its conditional does.
        """
        while True:
            found = self.resolve(instruction, leaf)
            if found is None or found[0].opcode != "parameter" or found[0].computation is None:
                return False
            home = found[0].computation
            if home not in self.branches:
                loop = self.loops.get(home)
                return loop is not None and found[1] in self.invariant[body_of(loop)]
            instruction, leaf = self.branches[home][1], found[1]

    def is_repeated(self, computation: Computation | None) -> bool:
        """Whether one loop runs a computation, or the branch of a conditional that it is."""
        while computation in self.branches:
            computation = self.branches[computation][0].computation
        return computation in self.loops

    def runs_once(self, computation: Computation | None) -> bool:
        """Whether a run of the program runs a computation once at the most: its entry, or a branch
        there.
        """
        while computation in self.branches:
            computation = self.branches[computation][0].computation
        return computation is self.module.entry

    def operand_sources(self, instruction: Instruction) -> list[Source | None]:
        """What defines each operand leaf, in order."""
        return [
            self.resolve(o, leaf)
            for o in instruction.operands
            for leaf in range(leaf_count(o.shape))
        ]

    def __str__(self) -> str:
        rows = []
        for computation, order in self.orders.items():
            entry = " (entry)" if computation is self.module.entry else ""
            rows.append(f"{computation.name}{entry}: peak {peak_bytes(order)} bytes")
            rows += [f"  {n:4} {i.name} = {i.shape} {i.opcode}" for n, i in enumerate(order)]
        return "\n".join(rows)


def schedule(module: Module) -> Schedule:
    """An order for the entry and for every computation that runs as control flow."""
    orders: dict[Computation, tuple[Instruction, ...]] = {}
    module = without_deep_fusions(module)
    check_nesting(module)
    effects = Effects(module)
    waiting = [module.entry]
    replaced = {module.entry: tuple(_donated(module))}
    while waiting:
        computation = waiting.pop()
        if computation in orders:
            continue
        order = ordered(computation, effects, keep=module.is_scheduled)
        if not (module.is_scheduled or computation in effects):
            order = without_late_readers(order, replaced.get(computation, ()))
        orders[computation] = order
        for instruction in order:
            if instruction.opcode in CONTROL:
                waiting += instruction.called_computations()
            if instruction.opcode == "while":
                body = instruction.attributes["body"]
                assert isinstance(body, Computation), "a while has a body"
                replaced[body] = tuple(next_state(body, resolve))
    found = invariants(module, orders)
    runs = _runs(orders)
    return Schedule(
        module, orders, found, unread(orders, found), _loops(runs), dict(_branches(runs))
    )


def _runs(orders: dict[Computation, Order]) -> dict[Computation, list[Instruction]]:
    """Who runs each computation."""
    runs: dict[Computation, list[Instruction]] = {}
    for order in orders.values():
        for instruction in order:
            for callee in (
                instruction.called_computations() if instruction.opcode in CONTROL else ()
            ):
                runs.setdefault(callee, []).append(instruction)
    return runs


def _loops(runs: dict[Computation, list[Instruction]]) -> dict[Computation, Instruction]:
    """The loop of each body and condition that one loop alone runs."""
    return {
        c: users[0] for c, users in runs.items() if len(users) == 1 and users[0].opcode == "while"
    }


def _branches(
    runs: dict[Computation, list[Instruction]],
) -> Iterator[tuple[Computation, tuple[Instruction, Instruction]]]:
    """The conditional of each branch that one alone runs, and the operand that it gets."""
    for computation, users in runs.items():
        if len(users) == 1 and users[0].opcode == "conditional":
            number = users[0].called_computations().index(computation)
            yield computation, (users[0], users[0].operands[number + 1])


def without_late_readers(order: Order, replaced: Replaced) -> Order:
    """Readers before what is written over their operands, unless that takes more memory."""
    changed, saved = readers_first(order, replaced, resolve)
    if changed == order or peak_bytes(changed) > peak_bytes(order) + saved:
        return order
    return changed


def _donated(module: Module) -> Iterator[tuple[Source, Source]]:
    """The entry's argument leaves that become results, and what becomes of them."""
    entry = module.entry
    leaves = [(p, n) for p in entry.parameters for n in range(leaf_count(p.shape))]
    for result, argument in donated_leaves(module).items():
        source = resolve(entry.root, result)
        if source is not None and source != leaves[argument]:
            yield leaves[argument], source


def check_nesting(module: Module) -> None:
    """Refuse loops and branches nested deeper than the stages that follow recurse."""
    depth: dict[Computation, int] = {}
    for computation in callees_first(module):
        deepest = 0
        for instruction in computation.instructions:
            if instruction.opcode in CONTROL:
                inner = max((depth[c] for c in instruction.called_computations()), default=0)
                deepest = max(deepest, inner + (instruction.opcode in ("while", "conditional")))
            if deepest > DEEPEST_NESTING:
                message = f"{instruction.opcode}: nested {deepest} deep"
                raise HloError(
                    "unsupported",
                    f"{message}, expected at most {DEEPEST_NESTING}",
                    instruction.span,
                )
        depth[computation] = deepest


def invariants(
    module: Module, orders: dict[Computation, tuple[Instruction, ...]]
) -> dict[Computation, frozenset[int]]:
    """Per while body that is scheduled, the state leaves that its root takes from its parameter."""
    found: dict[Computation, frozenset[int]] = {}
    for computation in callees_first(module):
        for loop in orders.get(computation, ()):
            if loop.opcode == "while":
                body = loop.attributes["body"]
                assert isinstance(body, Computation), "a while has a body"
                (state,) = body.parameters
                found[body] = frozenset(
                    leaf
                    for leaf in range(leaf_count(loop.shape))
                    if resolve_deep(found, body.root, leaf) == (state, leaf)
                )
    return found


def unread(
    orders: dict[Computation, Order], invariant: dict[Computation, frozenset[int]]
) -> dict[Computation, frozenset[int]]:
    """Per while body, the invariant leaves of its state that nothing in the loop reads."""
    found: dict[Computation, frozenset[int]] = {}
    for order in orders.values():
        for loop in order:
            if loop.opcode == "while":
                body, condition = loop.attributes["body"], loop.attributes["condition"]
                assert isinstance(body, Computation), "a while has a body"
                assert isinstance(condition, Computation), "a while has a condition"
                read = {
                    source[1]
                    for part in (body, condition)
                    for source in (
                        *(resolve(condition.root, 0),),
                        *_handed_elsewhere(body),
                        *last_uses(orders[part]),
                    )
                    if source is not None and source[0] is part.parameters[0]
                }
                # A body may belong to several loops.
                found[body] = found.get(body, invariant[body]) - read
    return found


def _handed_elsewhere(body: Computation) -> Iterator[Source]:
    """The leaves of the state that become other leaves of it."""
    for leaf in range(leaf_count(body.root.shape)):
        source = resolve(body.root, leaf)
        if source is not None and source != (body.parameters[0], leaf):
            yield source


def resolve_deep(
    invariant: dict[Computation, frozenset[int]], instruction: Instruction, leaf: int
) -> Source | None:
    """What defines a leaf, through forwarding and through loops that hand it on."""
    while True:
        found = resolve(instruction, leaf)
        if found is None or found[0].opcode != "while":
            return found
        instruction, leaf = found
        body = instruction.attributes["body"]
        assert isinstance(body, Computation), "a while has a body"
        if leaf not in invariant.get(body, ()):
            return found
        instruction = instruction.operands[0]


def ordered(computation: Computation, effects: Effects, *, keep: bool) -> tuple[Instruction, ...]:
    """The live instructions of one computation in the order in which they run."""
    alive = live(computation, effects)
    own = computation.instructions
    if not is_topological(own) or not _keeps_control(own):
        own = post_order(computation)
    own = tuple(i for i in own if i in alive)
    if keep or any("control-predecessors" in i.attributes or effects.has(i) for i in own):
        return own  # program order means something beyond data edges
    best = min((own, depth_first(computation, own)), key=peak_bytes)
    if peak_bytes(best) >= LARGE_PEAK:
        from hlo.backend.planning.list_order import list_order, with_late_fills

        greedy = list_order(own, computation.root, resolve)
        best = min((with_late_fills(o) for o in (best, greedy)), key=peak_bytes)
    return best


def live(computation: Computation, effects: Effects) -> set[Instruction]:
    """What the root and side effects need, the parameters included."""
    alive: set[Instruction] = set()
    stack = [computation.root, *computation.parameters]
    stack += [i for i in computation.instructions if effects.has(i)]
    while stack:
        instruction = stack.pop()
        if instruction not in alive:
            alive.add(instruction)
            stack += instruction.operands
            stack += control_predecessors(instruction)
    return alive


_SIDE_EFFECTS = opcodes(Trait.SIDE_EFFECT)


class Effects:
    """Which instructions must run though nothing uses them, callers of such ones included."""

    def __init__(self, module: Module) -> None:
        self._computations: set[Computation] = set()
        for computation in callees_first(module):
            if any(self.has(i) for i in computation.instructions):
                self._computations.add(computation)

    def __contains__(self, computation: Computation) -> bool:
        """Whether something in the computation has an effect, or control edges order it."""
        return computation in self._computations or any(
            "control-predecessors" in i.attributes for i in computation.instructions
        )

    def has(self, instruction: Instruction) -> bool:
        if instruction.opcode in _SIDE_EFFECTS:
            return True
        if instruction.attributes.get("custom_call_has_side_effect"):
            return True
        if instruction.opcode in CONTROL or instruction.opcode in ("fusion", "custom-call"):
            return any(c in self._computations for c in instruction.called_computations())
        return False


def _keeps_control(order: Iterable[Instruction]) -> bool:
    seen: set[Instruction] = set()
    for instruction in order:
        if any(p not in seen for p in control_predecessors(instruction)):
            return False
        seen.add(instruction)
    return True


def depth_first(computation: Computation, own: tuple[Instruction, ...]) -> tuple[Instruction, ...]:
    """Operands before users, from the root down, what needs most beyond its result first.

    Optimal for trees (Sethi and Ullman 1970); parameters lead.
    """
    needs = subtree_needs(own)
    place = {instruction: n for n, instruction in enumerate(own)}
    order: dict[Instruction, None] = dict.fromkeys(computation.parameters)
    opened: set[Instruction] = set()
    stack = [computation.root]
    while stack:
        top = stack[-1]
        if top in order:
            stack.pop()
        elif top in opened:
            stack.pop()
            order[top] = None
        else:
            opened.add(top)
            waiting = [o for o in dict.fromkeys(top.operands) if o not in order]
            waiting.sort(key=lambda o: (needs[o] - _held(o), -place[o]))
            stack += waiting
    return tuple(order)


def subtree_needs(own: tuple[Instruction, ...]) -> dict[Instruction, int]:
    """The bytes that evaluating each instruction takes at its fullest, as if it were a tree."""
    needs: dict[Instruction, int] = {}
    for instruction in own:
        operands = sorted(dict.fromkeys(instruction.operands), key=lambda o: _held(o) - needs[o])
        held = most = 0
        for operand in operands:
            most = max(most, held + needs[operand])
            held += _held(operand)
        needs[instruction] = max(most, held + _held(instruction))
    return needs


def _held(instruction: Instruction) -> int:
    """Bytes that an instruction's own result takes while it lives."""
    if instruction.opcode in SOURCES or is_forwarding(instruction):
        return 0
    return value_bytes(instruction.shape)


def resolve(instruction: Instruction, leaf: int) -> Source | None:
    """The leaf that defines the bytes, through everything that only forwards; None: undefined."""
    while instruction.opcode not in SOURCES and is_forwarding(instruction):
        found = alias(instruction, leaf)
        if found is None:
            return None
        instruction, leaf = found
    return instruction, leaf


def operand_sources(instruction: Instruction) -> list[Source | None]:
    """What defines each operand leaf, in order."""
    return [resolve(o, leaf) for o in instruction.operands for leaf in range(leaf_count(o.shape))]


def last_uses(order: tuple[Instruction, ...]) -> dict[Source, int]:
    """The position of the last reader of each defined leaf; forwarding reads nothing."""
    last: dict[Source, int] = {}
    for position, instruction in enumerate(order):
        if instruction.opcode in SOURCES or is_forwarding(instruction):
            continue
        for source in operand_sources(instruction):
            if source is not None:
                last[source] = position
    return last


def peak_bytes(order: tuple[Instruction, ...]) -> int:
    """The most bytes live at once if nothing is in place; parameters, constants and what the root
    holds not counted: that has its memory all the time.
    """
    home = order[0].computation if order else None
    results = set() if home is None else results_of(home.root, resolve)
    kept: dict[Instruction, int] = {}
    for instruction, leaf in results:
        kept[instruction] = kept.get(instruction, 0) + leaf_sizes(instruction.shape)[leaf]
    last = last_uses(order)
    dying: dict[int, int] = {}
    for (instruction, leaf), position in last.items():
        if instruction.opcode not in SOURCES and (instruction, leaf) not in results:
            size = leaf_sizes(instruction.shape)[leaf]
            dying[position] = dying.get(position, 0) + size
    peak = now = 0
    for position, instruction in enumerate(order):
        if instruction.opcode in SOURCES or is_forwarding(instruction):
            continue
        now += value_bytes(instruction.shape) - kept.get(instruction, 0)
        peak = max(peak, now)
        now -= dying.get(position, 0)
    return peak
