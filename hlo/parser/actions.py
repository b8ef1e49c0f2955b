"""What the grammar's reductions do: the precise reader, one method per rule of hlo.lark.

Rules that are not named here (those of attributes.lark) become trees for the kinds to build.
Faults of meaning are collected with their places; what depends on something faulty is left out
silently, so that one mistake gives one error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hlo.attributes.escape import unquoted
from hlo.errors import HloError, Note, Violation
from hlo.ir.instruction import Instruction
from hlo.ir.layout import Layout
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.parser import shapes
from hlo.parser.build import ModuleBuilder, Poisoned, Scope
from hlo.parser.engine import Fault, callbacks_for
from hlo.parser.kinds import HEADER, attribute_kind, is_opcode
from hlo.parser.lexer import Token
from hlo.parser.literals import LiteralTokens
from hlo.parser.shapes import number
from hlo.parser.stacks import Callbacks
from hlo.source import Source, Span

Offsets = tuple[int, int]
THREAD = "execution_thread="  # the attribute of a computation
NOWHERE = ModuleBuilder(Source("", ""))  # for what is read alone, in no computation


class Written:
    """An attribute as it stands: its name, the tree of its value, its place."""

    __slots__ = ("end", "name", "start", "tree")

    def __init__(self, name: str, tree: object, start: int, end: int) -> None:
        self.name = name
        self.tree = tree
        self.start = start
        self.end = end


class Head:
    """What stands before an opcode's parentheses; `value` is the opcode, for the machine."""

    __slots__ = ("place", "shape", "value")

    def __init__(self, shape: Shape | None, value: str, place: Offsets) -> None:
        self.shape = shape
        self.value = value
        self.place = place


class Call:
    """`shape opcode(operands)`; operands None: one of them is faulty, and reported."""

    __slots__ = ("head", "operands", "payload", "places", "value")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.value = head.value
        self.operands: list[Instruction] | None = []
        self.places: list[Offsets] = []
        self.payload: object = None


class Operand:
    """An operand: the instruction that it is, None where it is faulty."""

    __slots__ = ("instruction", "place")

    def __init__(self, instruction: Instruction | None, place: Offsets) -> None:
        self.instruction = instruction
        self.place = place


