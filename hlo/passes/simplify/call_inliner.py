"""call-inliner: put the bodies of called computations in place of `call`."""

from __future__ import annotations

from collections.abc import Callable

from hlo.analysis.call_budget import (
    called_otherwise,
    is_within_budget,
    of_calls,
    shared_computations,
)
from hlo.ir.computation import Computation
from hlo.ir.graph import (
    callees,
    callees_first,
    calls,
    clone_computation,
    clone_instruction,
    control_predecessors,
    post_order,
    redirect_calls,
)
from hlo.ir.instruction import Instruction, may_call
from hlo.ir.module import Module
from hlo.passes.liveness import awaited, wrapped_operations


def call_inliner(module: Module) -> bool:
    """Replace each `call` by its body.

    Callees first, so that one round inlines all levels. Calls on another execution thread and
    those with control dependences stay; so do calls of what the call budget says is shared, and
    what is copied wholly is then not inlined into by itself. O(size of the result).
    """
    wrapped = wrapped_operations(module)
    kept = {i for computation in module.computations for i in awaited(computation)}

    def may_inline(call: Instruction, computation: Computation) -> bool:
        return computation not in wrapped and call not in kept and _may_inline(call, computation)

    order = callees_first(module)
    called = of_calls(may_inline)
    shared: frozenset[Computation] = frozenset()
    if not is_within_budget(order, called):
        staying = called_otherwise(order, may_inline)
        shared = shared_computations(order, called, staying)
        order = [c for c in order if c in staying or c in shared]
    changed = False
    for computation in order:
        waiting = [i for i in reversed(calls(computation)) if may_inline(i, computation)]
        while waiting:
            call = waiting.pop()
            if shared.isdisjoint(call.called_computations()):
                made: list[Instruction] = []
                inline_call(call, made)
                kept.update(before for i in made for before in control_predecessors(i))
                waiting += [i for i in reversed(made) if may_inline(i, computation)]
                changed = True
    return changed


def _may_inline(instruction: Instruction, computation: Computation) -> bool:
    if instruction.opcode != "call" or "control-predecessors" in instruction.attributes:
        return False
    (callee,) = instruction.called_computations()
    return callee.execution_thread == computation.execution_thread


def inline_call(call: Instruction, made: list[Instruction] | None = None) -> Instruction:
    """Copy the callee's instructions into the caller and remove the call; gives the value that
    replaces it. made: the copies are added to it.
    """
    computation = call.computation
    assert computation is not None, f"{call.name} stands in no computation"
    (callee,) = call.called_computations()
    twins: dict[Instruction, Instruction] = {}
    for old in post_order(callee):
        if old.opcode == "parameter":
            number = old["parameter_number"]
            assert isinstance(number, int), "a parameter has a number"
            twins[old] = call.operands[number]
            continue
        new = clone_instruction(old, tuple(twins[o] for o in old.operands))
        if "control-predecessors" in new.attributes:
            before = tuple(twins[p] for p in control_predecessors(old))
            new.attributes = {**new.attributes, "control-predecessors": before}
        twins[old] = computation.adopt(new)
        if made is not None:
            made.append(new)
        if new.opcode == "async-start":
            _own_copies(new)
    result = twins[callee.root]
    computation.replace_uses(call, result)
    computation.remove(call)
    return result


Chosen = Callable[[Instruction, Computation], bool]
Inline = Callable[[Instruction, Computation], list[Instruction]]  # what stands there instead


def inline_from_callers(module: Module, chosen: Chosen, inline: Inline) -> bool:
    """Inline what is chosen, and what is chosen of what that brings; whether anything was.

    Callers first: what only chosen calls mention is not inlined into by itself, and goes away.
    O(size of the result).
    """
    order = callees_first(module)
    known = set(order)
    called = {callee for computation in order for callee in callees(computation)}
    staying = {module.entry, *(c for c in order if c not in called)}
    changed = False
    for computation in reversed(order):
        waiting = list(reversed(calls(computation))) if computation in staying else []
        while waiting:
            call = waiting.pop()
            if chosen(call, computation):
                waiting += [i for i in reversed(inline(call, computation)) if may_call(i)]
                changed = True
            else:
                staying.update(call.called_computations())
                for copy in call.called_computations():
                    if copy not in known:  # an async-start's own, which nothing here walks through
                        staying.update(callees(copy))
    if changed:
        module.remove_all([c for c in order if c not in staying])
    return changed


def _own_copies(start: Instruction) -> None:
    """Copies of what an async-start calls, since no two may call the same computation."""
    assert start.computation is not None, "an instruction in a computation"
    module = start.computation.module
    assert module is not None, "a computation in a module"
    copies: dict[Computation, Computation] = {}
    for callee in start.called_computations():
        copies[callee] = clone_computation(callee)
        module.adopt(copies[callee], before=callee)
    start.computation.set_attributes(start, redirect_calls(start.attributes, copies))
