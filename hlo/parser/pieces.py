"""Pieces of lines, each distinct text read once by the grammar's own rules and remembered.

    "f32[2,3]{1,0}" -> Shape      ", dimensions={0}, to_apply=%add" -> {"dimensions": (0,), ...}

What is remembered depends on nothing but the text: names stay names until they are resolved. The
memories are bounded: a full one is emptied.
"""

from __future__ import annotations

import re
from typing import TypeVar

from hlo.attributes.kind import AttributeKind
from hlo.attributes.names import COMPUTATION
from hlo.ir.instruction import NO_ATTRIBUTES, Attributes
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.parser.actions import Actions, Call, Operand, Written, check_form
from hlo.parser.build import ModuleBuilder, Scope
from hlo.parser.engine import Machine, callbacks_for
from hlo.parser.kinds import attribute_kind
from hlo.parser.lexer import WORDS, Token
from hlo.parser.literals import LiteralTokens
from hlo.parser.plain_literal import plain_literal
from hlo.parser.plain_metadata import plain_metadata
from hlo.parser.plain_shape import plain_shape
from hlo.parser.stacks import Callbacks, last_part
from hlo.source import Source

LARGEST = 1 << 15  # entries of a memory
LONG_LITERAL = 40  # characters: shorter ones go through the grammar
LONGEST = 4096  # characters of a text that is worth remembering
_METADATA = ", metadata={"
_LAST_NAME = re.compile(r"((?:, .*)?), ([a-z_]+)=(%?[A-Za-z_][A-Za-z0-9_.\-]*+)")

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Reference = tuple[str, AttributeKind, object]  # attribute, kind, names


class Declined(Exception):
    """Fast reading meets what it does not read; token by token is the way."""


class _PieceActions(Actions):
    """Reading outside any computation: inline bodies and nested instructions have no place."""

    def body_start(self, parts: list[Token]) -> Scope:
        raise Declined

    def nested_operand(self, parts: list[Call]) -> Operand:
        raise Declined


_idle: list[tuple[Actions, Callbacks]] = []  # one for each thread that reads at a time


def _read(rule: str, text: str, first: Token | None = None) -> object:
    """The value of the last part of a start rule; raises Fault."""
    try:
        actions, callbacks = _idle.pop()
    except IndexError:
        actions = _PieceActions(ModuleBuilder(Source("", "")))
        callbacks = callbacks_for(actions)
    try:
        return last_part(Machine(rule, text, 0, actions, callbacks).run(first=first))
    finally:
        _idle.append((actions, callbacks))


class _Memory(dict[_Key, _Value]):
    """A bounded dictionary."""

    def keep(self, key: _Key, text: str, value: _Value) -> None:
        if len(text) > LONGEST:
            return
        if len(self) >= LARGEST:
            self.clear()
        self[key] = value


_shapes: _Memory[str, Shape] = _Memory()
_lists: _Memory[tuple[str, str], tuple[Attributes, tuple[Reference, ...]]] = _Memory()
_sources: _Memory[str, Attributes] = _Memory()
_literals: _Memory[tuple[str, Shape], Literal] = _Memory()


def shape_piece(text: str) -> Shape:
    """A shape; raises Fault."""
    found = plain_shape(text) or _shapes.get(text)
    if found is None:
        read = _read("shape_text", text)
        assert isinstance(read, Shape), "what the rules of shapes give"
        found = read
        _shapes.keep(text, text, found)
    return found


def literal_piece(text: str, shape: Shape) -> Literal:
    """The value of a constant; raises Fault and Violation."""
    key = (text, shape)
    found = _literals.get(key)
    if found is None:
        found = plain_literal(text, shape) if len(text) > LONG_LITERAL else None
    if found is None:
        tokens = _read("literal_text", text)
        assert isinstance(tokens, LiteralTokens), "what rule literal gives"
        found = tokens.literal(shape)
    _literals.keep(key, text, found)
    return found


def attributes_piece(
    opcode: str, text: str, builder: ModuleBuilder, scope: Scope
) -> tuple[Attributes, bool]:
    """The attributes of an instruction, and whether the mapping may be shared with other ones.

    Raises Fault and Violation.
    """
    split = text.rfind(_METADATA)
    if split < 0 or (split and "//" in text):  # perhaps a comment up to the end
        values, references = _list(opcode, text)
    elif split:
        values, references = _list(opcode, text[:split])
        metadata = _metadata(opcode, text[split:])
        if not values.keys().isdisjoint(metadata):
            raise Declined
        values = {**values, **metadata}
        if not references:
            return values, False
    else:
        return _metadata(opcode, text), True
    if not references:
        return values, True
    resolved = dict(values)
    for name, kind, names in references:
        if name in resolved:
            raise Declined
        resolved[name] = builder.resolved(scope, kind, names)
    return resolved, False


def _metadata(opcode: str, text: str) -> Attributes:
    """What begins with `, metadata={`; attributes may follow. Raises Fault and Violation."""
    found = _sources.get(text)
    if found is None:
        plain = plain_metadata(text)
        if plain is None:
            found, references = _list(opcode, text)
            if references:
                raise Declined
            return found
        found = {"metadata": plain}
        _sources.keep(text, text, found)
    return found


def _list(opcode: str, text: str) -> tuple[Attributes, tuple[Reference, ...]]:
    """The attributes of a list: values, and what is to be resolved."""
    key = (opcode, text)
    found = _lists.get(key)
    if found is None:
        found = _called(opcode, text)
        if found is None:
            first = Token("IDENT", opcode, 0, 0)
            written = _read("attributes_text", text, first)
            assert isinstance(written, list), "what rule attributes gives"
            found = _built(opcode, written)
        _lists.keep(key, text, found)
    return found


def _called(opcode: str, text: str) -> tuple[Attributes, tuple[Reference, ...]] | None:
    """A list that ends with `, to_apply=%name` or the like: few lists, with many names."""
    match = _LAST_NAME.fullmatch(text)
    if match is None or "//" in text:  # perhaps a comment up to the end
        return None
    before, attribute, name = match.groups()
    if attribute_kind(opcode, attribute) is not COMPUTATION or name in WORDS:
        return None
    values, references = _list(opcode, before) if before else (NO_ATTRIBUTES, ())
    if attribute in values:
        raise Declined
    return values, (*references, (attribute, COMPUTATION, name.removeprefix("%")))


def _built(opcode: str, written: list[Written]) -> tuple[Attributes, tuple[Reference, ...]]:
    values: dict[str, object] = {}
    references: list[Reference] = []
    for attribute in written:
        kind = attribute_kind(opcode, attribute.name)
        if kind is None or attribute.name in values:
            raise Declined
        check_form(attribute)
        value = kind.build(attribute.tree)
        if kind.refers:
            references.append((attribute.name, kind, value))
        else:
            values[attribute.name] = value
    return values, tuple(references)
