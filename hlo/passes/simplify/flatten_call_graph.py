"""flatten-call-graph: give each control-flow call a computation of its own."""

from __future__ import annotations

from hlo.analysis.call_budget import shared_by
from hlo.ir.computation import Computation
from hlo.ir.graph import callees_first, callers, calls, clone_computation, redirect_calls
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.table import Trait, opcodes

CONTROL_FLOW = opcodes(Trait.CALLS)


def flatten_call_graph(module: Module) -> bool:
    """Clone computations that several control-flow instructions call.

    Callers first, so that a clone's own callees are shared by then and cloned in their turn.
    The result is as large as the call tree, within the call budget.
    """
    shared = shared_by(module, CONTROL_FLOW)
    sites = callers(module)
    changed = False
    for computation in reversed(callees_first(module)):
        if computation in shared:
            continue
        for site in [i for i in sites[computation] if i.opcode in CONTROL_FLOW][1:]:
            clone = clone_computation(computation)
            module.adopt(clone, after=computation)
            caller = site.computation
            assert caller is not None, "a call in a computation"
            caller.set_attributes(site, _one_redirected(site, computation, clone))
            for instruction in calls(clone):
                for callee in instruction.called_computations():
                    sites[callee].append(instruction)
            changed = True
    return changed


def _one_redirected(site: Instruction, old: Computation, new: Computation) -> dict[str, object]:
    """The site's attributes with the last mention of `old` replaced."""
    attributes = dict(site.attributes)
    for key in reversed(list(attributes)):
        value = attributes[key]
        if value is old:
            attributes[key] = new
            return attributes
        if isinstance(value, tuple) and old in value:
            last = len(value) - 1 - value[::-1].index(old)
            attributes[key] = (*value[:last], new, *value[last + 1 :])
            return attributes
    return dict(redirect_calls(attributes, {old: new}))
