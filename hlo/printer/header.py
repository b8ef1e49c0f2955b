"""The module's header: its attributes, then the stack frame tables (docs/text.md 8.2)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from msgspec.structs import replace

from hlo.attributes.escape import quoted
from hlo.attributes.kind import MODULE_READERS
from hlo.ir.dtype import DTYPES
from hlo.ir.module import Module
from hlo.ir.shape import ProgramShape
from hlo.ops.module_attributes import MODULE_ATTRS
from hlo.printer.options import PrintOptions

if TYPE_CHECKING:
    from hlo.attributes.origin import RecoveryTable
    from hlo.attributes.stack_frames import StackFrames

RESERVED = frozenset(
    (
        *DTYPES,
        *("nan", "inf", "true", "false", "HloModule", "ENTRY", "ROOT", "FileNames"),
        *("FunctionNames", "FileLocations", "StackFrames", "maximal", "replicated", "manual"),
        *("unknown", "unreduced", "last_tile_dim_replicate", "shard_as", "shard_like"),
    )
)


def header_text(module: Module, options: PrintOptions) -> str:
    """`HloModule name, ...` without a newline, and the tables where they are shown."""
    name = module.name if options.print_ids else ""
    if options.reads_back and name in RESERVED:
        name = f"%{name}"  # a keyword or a type without the sign
    attributes = "".join(_attribute_texts(module, options))
    frames = module.stack_frames
    tables = ""
    if options.print_metadata and frames is not None:
        from hlo.attributes.stack_frames import StackFrames

        if isinstance(frames, StackFrames) and frames.frames:
            tables = "\n\n" + stack_frames_text(frames)
    return f"HloModule {name}{attributes}{tables}"


def _attribute_texts(module: Module, options: PrintOptions) -> Iterator[str]:
    for key, attr in MODULE_ATTRS.items():
        value = module.attributes.get(key)
        if key == "entry_computation_layout":
            value = value or module.entry.program_shape
            assert isinstance(value, ProgramShape), "the entry's layout is a program shape"
        elif value in (None, (), attr.default):
            continue
        elif key == "origin_recovery_table":
            yield f", {key}={_recovery_text(value, options)}"  # type: ignore[arg-type]  # a table
            continue
        elif key == "frontend_attributes" and not options.reads_back:
            yield f", {key}={attr.kind.print(value, reads_back=False)}"
            continue
        space = "\n" if key == "debug_attributes" else " "
        yield f",{space}{key}={attr.kind.print(value)}"


def _recovery_text(table: RecoveryTable, options: PrintOptions) -> str:
    """The modules inside are printed in the default form, whatever the form outside."""
    inside = PrintOptions() if options.reads_back else PrintOptions.xla_default()
    indented = replace(inside, indent_amount=options.indent_amount + 2)

    def inner(text: str) -> str:
        for read in MODULE_READERS:
            module = read(text)
            assert isinstance(module, Module), "a reader gives a module"
            return module.to_text(indented)
        return text

    from hlo.attributes.origin import recovery_table_text

    return recovery_table_text(
        table, inner, escape=options.reads_back, indent=options.indent_amount
    )


def stack_frames_text(tables: StackFrames) -> str:
    """Four sections, rows numbered from 1."""
    sections = (
        ("FileNames", [quoted(name) for name in tables.file_names]),
        ("FunctionNames", [quoted(name) for name in tables.function_names]),
        (
            "FileLocations",
            [
                f"{{file_name_id={at.file_name_id} function_name_id={at.function_name_id} "
                f"line={at.line} end_line={at.end_line} "
                f"column={at.column} end_column={at.end_column}}}"
                for at in tables.locations
            ],
        ),
        (
            "StackFrames",
            [
                f"{{file_location_id={f.location} parent_frame_id={f.parent + 1}}}"
                for f in tables.frames
            ],
        ),
    )
    texts = []
    for keyword, rows in sections:
        numbered = "".join(f"{number} {row}\n" for number, row in enumerate(rows, 1))
        texts.append(f"{keyword}\n{numbered}")
    return "\n".join(texts)
