"""Fusion: producers move into the kernels of their consumers, seen as `fusion(...), calls=%fused`.

fusion(module): 1. fusions that no loop kernel can hold are written out; 2. long reductions with few
results are cut in two; 3. groups are planned per computation; 4. each becomes a computation.
"""

from __future__ import annotations

from hlo.analysis.blocks.blocked import is_blocked
from hlo.analysis.decisions import Decisions, config_of
from hlo.analysis.fusibility import (
    contraction_of,
    is_fusible_computation,
    is_matrix_pair,
    is_row_loop,
    is_scalar_constant,
)
from hlo.analysis.legality import CONTROL, is_scatter_fusion
from hlo.ir.computation import Computation
from hlo.ir.graph import callees, calls, clone_instruction, control_predecessors
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.passes.fusion.axes import Group
from hlo.passes.fusion.groups import is_worth_a_call, members_in_order, plan
from hlo.passes.fusion.reduction_results import finish_reductions
from hlo.passes.liveness import awaited, wrapped_operations
from hlo.passes.reduction.reduction_parts import spreads_short_row, wanted_parts
from hlo.passes.remarks import FUSED, remark
from hlo.passes.simplify.call_inliner import inline_call, inline_from_callers
from hlo.passes.simplify.dce import drop_dead_instructions

MOST_LISTED = 8  # members of a fusion in a remark


def fusion(module: Module, *, max_size: int = 100) -> bool:
    """Fuse producers into consumers where that saves memory traffic and repeats no costly work.

    max_size: most members of a fusion. Sources: XLA's cpu_instruction_fusion for what is fused at
    all; reductions in the middle of a kernel are our own (hlo/backend/loops).
    """
    changed = _write_out(module)
    left = called_by_ops(module) | wrapped_operations(module)
    order: list[Computation] = []
    for computation in tuple(module.computations):
        before = len(module.computations)
        if computation not in left:
            changed |= _fuse_all(module, computation, max_size)
        order += (*module.computations[before:], computation)  # callees before their callers
    module.computations = order
    return changed


def _split_reductions(module: Module, computation: Computation) -> bool:
    if not any(i.opcode == "reduce" and wanted_parts(i) > 1 for i in computation.instructions):
        return False
    from hlo.passes.reduction.reduction_splitting import (
        split_reductions,  # few programs' are so long
    )

    return split_reductions(module, computation)


def _tile_broadcasts(computation: Computation) -> bool:
    if not any(map(spreads_short_row, computation.instructions)):
        return False
    from hlo.passes.fusion.broadcast_tiling import tile_broadcasts  # few programs have such rows

    return tile_broadcasts(computation)


def _joined(groups: list[Group], max_size: int, finishing: list[Group]) -> list[Group]:
    if len(groups) < 2:
        return groups
    from hlo.passes.fusion.siblings import joined  # for programs of several loops

    return joined(groups, max_size, finishing)


def _fuse_all(module: Module, computation: Computation, max_size: int) -> bool:
    changed = _tile_broadcasts(computation)
    changed |= _split_reductions(module, computation)
    groups = plan(computation, max_size)
    loops = [g for g in groups if g.contraction is None]
    finishing = [g for g in groups if g.contraction is not None]
    calls_for: dict[Instruction, Instruction] = {}
    for group in _joined(loops, max_size, finishing) + finishing:
        if is_worth_a_call(group):
            calls_for |= _fuse(module, computation, group)
    if calls_for:
        computation.replace_all_uses(calls_for)
        changed = True
    changed |= finish_reductions(computation)
    return drop_dead_instructions(computation) or changed  # what only fused copies used


def called_by_ops(module: Module) -> set[Computation]:
    """Fused computations, reducers, comparators, and all that these call: code that belongs to one
    op's kernel."""
    stack = [
        callee
        for computation in module.computations
        for instruction in calls(computation)
        if instruction.opcode not in CONTROL
        for callee in instruction.called_computations()
    ]
    found: set[Computation] = set()
    while stack:
        top = stack.pop()
        if top not in found:
            found.add(top)
            stack += callees(top)
    return found


