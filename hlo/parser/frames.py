"""Stack frames of a module that has been read: numbered as XLA numbers them."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hlo.attributes.metadata import Metadata
from hlo.attributes.stack_frames import StackFrames, interned
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module


def intern_frames(module: Module, instructions: Sequence[Instruction], read: object | None) -> None:
    """Number the stack frames by first use; an id that leads nowhere becomes 0. read: the text's
    tables, if it has any.
    """
    tables = read if isinstance(read, StackFrames) else StackFrames()
    ids = [
        metadata.stack_frame_id
        for i in instructions
        if isinstance(metadata := i.attributes.get("metadata"), Metadata)
        and metadata.stack_frame_id
    ]
    if not ids:
        return
    used, numbers = interned(tables, ids)
    module.stack_frames = used if used.frames else None
    if all(old == new for old, new in numbers.items()):
        return
    renumbered: dict[Metadata, Metadata] = {}
    for instruction in instructions:
        metadata = instruction.attributes.get("metadata")
        if not isinstance(metadata, Metadata) or not metadata.stack_frame_id:
            continue
        new = renumbered.get(metadata)
        if new is None:
            number = numbers[metadata.stack_frame_id]
            new = renumbered[metadata] = replace(metadata, stack_frame_id=number)
        instruction.attributes = {**instruction.attributes, "metadata": new}
