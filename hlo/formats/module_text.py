"""HloModuleProto -> Module, by way of its text.

    message --_Text--> text --parser--> module, with the message's literals in its constants

The parser checks all that it checks of any text, so a broken message is an error of the text that
it says. Literals go past the text: they may be large, and bits of NaNs have no text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from msgspec import Struct

from hlo.attributes.escape import quoted
from hlo.attributes.ints import ints_text
from hlo.attributes.origin import Recovery, array_text, recovery_table_text
from hlo.errors import HloError
from hlo.formats.attribute_rows import row
from hlo.formats.common_rows import COMMON, frontend_text
from hlo.formats.literal_message import literal_of
from hlo.formats.message import Message
from hlo.formats.metadata_message import array_of, frames_of
from hlo.formats.shape_message import shape_text
from hlo.ir.instruction import CALLING_ATTRIBUTES
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape, compatible
from hlo.ops.table import OPS
from hlo.parser.parse import parse
from hlo.printer.header import stack_frames_text

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.\-]")
ALIASES = {"MAY_ALIAS": "may-alias", "MUST_ALIAS": "must-alias", "UNDEFINED_ALIAS": "may-alias"}
ELIDED = "{...}"
AS_TEXT = " as text"  # ends the name of the text that a message says
# Of scalars that are not 0: scales have none.
SCALARS = {"PRED": "false", "F8E8M0FNU": "1", "C64": "(0, 0)", "C128": "(0, 0)"}


def module_of(message: Message, name: str = "<message>") -> Module:
    """The module that a message says. Raises HloErrors of its text, HloError of the message."""
    text = _Text(message)
    module = parse(text.whole(), f"{name}{AS_TEXT}")
    # By their places: names that several computations have are made unique by the parser.
    constants = iter(text.constants)
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.opcode == "constant" and "literal" in (said := next(constants)):
                found = literal_of(said.child("literal"))
                literal = _fitting(found, instruction.shape, instruction.name)
                given = {**instruction.attributes, "literal": literal}
                computation.set_attributes(instruction, given)
    return module


def _fitting(literal: Literal, shape: Shape, name: str) -> Literal:
    """A literal with the layouts of its constant's shape."""
    if not compatible(literal.shape, shape):
        message = f"{name}: a literal {literal.shape}, expected {shape}, the constant's shape"
        raise HloError("message", message)
    return _with_layouts(literal, shape)


def _with_layouts(literal: Literal, shape: Shape) -> Literal:
    """Calls itself for each level of tuples."""
    if isinstance(literal.value, tuple):
        pairs = zip(literal.value, shape.elements, strict=True)
        return Literal(shape, tuple(_with_layouts(part, element) for part, element in pairs))
    return Literal(shape, literal.value)


class _Scope(Struct, frozen=True):
    """A computation's instructions by id: their names, and which are truth values."""

    names: dict[int, str]
    truths: frozenset[int]


