"""Orders, clones and equality over the instruction graph.

Nothing here recurses: modules are deep.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from operator import attrgetter

from hlo.ir.computation import Computation
from hlo.ir.instruction import CALLING_ATTRIBUTES, Attributes, Instruction, calling_keys
from hlo.ir.module import Module

_KEYS = frozenset(CALLING_ATTRIBUTES)


def control_predecessors(instruction: Instruction) -> tuple[Instruction, ...]:
    """Instructions that must run before this one though it does not use them."""
    return instruction.attributes.get("control-predecessors", ())  # type: ignore[return-value]  # instructions


def post_order(computation: Computation) -> tuple[Instruction, ...]:
    """Operands before users, as XLA orders and prints them (docs/text.md 8.5). O(edges)."""
    return computation.fact(_post_order)


def _post_order(computation: Computation) -> tuple[Instruction, ...]:
    done: dict[Instruction, None] = {}
    visiting: set[Instruction] = set()
    for start in computation.instructions:
        if start.users or start in done:
            continue
        stack = [start]
        while stack:
            top = stack[-1]
            if top not in visiting:
                visiting.add(top)
                depth = len(stack)
                for operand in reversed(top.operands):
                    if operand not in done:
                        stack.append(operand)
                if "control-predecessors" in top.attributes:
                    stack += [c for c in control_predecessors(top) if c not in done]
                if len(stack) > depth:
                    continue
            stack.pop()
            done[top] = None  # where it stands, if it is there
    return tuple(done)


def computed_from(
    value: Instruction,
    known: Iterable[Instruction] = (),
    read: Callable[[Instruction], Sequence[Instruction]] = attrgetter("operands"),
) -> Iterator[Instruction]:
    """All that a value is computed from and itself, operands before users; not what is known, nor
    what that is computed from. read: which operands of an instruction count.
    """
    done = set(known)
    stack = [value]
    while stack:
        top = stack[-1]
        waiting = [o for o in read(top) if o not in done]
        if waiting:
            stack += waiting
            continue
        stack.pop()
        if top not in done:
            done.add(top)
            yield top


def callees_first(module: Module) -> list[Computation]:
    """Every computation of the module after all that it calls; module order otherwise."""
    done: dict[Computation, None] = {}
    for start in module.computations:
        stack: list[tuple[Computation, Iterator[Computation]]] = [(start, iter(callees(start)))]
        active = {start}
        while stack and stack[-1][0] not in done:
            computation, waiting = stack[-1]
            callee = next((c for c in waiting if c not in done and c not in active), None)
            if callee is None:
                done[computation] = None
                active.discard(computation)
                stack.pop()
            else:
                active.add(callee)
                stack.append((callee, iter(callees(callee))))
    return list(done)


def calls(computation: Computation) -> tuple[Instruction, ...]:
    """The instructions that call computations, in order."""
    return computation.fact(_calls)


def _calls(computation: Computation) -> tuple[Instruction, ...]:
    return tuple([i for i in computation.instructions if not _KEYS.isdisjoint(i.attributes)])


def callees(computation: Computation) -> tuple[Computation, ...]:
    """What a computation calls itself, each once, in order."""
    return computation.fact(_callees)


def _callees(computation: Computation) -> tuple[Computation, ...]:
    return tuple(dict.fromkeys(c for i in calls(computation) for c in i.called_computations()))


def callers(module: Module) -> dict[Computation, list[Instruction]]:
    """The instructions that call each computation."""
    found: dict[Computation, list[Instruction]] = {c: [] for c in module.computations}
    for computation in module.computations:
        for instruction in calls(computation):
            for callee in instruction.called_computations():
                found.setdefault(callee, []).append(instruction)
    return found


def body_of(loop: Instruction) -> Computation:
    """What a while repeats."""
    body = loop.attributes["body"]
    assert isinstance(body, Computation), "a while has a body"
    return body


def callers_below(entry: Computation) -> dict[Computation, list[Instruction]]:
    """What calls each computation, of those that a computation calls, directly or not; none calls
    the computation itself.
    """
    found: dict[Computation, list[Instruction]] = {entry: []}
    waiting = [entry]
    while waiting:
        for call in calls(waiting.pop()):
            for callee in call.called_computations():
                if callee not in found:
                    found[callee] = []
                    waiting.append(callee)
                found[callee].append(call)
    return found


def reachable_computations(module: Module) -> set[Computation]:
    """The entry and all that it calls, directly or not."""
    found = {module.entry}
    stack = [module.entry]
    while stack:
        for callee in callees(stack.pop()):
            if callee not in found:
                found.add(callee)
                stack.append(callee)
    return found


def clone_computation(
    computation: Computation,
    *,
    name: str = "",
    callees: dict[Computation, Computation] | None = None,
) -> Computation:
    """A copy outside any module; calls go to `callees[c]`, or to the same c where it has none."""
    copy = Computation(name or computation.name, execution_thread=computation.execution_thread)
    twins: dict[Instruction, Instruction] = {}
    order = computation.instructions
    if not is_topological(order):
        order = post_order(computation)
    for old in order:
        twins[old] = clone_instruction(old, tuple(twins[o] for o in old.operands), callees)
        copy.add(twins[old])
    for new in copy.instructions:
        if "control-predecessors" in new.attributes:
            moved = tuple(twins[p] for p in control_predecessors(new) if p in twins)
            new.attributes = {**new.attributes, "control-predecessors": moved}
    copy.root = twins[computation.root]
    return copy


def is_topological(order: Iterable[Instruction]) -> bool:
    """Whether every operand stands before its users."""
    seen: set[Instruction] = set()
    for instruction in order:
        if any(o not in seen for o in instruction.operands):
            return False
        seen.add(instruction)
    return True


def clone_instruction(
    old: Instruction,
    operands: tuple[Instruction, ...],
    callees: dict[Computation, Computation] | None = None,
) -> Instruction:
    """A copy with other operands, in no computation yet."""
    new = Instruction(old.name, old.opcode, old.shape, operands, old.attributes)
    new.start, new.end, new.source = old.start, old.end, old.source
    if callees:
        new.attributes = redirect_calls(new.attributes, callees)
    return new


def redirect_calls(attributes: Attributes, callees: dict[Computation, Computation]) -> Attributes:
    """The attributes with every called computation replaced as `callees` says."""
    changed: dict[str, object] = {}
    for key in calling_keys(attributes):
        value = attributes[key]
        if isinstance(value, tuple):
            changed[key] = tuple(callees.get(c, c) for c in value)
        elif isinstance(value, Computation) and value in callees:
            changed[key] = callees[value]
    return {**attributes, **changed} if changed else attributes


def clone_module(module: Module) -> Module:
    """A deep copy that shares only values (shapes, literals, attributes).

    >>> axpy = hlo.read("examples/axpy.hlo")
    >>> str(hlo.clone_module(axpy)) == str(axpy)
    True
    """
    copy = Module(module.name, module.attributes)
    copy.stack_frames, copy.source = module.stack_frames, module.source
    twins: dict[Computation, Computation] = {}
    for computation in callees_first(module):
        twins[computation] = clone_computation(computation, callees=twins)
    for computation in module.computations:
        copy.add(twins[computation], entry=computation is module.entry)
    return copy
