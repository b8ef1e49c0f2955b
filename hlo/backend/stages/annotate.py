"""Annotated assembly: one kernel's machine code beside the HLO that it comes from.

    Compilation, name of a kernel --annotated--> assembly, HLO names, loops, instruction mixes

The kernel is written once more with debug locations (debug_locations.py), which change no code.
Loops and their nesting are LLVM's own comments.
"""

from __future__ import annotations

import re
from collections import Counter

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.backend.compilation import Compilation
from hlo.backend.entry.kernel_modules import module_alone
from hlo.backend.ir import debug_locations
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.kernel import Kernel
from hlo.backend.isa.mnemonics import KINDS, kinds
from hlo.backend.linking import toolchain
from hlo.backend.planning.brevity import brief_kernels
from hlo.backend.planning.program import kernel_steps
from hlo.errors import HloError
from hlo.ir.instruction import Instruction

_DEFINE = re.compile(r"^(define void @\S+\([^)]*\)[^{]*){", re.MULTILINE)
_FILE = re.compile(r'\s*\.file\s+(\d+)\s+"([^"]*)"(?:\s+"([^"]*)")?')
_LOCATION = re.compile(r"\s*\.loc\s+(\d+)")
_LABEL = re.compile(r"^\.L(BB\d+_\d+):|^# %bb\.\d+:")
_HEADER = re.compile(r"Loop Header: Depth=(\d+)")
_INSIDE = re.compile(r"in Loop: Header=(BB\d+_\d+) Depth=(\d+)")
_OPERATION = re.compile(r"^\t([a-z]\w*)(?:\t([^#]*))?")


def annotated(compilation: Compilation, name: str) -> str:
    """The kernels that `name` names: an instruction, k0 as in --emit=program, or a symbol."""
    program = compilation.with_target(replace(compilation.target, debug_locations=True)).program
    users: dict[int, dict[Instruction, None]] = {}
    for step in kernel_steps(program):
        users.setdefault(step.kernel, {})[step.instruction] = None
    parts, brief = [], brief_kernels(program)
    for number, instructions in users.items():
        kernel = program.kernels[number]
        names = [i.name for i in instructions]
        if name in (f"k{number}", symbol(kernel), *names):
            module = module_alone(_label(number), kernel, is_brief=number in brief)
            module = replace(module, machine=compilation.machine)
            parts.append(_kernel_function(number, kernel, list(instructions), module))
    if not parts:
        known = ", ".join(f"k{n} ({next(iter(i)).name})" for n, i in users.items())
        raise HloError("arguments", f"there is no kernel {name}, expected one of: {known}")
    return "\n".join(parts)


def _label(number: int) -> str:
    return f"kernel_{number}"


def _kernel_function(
    number: int, kernel: Kernel, instructions: list[Instruction], module: IrModule
) -> str:
    text = _DEFINE.sub(rf"\g<1>!dbg {debug_locations.SUBPROGRAM} {{", module.text)
    located = replace(module, text=text + debug_locations.UNIT)
    listing = Listing()
    listing.read(toolchain.assembly(located, is_verbose=True), _label(number))
    head = [f"# kernel k{number} ({symbol(kernel)}): {kernel.units} units"]
    for instruction in instructions:
        span = instruction.span
        place = "" if span is None else f"  {span.source.name}:{span.line}"
        head.append(f"#   {instruction.name} = {instruction.shape} {instruction.opcode}{place}")
    return "\n".join([*head, *listing.summary(), *listing.lines, ""])


class Loop(Struct):
    """One loop: its depth, and how many instructions of each kind stand in it, not deeper."""

    depth: int
    mix: Counter[str] = field(default_factory=Counter)


class Listing(Struct):
    """The annotated lines of one function, and its loops by header ("" is outside of all)."""

    lines: list[str] = field(default_factory=list)
    loops: dict[str, Loop] = field(default_factory=lambda: {"": Loop(0)})

    def read(self, assembly: str, label: str) -> None:
        """Take the function's lines from a module's verbose assembly."""
        names: dict[str, str] = {}
        is_inside = False
        block = loop = origin = shown = ""
        for line in assembly.splitlines():
            if found := _FILE.match(line):
                place, text = found[2], found[3]
                names[found[1]] = f"{text}  {place}".rstrip() if text else place
                if names[found[1]] == debug_locations.NOWHERE:
                    names[found[1]] = ""
            elif line.startswith(f"{label}:"):
                is_inside = True
            elif not is_inside or line.startswith(".Lfunc_end"):
                is_inside = False
            elif found := _LOCATION.match(line):
                origin = names.get(found[1], "")
            else:
                if found := _LABEL.match(line):
                    block, loop = found[1] or "", ""
                loop = self._loop(line, block, loop)
                if found := _OPERATION.match(line):
                    self.loops[loop].mix.update(kinds(found[1], found[2] or ""))
                    self._show(line, loop, "" if origin == shown else origin)
                    shown = origin
                elif line.startswith(".LBB"):
                    self._show(line.partition("#")[0].rstrip(), loop, "")

    def _loop(self, line: str, block: str, loop: str) -> str:
        """The header of the innermost loop around the line, as LLVM's comments tell."""
        if found := _INSIDE.search(line):
            self.loops.setdefault(found[1], Loop(int(found[2])))
            return found[1]
        if block and (found := _HEADER.search(line)):
            self.loops.setdefault(block, Loop(int(found[1])))
            return block
        return loop

    def _show(self, line: str, loop: str, origin: str) -> None:
        bars = "| " * self.loops[loop].depth
        text = line.expandtabs(8).rstrip()
        text = re.sub(r"\s+# .*$", "", text)
        self.lines.append(f"{bars}{text:<56}# {origin}" if origin else f"{bars}{text}")

    def summary(self) -> list[str]:
        """A table: the instruction mix of each loop."""
        rows = [f"# {'loop':<14}" + "".join(f"{k:>8}" for k in KINDS)]
        for header, loop in self.loops.items():
            name = "  " * loop.depth + (header or "outside")
            rows.append(f"# {name:<14}" + "".join(f"{loop.mix[k]:>8}" for k in KINDS))
        return rows