class _Text:
    """A module's text while it is written of its message.

    constants: the messages of those that the text has so far, in its order.
    """

    def __init__(self, message: Message) -> None:
        self._message = message
        self.constants: list[Message] = []
        self._all = message.children("computations")
        if not self._all:
            raise HloError("message", "a module without computations, expected an entry")
        self._called = {c.number("id"): c.text("name") for c in self._all}
        self._order: dict[int, list[int]] | None = None
        if "schedule" in message:
            rows = message.child("schedule").children("sequences")
            self._order = {
                r.number("key"): r.child("value").numbers("instruction_ids") for r in rows
            }

    def whole(self) -> str:
        """The HLO text of a module, with every literal elided."""
        return "\n\n".join([self.header(), *self.computations()]) + "\n"

    # -- the header ----------------------------------------------------------------------------

    def header(self) -> str:
        m = self._message
        name = NOT_IN_NAMES.sub("_", m.text("name")) or "module"
        rows = [f"HloModule %{name if NAME.fullmatch(name) else '_' + name}"]
        if self._order is not None:
            rows.append("is_scheduled=true")
        rows += self._aliasing()
        if "host_program_shape" in m:
            shape = m.child("host_program_shape")
            parameters = ", ".join(shape_text(p) for p in shape.children("parameters"))
            result = shape_text(shape.child("result"))
            rows.append(f"entry_computation_layout={{({parameters})->{result}}}")
        frontend = frontend_text(m.child("frontend_attributes"))
        if frontend is not None:
            rows.append(f"frontend_attributes={frontend}")
        table = m.child("original_value_recovery_table").children("entries")
        if table:
            rows.append(f"origin_recovery_table={_recovery_text(table)}")
        frames = frames_of(m.child("stack_frame_index"))
        tables = f"\n\n{stack_frames_text(frames)}" if frames.frames else ""
        return ", ".join(rows) + tables

    def _aliasing(self) -> Iterator[str]:
        aliases = [
            f"{_ints(a, 'output_shape_index')}: ({a.number('parameter_number')}, "
            f"{_ints(a, 'parameter_shape_index')}, {ALIASES[a.word('kind')]})"
            for a in self._message.child("input_output_alias").children("entries")
        ]
        if aliases:
            yield f"input_output_alias={{ {', '.join(aliases)} }}"
        donors = [
            f"({d.number('parameter_number')}, {_ints(d, 'parameter_shape_index')})"
            for d in self._message.child("buffer_donor").children("entries")
        ]
        if donors:
            yield f"buffer_donor={{ {', '.join(donors)} }}"

    # -- computations --------------------------------------------------------------------------

    def computations(self) -> Iterator[str]:
        entry = self._message.number("entry_computation_id")
        if entry not in self._called:
            raise HloError("message", f"no computation has the id {entry}, expected the entry's")
        for computation in self._callees_first():
            prefix = "ENTRY " if computation.number("id") == entry else ""
            lines = "".join(f"  {line}\n" for line in self._instructions(computation))
            thread = computation.text("execution_thread")
            behind = f", execution_thread={quoted(thread)}" if thread not in ("", "main") else ""
            yield f"{prefix}{_name(computation)} {{\n{lines}}}{behind}"

    def _callees_first(self) -> list[Message]:
        """By their ids, but for those that come before what they call."""
        known = {c.number("id"): c for c in sorted(self._all, key=lambda c: c.number("id"))}
        found: dict[int, Message] = {}
        pending = [(number, False) for number in reversed(known)]
        while pending:
            number, is_ready = pending.pop()
            if number in found or number not in known:
                continue
            if is_ready:
                found[number] = known[number]
                continue
            pending.append((number, True))
            called = [
                n
                for i in known[number].children("instructions")
                for n in i.numbers("called_computation_ids")
            ]
            missing = [n for n in called if n not in found]
            if missing and len(pending) > 4 * len(known) + len(missing) + 1000:
                raise HloError("recursion", f"{_name(known[number])} calls itself")
            pending += [(n, False) for n in reversed(missing)]
        return list(found.values())

    def _instructions(self, computation: Message) -> Iterator[str]:
        rows = computation.children("instructions")
        scope = _Scope(
            {i.number("id"): _name(i) for i in rows},
            frozenset(i.number("id") for i in rows if i.child("shape").number("element_type") == 1),
        )
        by_number = {i.number("id"): i for i in rows}
        order = (self._order or {}).get(computation.number("id"))
        root = computation.number("root_id")
        if root not in scope.names:
            message = f"{_name(computation)}: no instruction has the id {root}, expected the root's"
            raise HloError("message", message)
        for number in order or _as_made(by_number):
            instruction = by_number.get(number)
            if instruction is None:
                message = f"{_name(computation)}: its schedule has the id {number}"
                raise HloError("message", f"{message}, expected one of its instructions")
            yield ("ROOT " if number == root else "") + self._line(instruction, scope)

    def _line(self, instruction: Message, scope: _Scope) -> str:
        opcode = instruction.text("opcode")
        if opcode not in OPS:
            message = f"{_name(instruction)}: {opcode!r}, expected an opcode"
            raise HloError("unknown-opcode", message)
        shape = shape_text(instruction.child("shape"))
        operands = [_found(scope.names, n, instruction) for n in instruction.numbers("operand_ids")]
        inside = ", ".join(operands)
        if opcode == "parameter":
            inside = str(instruction.number("parameter_number"))
        elif opcode == "constant":
            inside = _placeholder(instruction)
            self.constants.append(instruction)
        attributes = "".join(
            f", {key}={text}" for key, text in self._attributes(opcode, instruction, scope)
        )
        return f"{_name(instruction)} = {shape} {opcode}({inside}){attributes}"

    def _attributes(
        self, opcode: str, instruction: Message, scope: _Scope
    ) -> Iterator[tuple[str, str]]:
        for key in OPS[opcode].attrs:
            found = row(opcode, key)
            text = None if found is None else found.read(instruction)
            if text is not None:
                yield key, text
        yield from self._callees(opcode, instruction, scope)
        described = self._with_payload(instruction)
        for key, common in COMMON.items():
            text = common.read(described)
            if text is not None:
                yield key, text
        before = instruction.numbers("control_predecessor_ids")
        if before:
            listed = ", ".join(_found(scope.names, n, instruction) for n in before)
            yield "control-predecessors", f"{{{listed}}}"

    def _with_payload(self, instruction: Message) -> Message:
        """The instruction with what its metadata's payload names in the module's table."""
        metadata = instruction.child("metadata")
        payload = metadata.child("metadata_payload")
        if "id" not in payload:
            return instruction
        table, number = self._message.numbers("payloads"), payload.number("id")
        if not 0 <= number < len(table):
            message = f"{_name(instruction)}: payload {number}, expected one of {len(table)}"
            raise HloError("message", message)
        resolved = Message("OpMetadata", **metadata.values)
        resolved["metadata_payload"] = Message("Payload", value=table[number])
        return Message(instruction.type.name, **{**instruction.values, "metadata": resolved})

    def _callees(
        self, opcode: str, instruction: Message, scope: _Scope
    ) -> Iterator[tuple[str, str]]:
        numbers = instruction.numbers("called_computation_ids")
        called = [_found(self._called, n, instruction, sign="%") for n in numbers]
        if not called:
            return
        keys = [key for key in CALLING_ATTRIBUTES if key in OPS[opcode].attrs]
        if opcode == "conditional":
            first = instruction.numbers("operand_ids")[:1]
            keys = keys[:2] if scope.truths.issuperset(first) else keys[2:]
        if keys in (["branch_computations"], ["called_computations"]):
            yield keys[0], f"{{{', '.join(called)}}}"
        elif len(keys) != len(called):
            message = f"{_name(instruction)}: {len(called)} called computations"
            raise HloError("message", f"{message}, expected {len(keys)} for {opcode}")
        else:
            yield from zip(keys, called, strict=True)


