"""How each opcode is compiled: without code, as control flow, by a kernel family, or on the host.

    instruction --family_of--> KernelFamily; a free instruction's leaf --alias--> the operand leaf
    that it is

Arrays lie row-major in memory whatever layout their shapes name (layouts other than that are met
at the boundary only), so a copy is its operand, and so is a reshape.
Does not know: buffers, LLVM.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from hlo.analysis.blocks.blocked import is_blocked
from hlo.analysis.fusibility import contraction_of, is_matrix_pair, is_wide_concatenate
from hlo.analysis.leaves import leaf_element, leaf_offset
from hlo.indexing.queries import keeps_positions
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape, compatible
from hlo.ops.custom_targets import IDENTITIES, own_target
from hlo.ops.table import OPS, KernelFamily, Opcodes, Trait, opcodes

CONTROL = Opcodes(lambda opcode: OPS[opcode].family is KernelFamily.CONTROL)
SOURCES = opcodes(Trait.SOURCE)
FORWARDING = Opcodes(lambda opcode: OPS[opcode].family is KernelFamily.FREE) - SOURCES
_COLLECTIVE = opcodes(Trait.COLLECTIVE)


def family_of(instruction: Instruction) -> KernelFamily:
    """How the instruction is compiled, unless its family declines (then on the host).

    Custom calls are on the host, but for those whose target has a family (planning/families.py).
    """
    usual = OPS[instruction.opcode].family
    if usual is KernelFamily.CONTROL or instruction.opcode in SOURCES:
        return usual
    if is_forwarding(instruction):
        return KernelFamily.FREE
    if contraction_of(instruction) is not None or is_matrix_pair(instruction):
        return KernelFamily.CONTRACTION
    if instruction.opcode == "fusion" and is_blocked(instruction):
        return KernelFamily.BLOCKED
    if is_wide_concatenate(instruction):
        return KernelFamily.JOINED
    if is_scatter_fusion(instruction):
        return KernelFamily.SCATTER
    return KernelFamily.LOOPS if usual is KernelFamily.FREE else usual


def is_scatter_fusion(instruction: Instruction) -> bool:
    """Whether it is a scatter with what makes its updates."""
    callees = instruction.called_computations() if instruction.opcode == "fusion" else []
    if not callees or callees[0].root.opcode != "scatter":
        return False
    from hlo.analysis.scatters import computed_scatter  # for few programs

    return computed_scatter(instruction) is not None


def is_contraction(instruction: Instruction) -> bool:
    """Whether the contraction engine computes it."""
    return family_of(instruction) is KernelFamily.CONTRACTION


def is_forwarding(instruction: Instruction) -> bool:
    """Whether every leaf of the value is a leaf of an operand (or has no defined value)."""
    forwards = _forwards(instruction.opcode)
    return forwards is not None and forwards(instruction)


@cache
def _forwards(opcode: str) -> Callable[[Instruction], bool] | None:
    """What says whether an instruction of the opcode is one."""
    if opcode in _FORWARDS:
        return _FORWARDS[opcode]
    if opcode in FORWARDING:
        return _always
    return _stays_on_device if opcode in _COLLECTIVE else None


def _always(instruction: Instruction) -> bool:
    return True


def _is_identity_call(call: Instruction) -> bool:
    return own_target(call) in IDENTITIES and bool(call.operands) and _is_compatible(call)


def _is_whole(instruction: Instruction) -> bool:
    """Whether a conversion, a slice or a concatenation is its only operand."""
    return len(instruction.operands) == 1 and _is_compatible(instruction)


def _is_compatible(instruction: Instruction) -> bool:
    return compatible(instruction.operands[0].shape, instruction.shape)


def _keeps_bytes(instruction: Instruction) -> bool:
    return all(_is_whole_bytes(i.shape.dtype) for i in (instruction.operands[0], instruction))


def _stays_on_device(collective: Instruction) -> bool:
    """Whether a collective that one device runs alone gives its operands.

    Groups of several devices, and shapes for them, are left to the reference, which refuses them;
    but all-reduces of one device are taken out whatever their groups, as XLA does.
    """
    shape, operands = collective.shape, collective.operands
    if collective.opcode == "all-reduce-done":
        return is_forwarding(operands[0]) and compatible(operands[0].shape, shape)
    if collective.opcode in ("all-gather-done", "collective-permute-done"):
        start = operands[0].shape
        return is_forwarding(operands[0]) and compatible(start.elements[1], shape)
    if collective.opcode in ("all-gather-start", "collective-permute-start"):  # operands, results
        shape = shape.elements[1]
    results = shape.elements if shape.is_tuple else (shape,)
    if collective.get("has_dynamic_root") or collective.get("slice_sizes"):
        return False
    if len(results) != len(operands) or shape.is_dynamic:
        return False
    if collective.opcode == "all-to-all" and len(operands) > 1:  # one per member of a group
        return False
    if not all(compatible(o.shape, r) for o, r in zip(operands, results, strict=True)):
        return False
    if collective.opcode in ("all-reduce", "all-reduce-start"):
        return True
    if collective.opcode in ("collective-permute", "collective-permute-start"):
        return collective.get("source_target_pairs") == ((0, 0),)
    from hlo.ops.collectives import GroupAttributes  # a family that few programs need

    groups = GroupAttributes.of(collective.attributes).replica_groups.groups()
    return not groups or next((g for g in groups if 0 in g), None) == (0,)


def bitcast_keeps_order(instruction: Instruction) -> bool:
    """Whether a bitcast's bytes, seen row-major on both sides, are the same."""
    shapes = (instruction.operands[0].shape, instruction.shape)
    return all(_is_row_major(s) for s in shapes) and shapes[0].size_bytes == shapes[1].size_bytes


