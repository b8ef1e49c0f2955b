"""Fusion copy: fusions and single ops put into one computation, which a new fusion calls."""

from __future__ import annotations

from collections.abc import Mapping

from hlo.analysis.fusibility import is_scalar_constant
from hlo.ir.computation import Computation
from hlo.ir.graph import clone_instruction, computed_from
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal


class Joint:
    """A computation that is being made of instructions of another one. operands: what the fusion
    that calls it has, one for each parameter.
    """

    def __init__(self, computation: Computation) -> None:
        thread = computation.execution_thread
        self.made = Computation("fused_computation", execution_thread=thread)
        self.operands: list[Instruction] = []
        self._parameters: dict[Instruction, Instruction] = {}
        self._constants: dict[object, Instruction] = {}

    def parameter(self, operand: Instruction) -> Instruction:
        """An operand in there."""
        if operand not in self._parameters:
            number = {"parameter_number": len(self.operands)}
            name = f"param_{len(self.operands)}"
            made = self.made.new("parameter", operand.shape, (), number, name=name)
            self._parameters[operand] = made
            self.operands.append(operand)
        return self._parameters[operand]

    def put(
        self,
        instruction: Instruction,
        known: Mapping[Instruction, Instruction] | None = None,
        leaf: int | None = None,
    ) -> Instruction:
        """What an op or a fusion computes, of those operands that are in there already and of
        parameters. leaf: the element of a fusion's tuple that is wanted, with what it needs.
        """
        known = known or {}
        if instruction.opcode != "fusion":
            given = (known.get(o) or self.parameter(o) for o in instruction.operands)
            return self._clone(instruction, tuple(given))
        (callee,) = instruction.called_computations()
        root = callee.root if leaf is None else callee.root.operands[leaf]
        members = list(computed_from(root))
        needed, twins = set(members), dict[Instruction, Instruction]()
        for parameter, o in zip(callee.parameters, instruction.operands, strict=True):
            if parameter in needed:
                twins[parameter] = known.get(o) or self.parameter(o)
        for member in members:
            if member.opcode != "parameter":
                operands = tuple(twins[o] for o in member.operands)
                twins[member] = self._clone(member, operands)
        return twins[root]

    def _clone(self, member: Instruction, operands: tuple[Instruction, ...]) -> Instruction:
        """A member's twin; scalar constants of several fusions that are equal are one."""
        literal = member.get("literal")
        if not is_scalar_constant(member) or not isinstance(literal, Literal):
            return self.made.adopt(clone_instruction(member, operands))
        key = member.shape, literal.array.tobytes()
        if key not in self._constants:
            self._constants[key] = self.made.adopt(clone_instruction(member, operands))
        return self._constants[key]