def _as_made(instructions: dict[int, Message]) -> list[int]:
    """The ids from the least up, as the instructions were made, where operands then come first;
    else as they stand.
    """
    rows = ((n, i.numbers("operand_ids") + i.numbers("control_predecessor_ids"))
            for n, i in instructions.items())  # fmt: skip
    if all(before < number for number, all_before in rows for before in all_before):
        return sorted(instructions)
    return list(instructions)


def _placeholder(constant: Message) -> str:
    """What stands for a constant's value until it is put there: text has no elided scalars."""
    shape = constant.child("shape")
    if "literal" not in constant and not shape.numbers("dimensions"):
        raise HloError("message", f"{_name(constant)}: a scalar without a literal, expected one")
    return _any_value(shape)


def _any_value(shape: Message) -> str:
    """Some value of a shape. Calls itself for each level of tuples."""
    kind = shape.word("element_type")
    if kind == "TUPLE":
        return f"( {', '.join(_any_value(part) for part in shape.children('tuple_shapes'))} )"
    return ELIDED if shape.numbers("dimensions") else SCALARS.get(kind, "0")


def _ints(message: Message, field: str) -> str:
    return ints_text(tuple(message.numbers(field)))


def _name(message: Message) -> str:
    name = message.text("name")
    if not NAME.fullmatch(name):
        what = "instruction" if message.type.name == "HloInstructionProto" else "computation"
        raise HloError("message", f"an {what} {name!r}, expected a name of letters, digits, _ . -")
    return f"%{name}"


def _found(names: dict[int, str], number: int, user: Message, sign: str = "") -> str:
    if number not in names:
        message = f"{_name(user)}: it names the id {number}"
        raise HloError("message", f"{message}, expected one of its module's")
    return sign + names[number]


def _recovery_text(table: list[Message]) -> str:
    rows = []
    for entry in table:
        lost, new = (array_of(entry.child(f"{k}_original_array")) for k in ("old", "new"))
        inner = ""
        if "recovery_module" in entry:
            inner = module_of(entry.child("recovery_module"), array_text(lost)).to_text()
        rows.append(Recovery(lost, new, inner))
    return recovery_table_text(tuple(rows))