class Actions:
    """One reading of one text; `last_end` is the end of the last token, kept by the machine."""

    def __init__(self, builder: ModuleBuilder) -> None:
        self.begin(builder)

    def begin(self, builder: ModuleBuilder) -> None:
        """Be ready for a text."""
        self.builder = builder
        self.errors: list[HloError] = []
        self.last_end = 0
        self._heads = 0

    # --- faults

    def fault(
        self, code: str, message: str, place: Offsets, help: str = "", notes: Sequence[Note] = ()
    ) -> None:
        span = Span(self.builder.source, *place)
        self.errors.append(HloError(code, message, span, help=help, notes=notes))

    def violated(self, subject: str, violation: Violation, place: Offsets) -> None:
        """Record a broken rule at its place."""
        at = violation.at if violation.at != "opcode" else ""
        found = f"{at} is {violation.found}" if at else violation.found
        message = f"{found}, expected {violation.expected}"
        if subject:
            message = f"{subject}: {message}"
        self.fault(violation.code, message, place, violation.help)

    # --- shapes and literals

    def array_shape(self, parts: list[object]) -> Shape:
        return shapes.array_shape(parts)

    def tuple_shape(self, parts: list[Shape]) -> Shape:
        return shapes.tuple_shape(parts, self.last_end)

    def buffer_shape(self, parts: list[object]) -> Shape:
        return shapes.buffer_shape(parts)

    def dim(self, parts: list[Token]) -> tuple[int, bool]:
        return shapes.dimension(parts)

    def layout(self, parts: list[Token]) -> Layout:
        return shapes.layout(parts)

    def layout_token(self, parts: list[Token]) -> Token:
        return parts[0]

    def literal(self, parts: list[object]) -> LiteralTokens:
        return LiteralTokens(_flat(parts))

    def literal_group(self, parts: list[object]) -> LiteralTokens:
        return LiteralTokens(_flat(parts))

    def typed_literal(self, parts: tuple[Shape, LiteralTokens]) -> Literal:
        shape, tokens = parts
        try:
            return tokens.literal(shape)
        except Violation as error:
            place = tokens.tokens[0].start_pos, tokens.tokens[-1].end_pos
            message = f"{error.at} is {error.found}, expected {error.expected}"
            raise Fault(error.code, message, *place) from error

    def typed_tuple(self, parts: list[Literal]) -> Literal:
        return Literal.of_tuple(tuple(parts))

    # --- header

    def header_name(self, parts: list[Token]) -> Token:
        self.builder.module.name = _name(parts[1])
        return Token("HEADER", HEADER, parts[0].start_pos, parts[1].end_pos)

    def header(self, parts: tuple[Token, list[Written]]) -> None:
        self.builder.module.attributes = self._built(HEADER, parts[1], None) or {}

    def tables(self, parts: list[object]) -> None:
        from hlo.attributes.stack_frames import build_stack_frames

        tree = type("Tables", (), {"children": parts, "data": "tables"})()
        try:
            self.builder.tables = build_stack_frames(tree)
        except Violation as error:
            self.violated("stack frame tables", error, (self.last_end - 1, self.last_end))

    # --- computations

    def signature(self, parts: list[object]) -> Shape:
        result = parts[-1]
        assert isinstance(result, Shape), "a signature ends with its result"
        return result

    def computation_head(self, parts: list[object]) -> Scope:
        entry = isinstance(parts[0], Token) and parts[0].type == "ENTRY"
        token = parts[1 if entry else 0]
        assert isinstance(token, Token), "a name"
        result = next((p for p in parts if isinstance(p, Shape)), None)
        scope = self.builder.open(_name(token), token.start_pos, result, entry=entry)
        try:
            self.builder.check_head(scope)
        except Violation as error:
            self.violated("", error, (token.start_pos, token.end_pos))
        return scope

    def computation(self, parts: list[object]) -> None:
        thread = parts[-1] if isinstance(parts[-1], str) else "main"
        self._closed(thread, body=False)

    def thread(self, parts: list[Token]) -> str:
        key, value = parts
        if key.value != THREAD:
            message = (
                f"{key.value[:-1]} is not an attribute of a computation, expected execution_thread"
            )
            raise Fault("attribute-unknown", message, key.start_pos, key.end_pos - 1)
        return unquoted(value.value)

    def body_start(self, parts: list[Token]) -> Scope:
        if not self.builder.scopes:
            raise Poisoned
        return self.builder.open("_", parts[0].start_pos)

    def computation_body(self, parts: list[object]) -> str:
        self._closed("main", body=True)
        return f"{{{len(self.builder.bodies) - 1}}}"

    def _closed(self, thread: str, *, body: bool) -> None:
        scope = self.builder.scopes[-1]
        try:
            if scope.poisoned and not scope.computation.instructions:
                raise Poisoned
            self.builder.close(thread=thread, body=body)
        except Poisoned:
            self._break(scope)
        except Violation as error:
            name = scope.computation.name
            if not scope.poisoned:
                self.violated(f"computation {name}", error, (scope.start, scope.start + len(name)))
            self._break(scope)

    def _break(self, scope: Scope) -> None:
        """A computation with errors cannot be called; that its callers fail is no news."""
        if self.builder.scopes and self.builder.scopes[-1] is scope:
            self.builder.scopes.pop()
        self.builder.broken.add(scope.computation.name)

    # --- instructions

    def call_head(self, parts: list[object]) -> Head:
        token, shape = parts[-1], parts[0] if len(parts) == 2 else None
        assert isinstance(token, Token), "an opcode"
        assert shape is None or isinstance(shape, Shape), "a shape"
        self._heads += 1
        if shape is not None and self._heads > 1:
            self._try_name(token, shape)
        return Head(shape, token.value, (token.start_pos, token.end_pos))

    def _try_name(self, token: Token, shape: Shape) -> None:
        """In a single instruction XLA first takes a nested opcode for a name, and defines it."""
        builder, scope = self.builder, self.builder.scopes[-1]
        if builder.single and len(builder.scopes) == 1 and token.value not in scope.names:
            builder.missing(scope, token.value, shape)

    def call(self, parts: list[object]) -> Call:
        head, _, inside, _ = parts
        assert isinstance(head, Head), "what call_head gives"
        call = Call(head)
        if not isinstance(inside, list):
            call.payload = inside
            return call
        found: list[Instruction] = []
        for operand in inside:
            call.places.append(operand.place)
            if operand.instruction is not None:
                found.append(operand.instruction)
        call.operands = found if len(found) == len(inside) else None
        return call

    def operands(self, parts: list[Operand]) -> list[Operand]:
        return parts

    def named_operand(self, parts: list[object]) -> Operand:
        shape = parts[0] if isinstance(parts[0], Shape) else None
        token = parts[1] if shape is not None else parts[0]
        assert isinstance(token, Token), "a name"
        place = token.start_pos, token.end_pos
        indices = [p for p in parts if isinstance(p, Token) and p.type == "INT"]
        try:
            found = self.builder.operand(self.builder.scopes[-1], _name(token), shape)
            for index in indices:
                found = self.builder.element(found, number(index), place)
            return Operand(found, place)
        except Poisoned:
            return Operand(None, place)
        except Violation as error:
            self.violated("", error, place)
            return Operand(None, place)

    def nameless_operand(self, parts: list[Shape]) -> Operand:
        builder = self.builder
        place = self.last_end - 1, self.last_end
        if builder.single and len(builder.scopes) == 1:
            return Operand(builder.missing(builder.scopes[-1], "", parts[0]), place)
        self.fault("syntax", "an operand without a name, expected a name after the shape", place)
        return Operand(None, place)

    def nested_operand(self, parts: list[Call]) -> Operand:
        (call,) = parts
        place = call.head.place[0], self.last_end
        return Operand(self._made("", call, [], place, nested=True), place)

    def no_attributes(self, parts: list[object]) -> list[Written]:
        return []

    def more_attributes(self, parts: tuple[list[Written], Written]) -> list[Written]:
        parts[0].append(parts[1])
        return parts[0]

    def attribute(self, parts: tuple[Token, object]) -> Written:
        token, tree = parts
        return Written(token.value[:-1], tree, token.start_pos, self.last_end)

    def value(self, parts: list[object]) -> object:
        return parts[1]

    def left(self, parts: list[Token]) -> tuple[Token, bool]:
        return parts[-1], len(parts) == 2

    def instruction(self, parts: tuple[tuple[Token, bool], Call, list[Written]]) -> None:
        (token, root), call, attributes = parts
        place = token.start_pos, self.last_end
        made = self._made(_name(token), call, attributes, place, root=root)
        if made is None:
            self.builder.scopes[-1].poisoned.add(_name(token))

    def instruction_text(
        self,
        parts: tuple[Call, list[Written]] | tuple[tuple[Token, bool], Call, list[Written]],
    ) -> None:
        if len(parts) == 3:
            (token, root), call, attributes = parts
            place = token.start_pos, self.last_end
            self._made(_name(token), call, attributes, place, root=root)
            return
        call, attributes = parts
        if call.head.shape is None:
            self.fault("syntax", "an instruction without a name and a shape, expected one", (0, 1))
            return
        self._made("_", call, attributes, (0, self.last_end))

    def _made(
        self,
        name: str,
        call: Call,
        attributes: list[Written],
        place: Offsets,
        *,
        root: bool = False,
        nested: bool = False,
    ) -> Instruction | None:
        """The instruction, or None where it is faulty: the fault is recorded."""
        builder, scope = self.builder, self.builder.scopes[-1]
        count = len(self.errors)
        built = self._built(call.value, attributes, scope)
        if call.operands is None and not is_opcode(call.value):
            from hlo.parser.asynchronous import unknown_opcode  # of faults

            self.violated("", unknown_opcode(call.value), call.head.place)
        if call.operands is None or len(self.errors) > count or built is None:
            return None
        try:
            self._take_payload(call, built)
            return builder.instruction(
                scope, name, call.value, call.head.shape, tuple(call.operands), built, *place,
                root=root, nested=nested,
            )  # fmt: skip
        except Violation as error:
            subject = "" if error.at == "opcode" else call.value
            self.violated(subject, error, self._place(error, call, attributes, place))
            return None

    def _take_payload(self, call: Call, attributes: dict[str, object]) -> None:
        """What stands in the parentheses of a constant or a parameter."""
        payload, shape = call.payload, call.head.shape
        if payload is None:
            return
        if shape is None:
            raise Violation(
                "shape-missing", "", "written without a shape", "one: it cannot be inferred"
            )
        if isinstance(payload, LiteralTokens):
            attributes["literal"] = payload.literal(shape)
        else:
            assert isinstance(payload, Token), "INT"
            attributes["parameter_number"] = number(payload)

    def _place(
        self, error: Violation, call: Call, attributes: list[Written], place: Offsets
    ) -> Offsets:
        """Where the role that a violation names stands."""
        for written in attributes:
            if written.name == error.at:
                return written.start, written.end
        word, _, index = error.at.partition(" ")
        if word == "operand" and index.isdigit() and int(index) < len(call.places):
            return call.places[int(index)]
        if error.code in ("duplicate-name", "illegal-name"):
            return place[0], place[0] + 1
        return call.head.place

    def _built(
        self, opcode: str, attributes: list[Written], scope: Scope | None
    ) -> dict[str, object] | None:
        """The values of attributes; faults are recorded."""
        built: dict[str, object] = {}
        for written in attributes:
            kind = attribute_kind(opcode, written.name)
            assert kind is not None, "the machine asked for its rule"
            try:
                if written.name in built:
                    raise Violation("duplicate-name", "", "given twice", "each attribute once")
                check_form(written)
                value = kind.build(written.tree)
                if kind.refers:
                    assert scope is not None, "a header refers to nothing"
                    value = self.builder.resolved(scope, kind, value)
                built[written.name] = value
            except Poisoned:
                return None
            except Violation as error:
                self.violated(f"{opcode}: {written.name}", error, (written.start, written.end))
        return built


_idle: list[tuple[Actions, Callbacks]] = []


@contextmanager
def reading(builder: ModuleBuilder) -> Iterator[tuple[Actions, Callbacks]]:
    """Actions for a text, and the callbacks bound to them, which take a millisecond to make."""
    try:
        actions, callbacks = _idle.pop()
        actions.begin(builder)
    except IndexError:
        actions = Actions(builder)
        callbacks = callbacks_for(actions)
    try:
        yield actions, callbacks
    finally:
        actions.begin(NOWHERE)
        _idle.append((actions, callbacks))


def _name(token: Token) -> str:
    return token.value.removeprefix("%").removesuffix(":")


def check_form(written: Written) -> None:
    """A kind may have two forms and an attribute one: parameter_replication needs braces."""
    if written.name == "parameter_replication":
        first = written.tree.children[0]  # type: ignore[attr-defined]  # a tree
        if not isinstance(first, Token) or first.type != "LBRACE":
            raise Violation("attribute-value", "", "written without braces", "{...}")


def _flat(parts: Sequence[object]) -> list[Token]:
    found: list[Token] = []
    for part in parts:
        if isinstance(part, LiteralTokens):
            found += part.tokens
        else:
            found.append(part)  # type: ignore[arg-type]  # a token
    return found
