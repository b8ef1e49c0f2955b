"""Sources: where in the user's program an instruction comes from, by its metadata."""

from __future__ import annotations

from hlo.attributes.metadata import Metadata
from hlo.attributes.stack_frames import StackFrames, call_chain
from hlo.ir.instruction import Instruction


def op_name_of(instruction: Instruction) -> str:
    """What the framework called it, as `jit(f)/dot_general`; "" where nothing is said."""
    metadata = instruction.get("metadata")
    return metadata.op_name if isinstance(metadata, Metadata) else ""


def program_line_of(instruction: Instruction) -> str:
    """The line of the program that made the module, innermost of its calls: `loss.py:41`, or ""."""
    metadata = instruction.get("metadata")
    if not isinstance(metadata, Metadata):
        return ""
    home = instruction.computation
    tables = None if home is None or home.module is None else home.module.stack_frames
    if isinstance(tables, StackFrames) and metadata.stack_frame_id:
        chain = call_chain(tables, metadata.stack_frame_id)
        if chain:
            file, _, at = chain[-1]
            return f"{file}:{at.line}"
    return f"{metadata.source_file}:{metadata.source_line}" if metadata.source_file else ""


def text_line_of(instruction: Instruction) -> str:
    """The line of the module's text, "" of an instruction that was made in Python."""
    span = instruction.span
    return "" if span is None else f"{span.source.name}:{span.line}"


def source_of(instruction: Instruction) -> str:
    """The line of the program that an instruction comes from; else that of the module's text."""
    return program_line_of(instruction) or text_line_of(instruction)
