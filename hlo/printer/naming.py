"""Naming: how a printing shows the names of instructions and computations."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.names import fresh_names, has_unique_names
from hlo.printer.options import PrintOptions

Names = dict[Instruction, str]


class Naming:
    """Names as in the module; made unique for the text where edits left them ambiguous."""

    def __init__(self, module: Module, options: PrintOptions) -> None:
        self._options = options
        self._sign = "%" if options.print_percent else ""
        self._instructions: Names = {}
        self._computations: dict[Computation, str] = {}
        if not options.as_written and not has_unique_names(module):
            self._instructions, self._computations = fresh_names(module)

    def shown(self, name: str) -> str:
        """Without ids a name ends at its first dot."""
        return name if self._options.print_ids else name.partition(".")[0]

    def bare(self, instruction: Instruction) -> str:
        """Without the sign."""
        return self.shown(self._instructions.get(instruction) or instruction.name)

    def instruction(self, instruction: Instruction) -> str:
        return self._sign + self.bare(instruction)

    def computation(self, computation: Computation) -> str:
        name = self._computations.get(computation) or computation.name
        return self._sign + self.shown(name)

    def head(self, computation: Computation) -> str:
        """What stands before a computation's signature; the sign stays without ids."""
        return f"{self.computation(computation)} " if self._options.print_ids else self._sign

    def body(self, order: Sequence[Instruction]) -> Names:
        """What each instruction of a body is called inside it."""
        if self._options.canonicalize_instruction_names:
            return {i: f"tmp_{k}" for k, i in enumerate(order)}
        if self._options.print_ids and not self._instructions:
            sign = self._sign
            return {i: sign + i.name for i in order}
        return {i: self.instruction(i) for i in order}