def _is_row_major(shape: Shape) -> bool:
    if shape.layout is None:
        return False
    order = [d for d in shape.layout.minor_to_major if shape.dims[d] != 1]
    return order == sorted(order, reverse=True)


def _is_whole_bytes(dtype: dt.DType) -> bool:
    return not dtype.is_pred and dtype.numpy is not None and dtype.bits == 8 * dtype.item_bytes


_FORWARDS: dict[str, Callable[[Instruction], bool]] = {
    "bitcast": bitcast_keeps_order,
    "custom-call": _is_identity_call,
    "convert": _is_whole,
    "slice": _is_whole,
    "concatenate": _is_whole,
    "bitcast-convert": _keeps_bytes,
    "broadcast": keeps_positions,
    "transpose": keeps_positions,
}

OperandLeaf = tuple[Instruction, int] | None


def alias(instruction: Instruction, leaf: int) -> OperandLeaf:
    """The operand leaf that this leaf of a forwarding instruction is; None: no defined value."""
    found = _ALIASES.get(instruction.opcode)
    return (instruction.operands[0], leaf) if found is None else found(instruction, leaf)


def _of_operand(instruction: Instruction, leaf: int) -> OperandLeaf:
    return instruction.operands[leaf], 0


def _of_started(start: Instruction, leaf: int) -> OperandLeaf:
    """Of operands, results, and contexts."""
    count = len(start.operands)
    return (start.operands[leaf % count], 0) if leaf < 2 * count else None


def _of_second(done: Instruction, leaf: int) -> OperandLeaf:
    return done.operands[0], leaf_offset(done.operands[0].shape, 1) + leaf


def _of_tuple(instruction: Instruction, leaf: int) -> OperandLeaf:
    element, inner = leaf_element(instruction.shape, leaf)
    return instruction.operands[element], inner


def _of_element(instruction: Instruction, leaf: int) -> OperandLeaf:
    index = instruction.attributes["index"]
    assert isinstance(index, int), "index is an int"
    return instruction.operands[0], leaf_offset(instruction.operands[0].shape, index) + leaf


def _of_copy_start(start: Instruction, leaf: int) -> OperandLeaf:
    return (start.operands[0], 0) if leaf < 2 else None


def _of_copy_done(done: Instruction, leaf: int) -> OperandLeaf:
    return done.operands[0], 0


_ALIASES: dict[str, Callable[[Instruction, int], OperandLeaf]] = {
    "all-gather": _of_operand,
    "all-reduce": _of_operand,
    "all-reduce-start": _of_operand,
    "all-to-all": _of_operand,
    "collective-broadcast": _of_operand,
    "collective-permute": _of_operand,
    "reduce-scatter": _of_operand,
    "all-gather-start": _of_started,
    "collective-permute-start": _of_started,
    "all-gather-done": _of_second,
    "collective-permute-done": _of_second,
    "async-done": _of_second,
    "tuple": _of_tuple,
    "get-tuple-element": _of_element,
    "copy-start": _of_copy_start,
    "copy-done": _of_copy_done,
}
