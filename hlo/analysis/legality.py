"""How each opcode is compiled: without code, as control flow, by a kernel family, or on the host.

    instruction --legality--> Way; a free instruction's leaf --alias--> the operand leaf that it is

Arrays lie row-major in memory whatever layout their shapes name (layouts other than that are met
at the boundary only), so a copy is its operand, and so is a reshape.
Does not know: buffers, LLVM.
"""

from __future__ import annotations

from hlo.analysis.block_size import is_blocked
from hlo.analysis.fusibility import contraction_of, is_wide_concatenate
from hlo.analysis.leaves import leaf_element, leaf_offset
from hlo.indexing.queries import keeps_positions
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape, compatible
from hlo.ops.lapack import FAMILIES as LAPACK
from hlo.ops.table import OPS, Trait, Way, attribute, has_trait, opcodes

CONTROL = frozenset(o for o, row in OPS.items() if row.way is Way.CONTROL)
SOURCES = opcodes(Trait.SOURCE)
FORWARDING = frozenset(o for o, row in OPS.items() if row.way is Way.FREE) - SOURCES
# Custom calls that are the identity on one CPU device (OP_SEMANTICS_CONTROL.md 5.4).
IDENTITY_TARGETS = frozenset(
    {
        "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "LayoutConstraint",
        "xla.sdy.GlobalToLocalShape", "xla.sdy.LocalToGlobalShape", "xla.sdy.FuncResultSharding",
        "MoveToHost", "MoveToDevice", "PinToDevice", "annotate_device_placement", "MaximalSharding",
        "ShardBarrierFrom", "ShardBarrierTo", "SetBound",
    }
)  # fmt: skip
# LAPACK's calls: kernels of our own, or of SciPy's library.
MATRIX_TARGETS = frozenset(
    f"lapack_{letter}{name}_ffi" for letters, name, _, _ in LAPACK for letter in letters
)


def way(instruction: Instruction) -> Way:
    """How the instruction is compiled, unless its family declines (then on the host)."""
    usual = OPS[instruction.opcode].way
    if usual is Way.CONTROL or instruction.opcode in SOURCES:
        return usual
    if is_forwarding(instruction):
        return Way.FREE
    if usual is Way.HOST and instruction.get("custom_call_target") in MATRIX_TARGETS:
        return Way.FACTOR
    if contraction_of(instruction) is not None:
        return Way.CONTRACTION
    if instruction.opcode == "fusion" and is_blocked(instruction):
        return Way.BLOCKED
    if is_wide_concatenate(instruction):
        return Way.JOINED
    return Way.STAGED if usual is Way.FREE else usual


def is_contraction(instruction: Instruction) -> bool:
    """Whether the contraction engine computes it."""
    return way(instruction) is Way.CONTRACTION


def is_forwarding(instruction: Instruction) -> bool:
    """Whether every leaf of the value is a leaf of an operand (or has no defined value)."""
    opcode = instruction.opcode
    if opcode in FORWARDING:
        return opcode != "bitcast" or bitcast_keeps_order(instruction)
    if has_trait(instruction, Trait.COLLECTIVE):
        return _stays_on_device(instruction)
    if not instruction.operands:
        return False
    operand, shape = instruction.operands[0].shape, instruction.shape
    match opcode:
        case "custom-call":
            target = instruction.attributes.get("custom_call_target")
            return target in IDENTITY_TARGETS and compatible(operand, shape)
        case "convert" | "slice" | "concatenate":
            return len(instruction.operands) == 1 and compatible(operand, shape)
        case "bitcast-convert":
            return _is_whole_bytes(operand.dtype) and _is_whole_bytes(shape.dtype)
        case "broadcast" | "transpose":
            return keeps_positions(instruction)
    return False


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
    groups = attribute(collective, "replica_groups").groups()  # type: ignore[attr-defined]  # its kind
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


def alias(instruction: Instruction, leaf: int) -> tuple[Instruction, int] | None:
    """The operand leaf that this leaf of a forwarding instruction is; None: no defined value."""
    operands = instruction.operands
    match instruction.opcode:
        case "all-gather" | "all-reduce" | "all-reduce-start" | "all-to-all":
            return operands[leaf], 0
        case "collective-broadcast" | "collective-permute" | "reduce-scatter":
            return operands[leaf], 0
        case "all-gather-start" | "collective-permute-start":  # operands, results, and contexts
            count = len(operands)
            return (operands[leaf % count], 0) if leaf < 2 * count else None
        case "all-gather-done" | "collective-permute-done":
            return operands[0], leaf_offset(operands[0].shape, 1) + leaf
        case "tuple":
            element, inner = leaf_element(instruction.shape, leaf)
            return operands[element], inner
        case "get-tuple-element":
            index = instruction.attributes["index"]
            assert isinstance(index, int), "index is an int"
            return operands[0], leaf_offset(operands[0].shape, index) + leaf
        case "async-done":
            return operands[0], leaf_offset(operands[0].shape, 1) + leaf
        case "copy-start":
            return (operands[0], 0) if leaf < 2 else None
        case "copy-done":
            return operands[0], 0
    return operands[0], leaf
