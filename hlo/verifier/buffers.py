"""Buffers: values `b(f32[2])` that stand for memory, which one instruction at a time may write."""

from __future__ import annotations

from collections.abc import Iterator

from hlo.attributes.aliasing import OperandAlias
from hlo.errors import Violation
from hlo.ir.dtype import BUFFER
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape, shape_text
from hlo.ops.table import Trait, has_trait
from hlo.verifier.report import Report

Leaf = tuple[int, tuple[int, ...]]  # operand number (-1: the result) and the path inside of it


def check(module: Module, report: Report) -> None:
    """V70."""
    for computation in module.computations:
        if not any(_holds_buffers(i.shape) for i in computation.instructions):
            continue
        for instruction in computation.instructions:
            shapes = (instruction.shape, *(o.shape for o in instruction.operands))
            if not any(map(_holds_buffers, shapes)):
                continue
            try:
                _check_place(instruction)
                if instruction.opcode == "custom-call":
                    _check_call(instruction)
                _check_writers(instruction)
            except Violation as violation:
                report.add(instruction, violation)


def _holds_buffers(shape: Shape) -> bool:
    if not shape.is_tuple:
        return shape.dtype is BUFFER
    return any(leaf.dtype is BUFFER for leaf in shape.leaves())


def _check_place(instruction: Instruction) -> None:
    if not has_trait(instruction, Trait.BUFFERS):
        expected = "an op that passes buffers on, or a custom-call"
        raise Violation("buffer", "", "on a buffer", expected, "V70")
    from hlo.verifier.chains import in_entry  # few programs have buffers

    if instruction.opcode == "parameter" and in_entry(instruction):
        found = shape_text(instruction.shape, layout=False)
        raise Violation("buffer", "result", found, "an array: the caller has no buffers", "V70")


def _check_call(call: Instruction) -> None:
    """Pin and Unpin change between an array and its memory; other calls write where they alias."""
    target = call.attributes.get("custom_call_target")
    source = call.operands[0].shape if call.operands else None
    if target == "CreateBuffer":
        _demand(not call.operands and call.shape.dtype is BUFFER, call, "() -> b(T)")
        return
    if target == "Pin":
        fits = len(call.operands) == 1 and source is not None and source.is_array
        _demand(fits and call.shape.dtype is BUFFER, call, "T -> b(T)")
    elif target == "Unpin":
        fits = len(call.operands) == 1 and source is not None and source.dtype is BUFFER
        _demand(fits and call.shape.is_array, call, "b(T) -> T")
        return
    aliased = [leaf for alias in _aliases(call) for leaf in (
        (-1, alias.output), (alias.operand, alias.index))]  # fmt: skip
    for leaf in _buffers(call):
        if aliased.count(leaf) != 1:
            found = f"{_name(leaf)} in {aliased.count(leaf)} alias pairs"
            raise Violation("buffer", "", found, "each buffer in exactly one", "V70")


def _demand(fits: bool, call: Instruction, form: str) -> None:  # noqa: FBT001  # the condition
    if not fits:
        target = call.attributes.get("custom_call_target")
        found = f"{target} of {len(call.operands)} operands to {shape_text(call.shape)}"
        raise Violation("buffer", "", found, form, "V70")


def _check_writers(instruction: Instruction) -> None:
    """A buffer's memory changes in one place only."""
    if instruction.shape.dtype is not BUFFER:
        return
    writers = [user for user in instruction.users if _writes(user, instruction)]
    if len(writers) > 1:
        found = f"written by {', '.join(w.name for w in writers)}"
        raise Violation("buffer", "", found, "at most one writer", "V70")


def _writes(user: Instruction, buffer: Instruction) -> bool:
    if user.opcode == "dynamic-update-slice":
        return user.operands[0] is buffer
    if user.attributes.get("custom_call_target") == "Unpin":
        return False
    return any(
        0 <= a.operand < len(user.operands) and user.operands[a.operand] is buffer
        for a in _aliases(user)
    )


def _aliases(call: Instruction) -> list[OperandAlias]:
    return list(call.attributes.get("output_to_operand_aliasing", ()))  # type: ignore[call-overload,no-any-return]  # aliases


def _buffers(call: Instruction) -> Iterator[Leaf]:
    for number, operand in enumerate(call.operands):
        yield from ((number, path) for path in _paths(operand.shape))
    yield from ((-1, path) for path in _paths(call.shape))


def _paths(shape: Shape, prefix: tuple[int, ...] = ()) -> Iterator[tuple[int, ...]]:
    """Where buffers lie in a shape."""
    if shape.dtype is BUFFER:
        yield prefix
    elif shape.is_tuple:
        for k, element in enumerate(shape.elements):
            yield from _paths(element, (*prefix, k))


def _name(leaf: Leaf) -> str:
    number, path = leaf
    place = f" at {{{','.join(map(str, path))}}}" if path else ""
    return ("the result" if number < 0 else f"operand {number}") + place
