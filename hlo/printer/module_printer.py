"""ModulePrinter: the text of a module's computations and instructions under one set of options.

[ENTRY ]%name (signature) -> shape { instructions }, execution_thread="t"     docs/text.md 8.3
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from hlo.attributes.escape import quoted
from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.graph import control_predecessors
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape, join_indexed, shape_text
from hlo.ops.table import Trait, opcodes
from hlo.printer.async_sugar import SUFFIXES, sugared_computations, wrapped
from hlo.printer.attribute_lists import AttributeList, AttributeLists, own_value
from hlo.printer.constants import constant_text
from hlo.printer.naming import Names, Naming
from hlo.printer.options import PrintOptions
from hlo.printer.orders import fusion_bodies, printed_instructions

COMPACT = 4  # operands that compact_operands leaves
LARGEST_FORM = 1 << 30  # characters: forms with full bodies can grow exponentially
# Keys of bodies that are printed in full; what else calls something says `calls=`, which for
# reduce-scatter and scan is not the key that reads back.
_FULL_KEYS = (
    "condition", "body", "select", "scatter", "true_computation", "false_computation",
)  # fmt: skip
_APPLIES = opcodes(Trait.APPLIES) | {"call"}


class PrintContext(NamedTuple):
    """Where an instruction is printed: its indentation, and whether frontend attributes show.

    They do not inside what a sugared async-start wraps, when it has some itself; they do again
    inside what a start without any wraps, also where that start stands in such a place.
    """

    indent: int
    frontend: bool = True

    def deeper(self) -> PrintContext:
        return PrintContext(self.indent + 1, self.frontend)


BodyKey = tuple[Computation, PrintContext]


class ModulePrinter:
    """Prints the parts of one module; its caches live as long as it does."""

    def __init__(self, module: Module, options: PrintOptions) -> None:
        self.module = module
        self.options = options
        self.naming = Naming(module, options)
        self.lists = AttributeLists(options)
        self.sugared = sugared_computations(module, options)
        self._fusions = fusion_bodies(module) if module.is_scheduled else set()
        self._shapes: dict[int, str] = {}
        self._constants: dict[int, str] = {}
        self._bodies: dict[BodyKey, str] = {}
        self._bodies_size = 0
        self._shows_names = options.print_operand_names or options.canonicalize_instruction_names

    def computation(self, computation: Computation) -> str:
        """A computation at top level, without the blank line behind it."""
        place = PrintContext(self.options.indent_amount, self.options.print_frontend_attributes)
        head = "" if self.options.is_in_nested_computation else self.naming.head(computation)
        if self.options.as_written:
            order = printed_instructions(computation, set(), scheduled=True)
        else:
            scheduled = self.module.is_scheduled
            order = printed_instructions(computation, self._fusions, scheduled=scheduled)
        if self.options.print_subcomputation_bodies:
            self._prepare_bodies(order, place.deeper())
        return self._braces(computation, order, place, head)

    def _braces(
        self,
        computation: Computation,
        order: Sequence[Instruction],
        place: PrintContext,
        head: str = "",
    ) -> str:
        """The whole text of a computation; head: its name."""
        lines = "".join(self._lines(order, computation.root, place.deeper()))
        signature = self._signature(computation) if self.options.print_program_shape else ""
        thread = computation.execution_thread
        behind = ""
        if thread != "main" and self.options.print_ids:
            behind = f", execution_thread={self._often_raw(thread)}"
        tab = "  " * place.indent
        entry = "ENTRY " if computation is self.module.entry else ""
        return f"{tab}{entry}{head}{signature}{{\n{lines}{tab}}}{behind}"

    def _signature(self, computation: Computation) -> str:
        parameters = ", ".join(
            f"{self.naming.bare(p)}: {shape_text(p.shape, layout=False)}"
            for p in computation.parameters
        )
        return f"({parameters}) -> {shape_text(computation.root.shape, layout=False)} "

    def _often_raw(self, text: str) -> str:
        """XLA does not escape the names of threads; a form that reads back does."""
        return quoted(text) if self.options.reads_back else f'"{text}"'

    # Bodies inside instructions: an explicit stack, for calls may be nested deeper than Python's.

    def _prepare_bodies(self, order: Sequence[Instruction], place: PrintContext) -> None:
        """Write every body that these instructions show inside themselves, the innermost first."""
        wanted = [key for i in order for key in self._bodies_in(i, place)]
        deepest = place.indent + len(self.module.computations)
        while wanted:
            key = computation, where = wanted[-1]
            if where.indent > deepest:
                raise HloError("recursion", f"{computation.name} calls itself, expected no cycle")
            inside = where.deeper()
            inner = (k for i in computation.instructions for k in self._bodies_in(i, inside))
            missing = [] if key in self._bodies else [k for k in inner if k not in self._bodies]
            wanted += missing
            if not missing:
                wanted.pop()
                self._write_body(key)

    def _write_body(self, key: BodyKey) -> None:
        if key in self._bodies:
            return
        computation, place = key
        order = printed_instructions(computation, self._fusions, scheduled=False)
        text = self._braces(computation, order, place)
        self._bodies[key] = text
        self._bodies_size += len(text)
        if self._bodies_size > LARGEST_FORM:
            raise HloError(
                "unsupported", "the form with full bodies is over 1 GiB, expected less nesting"
            )

    def _bodies_in(self, instruction: Instruction, place: PrintContext) -> Iterator[BodyKey]:
        """The computations that an instruction's text holds in full."""
        if not instruction.attributes or instruction.opcode in ("async-update", "async-done"):
            return
        for computation in instruction.called_computations():
            if computation in self.sugared and instruction.opcode == "async-start":
                inner = self._wrapped_place(instruction, place)
                yield from ((c, inner) for c in computation.root.called_computations())
            yield computation, place

    def _wrapped_place(self, start: Instruction, place: PrintContext) -> PrintContext:
        return PrintContext(place.indent, not start.attributes.get("frontend_attributes"))

    # Instructions

    def _lines(
        self, order: Sequence[Instruction], root: Instruction, place: PrintContext
    ) -> Iterator[str]:
        """One line per instruction. Hot: about 3 us each, most of it looking up cached texts."""
        names = self.naming.body(order)
        tab, root_tab = "  " * place.indent, "  " * place.indent + "ROOT "
        lists, shape, operands = self.lists, self._shape, self._operands
        with_shape = self.options.print_result_shape
        for instruction in order:
            opcode = instruction.opcode
            front = root_tab if instruction is root else tab
            behind = ""
            if instruction.attributes or lists[opcode].always:
                behind = self._attributes(instruction, place)
            if opcode in SUFFIXES:
                opcode = self._async_opcode(instruction)
            result = shape(instruction.shape) + " " if with_shape else ""
            inside = operands(instruction, names)
            yield f"{front}{names[instruction]} = {result}{opcode}({inside}){behind}\n"

    def _async_opcode(self, instruction: Instruction) -> str:
        computation = wrapped(instruction)
        if computation is None or computation not in self.sugared:
            return instruction.opcode
        return computation.root.opcode + SUFFIXES[instruction.opcode]

    def _shape(self, shape: Shape) -> str:
        text = self._shapes.get(id(shape))
        if text is None:
            text = shape_text(shape, layout=self.options.include_layout_in_shapes)
            self._shapes[id(shape)] = text
        return text

    def _operands(self, instruction: Instruction, names: Names) -> str:
        """What stands in the parentheses: names, a literal, a parameter's number."""
        if instruction.opcode == "constant":
            return self._constant(instruction)
        if instruction.opcode == "parameter":
            number = instruction.attributes["parameter_number"]
            return str(number) if self.options.print_parameter_number else ""
        operands = instruction.operands
        shown = operands[:COMPACT] if self.options.compact_operands else operands
        if not self.options.print_operand_shape:
            texts = [names[o] for o in shown] if self._shows_names else [""] * len(shown)
        elif self._shows_names:
            texts = [f"{self._shape(o.shape)} {names[o]}" for o in shown]
        else:
            texts = [self._shape(o.shape) for o in shown]
        text = join_indexed(texts, self.options.print_operand_index_annotation_interval)
        if len(shown) < len(operands):
            text += f", ...(+{len(operands) - len(shown)})"
        return text

    def _constant(self, instruction: Instruction) -> str:
        literal = instruction.attributes["literal"]
        assert isinstance(literal, Literal), "a constant holds a literal"
        text = self._constants.get(id(literal))
        if text is None:
            text = self._constants[id(literal)] = constant_text(literal, self.options)
        return text

    # Attributes

    def _attributes(self, instruction: Instruction, place: PrintContext) -> str:
        """Everything behind the operands, each with a comma in front."""
        attributes = instruction.attributes
        pieces = self._passed_on(instruction, place)
        pieces += [e.piece(attributes[e.key]) for e in self.lists.behind if e.key in attributes]
        return "".join(pieces)

    def _passed_on(self, instruction: Instruction, place: PrintContext) -> list[str]:
        """What is printed also where the instruction is wrapped in an asynchronous one."""
        lists, attributes, options = self.lists, instruction.attributes, self.options
        listed = lists[instruction.opcode]
        pieces = self._own(instruction, listed, place) if options.print_extra_attributes else []
        if listed.calls:
            pieces += self._calls(instruction, listed.calls, place)
            pieces += [e.piece(attributes[e.key]) for e in listed.last if e.key in attributes]
        if "sharding" in attributes:
            pieces.append(lists.sharding.piece(attributes["sharding"]))
        if place.frontend and "frontend_attributes" in attributes:
            pieces.append(lists.frontend_attributes.piece(attributes["frontend_attributes"]))
        if "control-predecessors" in attributes and options.print_control_dependencies:
            pieces.append(self._control(instruction))
        for entry in (lists.statistics, lists.accuracy):
            if entry.key in attributes:
                pieces.append(entry.piece(attributes[entry.key]))
        return pieces

    def _own(
        self, instruction: Instruction, listed: AttributeList, place: PrintContext
    ) -> list[str]:
        """The opcode's own attributes."""
        attributes = instruction.attributes
        if listed.is_computed:
            return [e.piece(own_value(instruction, e)) for e in listed.own]
        pieces = []
        if instruction.opcode == "async-start":
            pieces += self._wrapped_attributes(instruction, place)
        for e in listed.own:
            if e.key in attributes:
                pieces.append(e.piece(attributes[e.key]))
            elif e.attr.printed == "always":
                pieces.append(e.piece(e.attr.default))
        if "parameter_replication" in attributes and self.options.print_ids:
            pieces.append(self.lists.replication.piece(attributes["parameter_replication"]))
        return pieces

    def _wrapped_attributes(self, start: Instruction, place: PrintContext) -> list[str]:
        """The execution thread, and where sugar is printed the attributes of what it wraps."""
        computation = wrapped(start)
        if computation is None:
            return []
        thread = computation.execution_thread
        pieces = []
        if thread != "main":
            pieces.append(f", async_execution_thread={self._often_raw(thread)}")
        if computation in self.sugared:
            pieces += self._passed_on(computation.root, self._wrapped_place(start, place))
        return pieces

    def _control(self, instruction: Instruction) -> str:
        names = ", ".join(map(self.naming.instruction, control_predecessors(instruction)))
        return f", control-predecessors={{{names}}}" if names else ""

    def _calls(
        self, instruction: Instruction, keys: tuple[tuple[str, bool], ...], place: PrintContext
    ) -> Iterator[str]:
        """The called computations, by name or in full."""
        is_full = self.options.print_subcomputation_bodies
        for key, is_list in keys:
            value = instruction.attributes.get(key)
            if value is None or value == ():
                continue
            if is_full:
                yield self._full_call(instruction, key, value, place)
            elif is_list:
                names = ", ".join(map(self.naming.computation, value))  # type: ignore[call-overload]  # computations
                yield f", {key}={{{names}}}"
            elif not (instruction.opcode == "async-start" and value in self.sugared):
                yield f", {key}={self.naming.computation(value)}"  # type: ignore[arg-type]  # one computation

    def _full_call(
        self, instruction: Instruction, key: str, value: object, place: PrintContext
    ) -> str:
        """`key=` and a line break, then the body; several bodies in braces at the left margin."""
        if isinstance(value, tuple):
            bodies = ",\n".join(self._bodies[(c, place)] for c in value)
            return f", {key}={{\n{bodies}\n}}"
        if key not in _FULL_KEYS:
            key = "to_apply" if instruction.opcode in _APPLIES else "calls"
        return f", {key}=\n{self._bodies[(value, place)]}"  # type: ignore[index]  # a computation