def _write_out(module: Module) -> bool:
    """Fusions with members that need kernels of their own (a dot) become their members.

    One that an async-start wraps becomes a call, which is one operation too.
    """
    wrapped = wrapped_operations(module)
    kept = {i for computation in module.computations for i in awaited(computation)}
    sizes: dict[Computation, int] = {}
    # Results of the fusions that others await.
    results: dict[Computation, dict[Instruction, Instruction]] = {}

    def is_written_out(fusion: Instruction, _: Computation) -> bool:
        if fusion.opcode != "fusion":
            return False
        (callee,) = fusion.called_computations()
        return not is_fusible_computation(callee, sizes) and not has_kernels(fusion)

    def write_out(fusion: Instruction, computation: Computation) -> list[Instruction]:
        (callee,) = fusion.called_computations()
        made: list[Instruction] = []
        if computation in wrapped:
            result = _called(computation, fusion, callee)
            made.append(result)
        else:
            result = inline_call(fusion, made)
        kept.update(before for i in made for before in control_predecessors(i))
        if fusion in kept:
            kept.add(result)
            results.setdefault(computation, {})[fusion] = result
        return made

    changed = inline_from_callers(module, is_written_out, write_out)
    for computation, of in results.items():
        _wait_for(computation, of)
    return changed


def has_kernels(fusion: Instruction) -> bool:
    """Whether other kernels than loop kernels run the fusion."""
    is_product = contraction_of(fusion) is not None or is_matrix_pair(fusion)
    if is_product or is_blocked(fusion) or is_row_loop(fusion):
        return True
    return is_scatter_fusion(fusion)


def _called(computation: Computation, fused: Instruction, callee: Computation) -> Instruction:
    """A call in the place of a fusion."""
    call = computation.new(
        "call", fused.shape, fused.operands, {"to_apply": callee}, like=fused, name=fused.name
    )
    computation.replace_uses(fused, call)
    computation.remove(fused)
    return call


def _wait_for(computation: Computation, results: dict[Instruction, Instruction]) -> None:
    """Whoever waits for a fusion waits for its result instead: its members have no effects.

    results: by fusion; where the result was a fusion too, of that one again.
    """
    last = dict(reversed(results.items()))
    for fused, result in last.items():
        last[fused] = last.get(result, result)
    for waiting in computation.instructions:
        before = control_predecessors(waiting)
        if any(p in last for p in before):
            now = tuple(dict.fromkeys(last.get(p, p) for p in before))
            computation.set_attributes(waiting, {**waiting.attributes, "control-predecessors": now})


def _fuse(module: Module, computation: Computation, group: Group) -> dict[Instruction, Instruction]:
    """Make the group a called computation; what has to stand for each of its roots."""
    members = members_in_order(group)
    body = Computation("fused_computation", execution_thread=computation.execution_thread)
    twins: dict[Instruction, Instruction] = {}
    operands: list[Instruction] = []
    for member in members:
        for operand in member.operands:
            if operand in twins or operand in group.members:
                continue
            if is_scalar_constant(operand):
                twins[operand] = body.add(clone_instruction(operand, ()))
                continue
            number = len(operands)
            operands.append(operand)
            twins[operand] = body.new(
                "parameter", operand.shape, (), {"parameter_number": number}, name=f"param_{number}"
            )
        twins[member] = body.add(
            clone_instruction(member, tuple(twins[o] for o in member.operands))
        )
    body.root = _body_root(body, [twins[r] for r in group.roots])
    module.adopt(body)
    kind = "kOutput" if group.contraction else "kInput" if group.has_reduce else "kLoop"
    name = f"{group.root.opcode}_fusion"
    remark(FUSED, group.root, lambda: f"{_listed(members)} are one kernel")
    attributes: dict[str, object] = {"kind": kind, "calls": body}
    if group.order is not None:
        attributes["backend_config"] = config_of(Decisions(loop_order=group.order.dims))
    call = computation.new(
        "fusion", body.root.shape, operands, attributes, like=group.root, name=name
    )
    if len(group.roots) == 1:
        return {group.root: call}
    return {
        root: computation.new("get-tuple-element", root.shape, (call,), {"index": k}, like=root)
        for k, root in enumerate(group.roots)
    }


def _listed(members: list[Instruction]) -> str:
    """The first few names of a fusion's members, and how many more."""
    shown = ", ".join(f"%{m.name}" for m in members[:MOST_LISTED])
    more = len(members) - MOST_LISTED
    return f"{shown} and {more} more" if more > 0 else shown


def _body_root(body: Computation, roots: list[Instruction]) -> Instruction:
    if len(roots) == 1:
        return roots[0]
    return body.new("tuple", Shape.tuple(r.shape for r in roots), roots)
