"""Debug locations: they say which HLO instruction a line of LLVM IR comes from.

    Instruction --debug_location--> ", !dbg !N", its name and source line as the location's file

The names travel in the kernel's own text, so that whoever prints its assembly finds them there.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Writer
from hlo.ir.instruction import Instruction

FIRST = 9000  # The first number of metadata: those of the kernels themselves are smaller.
SUBPROGRAM = f"!{FIRST}"
NOWHERE = "hlo"  # The file name of lines that come from no instruction.
UNIT = f"""!llvm.module.flags = !{{!{FIRST + 1}}}
!llvm.dbg.cu = !{{!{FIRST + 2}}}
{SUBPROGRAM} = distinct !DISubprogram(name: "kernel", scope: !{FIRST + 3}, file: !{FIRST + 3}, \
type: !{FIRST + 4}, spFlags: DISPFlagDefinition, unit: !{FIRST + 2})
!{FIRST + 1} = !{{i32 2, !"Debug Info Version", i32 3}}
!{FIRST + 2} = distinct !DICompileUnit(language: DW_LANG_C, file: !{FIRST + 3}, \
emissionKind: LineTablesOnly)
!{FIRST + 3} = !DIFile(filename: "{NOWHERE}", directory: "")
!{FIRST + 4} = !DISubroutineType(types: !{{null}})
"""


def debug_location(w: Writer, instruction: Instruction) -> str:
    """What a line that comes from the instruction ends with; its metadata goes into the writer."""
    span = instruction.span
    place = "" if span is None else f"{span.source.name}:{span.line}"
    text = f"{instruction.name} = {instruction.shape} {instruction.opcode}"
    key = f"!location {text} {place}"
    known = w.declarations.get(key)
    if known is None:
        number = FIRST + 10 + 3 * sum(k.startswith("!location") for k in w.declarations)
        names = f'filename: "{_quoted(text)}", directory: "{_quoted(place)}"'
        known = w.declarations[key] = (
            f"!{number} = !DILocation(line: 1, scope: !{number + 1})\n"
            f"!{number + 1} = !DILexicalBlockFile(scope: {SUBPROGRAM}, file: !{number + 2}, "
            f"discriminator: 0)\n!{number + 2} = !DIFile({names})"
        )
    return f", !dbg {known[: known.index(' ')]}"


def _quoted(text: str) -> str:
    return text.replace("\\", "/").replace('"', "'")
