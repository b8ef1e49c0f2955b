"""Module -> HloModuleProto, field for field as XLA writes it of the same text.

An instruction's id is its computation's number, times 2^32, and its place in the text; the messages
stand in post order. HloModuleProto.id is left out: XLA counts modules there.
"""

from __future__ import annotations

from hlo.attributes.kind import MODULE_READERS
from hlo.attributes.origin import Recovery
from hlo.attributes.stack_frames import StackFrames
from hlo.formats.attribute_rows import row
from hlo.formats.common_rows import COMMON, put_frontend
from hlo.formats.literal_message import literal_message
from hlo.formats.message import Message
from hlo.formats.metadata_message import array_message, frames_message
from hlo.formats.shape_message import program_shape_message, shape_message
from hlo.ir.computation import Computation
from hlo.ir.graph import control_predecessors, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.names import fresh_names, has_unique_names
from hlo.ir.shape import ProgramShape
from hlo.ops.attributes import REQUIRED
from hlo.ops.table import OPS
from hlo.printer.attribute_lists import default_comparison_type
from hlo.printer.orders import fusion_bodies

ALWAYS = ("metadata", "frontend_attributes", "statistics_viz")  # set, and be they empty


def module_message(module: Module) -> Message:
    """The message of a module. Raises HloError where a constant has no value."""
    return _Writing(module).message()


class _Writing:
    def __init__(self, module: Module) -> None:
        self._module = module
        self._numbers = {c: k for k, c in enumerate(module.computations)}
        self._ids: dict[Instruction, int] = {}
        for computation, number in self._numbers.items():
            for place, instruction in enumerate(computation.instructions):
                self._ids[instruction] = number << 32 | place
        self._names: dict[Instruction, str] = {}
        self._called: dict[Computation, str] = {}
        if not has_unique_names(module):
            self._names, self._called = fresh_names(module)
        self._fused = fusion_bodies(module)
        self._payloads: dict[bytes, int] = {}

    def message(self) -> Message:
        module = self._module
        made = Message("HloModuleProto", name=module.name)
        made["entry_computation_name"] = self._called.get(module.entry, module.entry.name)
        made["entry_computation_id"] = self._numbers[module.entry]
        made["computations"] = [self._computation(c) for c in module.computations]
        made["host_program_shape"] = self._entry_shape()
        if module.is_scheduled:
            self._put_schedule(made.put("schedule"))
        self._put_aliasing(made)
        frontend = made.put("frontend_attributes")
        put_frontend(frontend, module.attributes.get("frontend_attributes", ()))
        if isinstance(module.stack_frames, StackFrames) and module.stack_frames.frames:
            made["stack_frame_index"] = frames_message(module.stack_frames)
        if self._payloads:
            made["payloads"] = list(self._payloads)
        table = module.attributes.get("origin_recovery_table", ())
        for recovery in table if isinstance(table, tuple) else ():
            _add_recovery(made.put("original_value_recovery_table"), recovery)
        return made

    def _entry_shape(self) -> Message:
        shape = self._module.attributes.get("entry_computation_layout")
        shape = shape or self._module.entry.program_shape
        assert isinstance(shape, ProgramShape), "the entry's layout is a program shape"
        return program_shape_message(shape, [f"p{k}" for k in range(len(shape.parameters))])

    def _put_schedule(self, made: Message) -> None:
        for computation, number in self._numbers.items():
            if computation not in self._fused:
                entry = made.add("sequences", key=number)
                ids = [self._ids[i] for i in computation.instructions]
                entry.put("value")["instruction_ids"] = ids

    def _put_aliasing(self, made: Message) -> None:
        aliases = made.put("input_output_alias")
        for alias in self._module.attributes.get("input_output_alias", ()):  # type: ignore[attr-defined]  # its kind
            held = aliases.add("entries", output_shape_index=list(alias.output))
            held["parameter_number"] = alias.parameter
            held["parameter_shape_index"] = list(alias.index)
            held.set_word("kind", alias.kind.upper().replace("-", "_"))
        donors = made.put("buffer_donor")
        for donor in self._module.attributes.get("buffer_donor", ()):  # type: ignore[attr-defined]  # its kind
            held = donors.add("entries", parameter_number=donor.parameter)
            held["parameter_shape_index"] = list(donor.index)

    def _computation(self, computation: Computation) -> Message:
        name = self._called.get(computation, computation.name)
        made = Message("HloComputationProto", name=name)
        made["id"] = self._numbers[computation]
        made["root_id"] = self._ids[computation.root]
        made["is_fusion_computation"] = computation in self._fused
        made["execution_thread"] = (
            "" if computation.execution_thread == "main" else computation.execution_thread
        )
        names = [self._names.get(p, p.name) for p in computation.parameters]
        made["program_shape"] = program_shape_message(computation.program_shape, names)
        made["instructions"] = [self._instruction(i) for i in post_order(computation)]
        return made

    def _instruction(self, instruction: Instruction) -> Message:
        name = self._names.get(instruction, instruction.name)
        made = Message("HloInstructionProto", name=name, opcode=instruction.opcode)
        made["shape"] = shape_message(instruction.shape)
        made["id"] = self._ids[instruction]
        if instruction.operands:
            made["operand_ids"] = [self._ids[o] for o in instruction.operands]
        before = control_predecessors(instruction)
        if before:
            made["control_predecessor_ids"] = [self._ids[p] for p in before]
        called = [self._numbers[c] for c in instruction.called_computations()]
        if called:
            made["called_computation_ids"] = called
        for name in ALWAYS:
            made.put(name)
        self._put_attributes(made, instruction)
        self._share_payload(made.child("metadata"))
        return made

    def _share_payload(self, metadata: Message) -> None:
        """A payload lies in a table of the module."""
        if "metadata_payload" in metadata:
            payload = metadata.child("metadata_payload")
            data = payload.values.pop("value")
            assert isinstance(data, bytes), "a payload is bytes"
            payload["id"] = self._payloads.setdefault(data, len(self._payloads))

    def _put_attributes(self, made: Message, instruction: Instruction) -> None:
        given = instruction.attributes
        if instruction.opcode == "parameter":
            made["parameter_number"] = given["parameter_number"]
        literal = given.get("literal")
        if instruction.opcode == "constant" and isinstance(literal, Literal):
            made["literal"] = literal_message(literal)
        for key, attr in OPS[instruction.opcode].attrs.items():
            found = row(instruction.opcode, key)
            value = given.get(key, attr.default)
            if value is None and key == "type":
                value = default_comparison_type(instruction)
            if found is not None and value is not REQUIRED:
                found.write(made, value)
        for key, common in COMMON.items():
            if key in given:
                common.write(made, given[key])


def _add_recovery(made: Message, recovery: Recovery) -> None:
    entry = made.add("entries")
    entry["old_original_array"] = array_message(recovery.lost)
    entry["new_original_array"] = array_message(recovery.replacing)
    for read in MODULE_READERS if recovery.module else ():
        module = read(recovery.module)
        assert isinstance(module, Module), "a reader gives a module"
        entry["recovery_module"] = module_message(module)
