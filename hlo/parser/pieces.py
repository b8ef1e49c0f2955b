"""Pieces of lines, each distinct text read once by the grammar's own rules and remembered.

    "f32[2,3]{1,0}" -> Shape      ", dimensions={0}, to_apply=%add" -> {"dimensions": (0,), ...}

What is remembered depends on nothing but the text: names stay names until they are resolved. The
memories are bounded: a full one is emptied.
"""

from __future__ import annotations

from typing import TypeVar

from hlo.attributes.kind import AttributeKind
from hlo.attributes.names import COMPUTATION
from hlo.ir.instruction import NO_ATTRIBUTES, Attributes
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape
from hlo.parser.actions import NOWHERE, Written, check_form, reading
from hlo.parser.build import ModuleBuilder, Scope
from hlo.parser.engine import Machine
from hlo.parser.kinds import attribute_kind
from hlo.parser.lexer import Token, plain_shape
from hlo.parser.literals import LiteralTokens
from hlo.parser.printed import METADATA, printed_literal, printed_metadata
from hlo.parser.stacks import last_part
from hlo.parser.terminals import pattern, words

LARGEST = 1 << 15  # entries of a memory
LONG_LITERAL = 40  # characters: shorter ones go through the grammar
LONGEST = 4096  # characters of a text that is worth remembering
# An attribute with its value: cut where a comma stands in no brackets and in no string.
_FLAT = r"[^(){}\[\],\n\r\"'/]"
_DEEP = r"[^(){}\[\]\n\r\"'/]"


def _bracketed(depth: int) -> str:
    """What stands in brackets, whichever, with strings and without comments."""
    inner = f"|{_bracketed(depth - 1)}" if depth else ""
    return rf"[({{\[](?:{_DEEP}++|@STRING{inner})*+[)}}\]]"


_ATTRIBUTE = rf"@COMMA @ATTR(?:{_FLAT}++|@STRING|{_bracketed(3)})++"

_Key = TypeVar("_Key")
_Value = TypeVar("_Value")
Reference = tuple[str, AttributeKind, object]  # attribute, kind, names
List = tuple[Attributes, tuple[Reference, ...]]  # values, and what is to be resolved


class Declined(Exception):
    """Fast reading meets what it does not read; token by token is the way."""


def read_piece(rule: str, text: str, first: Token | None = None) -> object:
    """The value of the last part of a start rule; raises Fault."""
    with reading(NOWHERE) as (actions, callbacks):
        return last_part(Machine(rule, text, 0, actions, callbacks).run(first=first))


class _Memory(dict[_Key, _Value]):
    """A bounded dictionary."""

    def keep(self, key: _Key, text: str, value: _Value) -> None:
        if len(text) > LONGEST:
            return
        if len(self) >= LARGEST:
            self.clear()
        self[key] = value


_shapes: _Memory[str, Shape] = _Memory()
_lists: _Memory[tuple[str, str], List] = _Memory()
_metadata: _Memory[str, Attributes] = _Memory()
_literals: _Memory[tuple[str, Shape], Literal] = _Memory()


def shape_piece(text: str) -> Shape:
    """A shape; raises Fault."""
    found = plain_shape(text) or _shapes.get(text)
    if found is None:
        read = read_piece("shape_text", text)
        assert isinstance(read, Shape), "what the rules of shapes give"
        found = read
        _shapes.keep(text, text, found)
    return found


def literal_piece(text: str, shape: Shape) -> Literal:
    """The value of a constant; raises Fault and Violation."""
    key = (text, shape)
    found = _literals.get(key)
    if found is not None:
        return found
    if len(text) > LONG_LITERAL:
        found = printed_literal(text, shape)
    if found is None:
        tokens = read_piece("literal_text", text)
        assert isinstance(tokens, LiteralTokens), "what rule literal gives"
        found = tokens.literal(shape)
    _literals.keep(key, text, found)
    return found


def attributes_piece(
    opcode: str, text: str, builder: ModuleBuilder, scope: Scope
) -> tuple[Attributes, bool]:
    """The attributes of an instruction, and whether the mapping may be shared with other ones.

    Raises Fault and Violation. Hot: metadata, which differ most, are looked up on their own.
    """
    split = text.rfind(METADATA)
    metadata = None
    if split >= 0 and not (split and "//" in text):  # perhaps a comment up to the end
        metadata = _printed(text[split:])
    if metadata is None:
        values, references = _list(opcode, text)
    elif split:
        values, references = _list(opcode, text[:split])
        if "metadata" in values:
            raise Declined
        values = {**values, **metadata}
        if not references:
            return values, False
    else:
        return metadata, True
    if not references:
        return values, True
    resolved = dict(values)
    for name, kind, names in references:
        if name in resolved:
            raise Declined
        resolved[name] = builder.resolved(scope, kind, names)
    return resolved, False


def _printed(text: str) -> Attributes | None:
    """What `, metadata={...}` says; None where it is written otherwise or more follows."""
    found = _metadata.get(text)
    if found is None:
        metadata = printed_metadata(text)
        if metadata is not None:
            found = {"metadata": metadata}
            _metadata.keep(text, text, found)
    return found


def _list(opcode: str, text: str) -> List:
    """The attributes of a list, each distinct one read once."""
    found = _lists.get((opcode, text))
    if found is not None:
        return found
    parts = pattern(_ATTRIBUTE).findall(text)
    if len(parts) < 2 or "".join(parts) != text:
        return _attribute(opcode, text)
    values: dict[str, object] = {}
    references: list[Reference] = []
    for part in parts:
        some, others = _attribute(opcode, part)
        if not values.keys().isdisjoint(some):
            raise Declined
        values.update(some)
        references += others
    found = values, tuple(references)
    _lists.keep((opcode, text), text, found)
    return found


def _attribute(opcode: str, text: str) -> List:
    """One attribute, or a list that cannot be cut."""
    found = _lists.get((opcode, text))
    if found is not None:
        return found
    metadata = _printed(text) if text.startswith(METADATA) else None
    if metadata is not None:
        return metadata, ()
    found = _called(opcode, text)
    if found is None:
        written = read_piece("attributes_text", text, Token("IDENT", opcode, 0, 0))
        assert isinstance(written, list), "what rule attributes gives"
        found = _built(opcode, written)
    _lists.keep((opcode, text), text, found)
    return found


def _called(opcode: str, text: str) -> List | None:
    """`to_apply=%name` or the like: there are as many as computations."""
    match = pattern(r"@COMMA (@ATTR)(%?@IDENT)").fullmatch(text)
    if match is None or match[2] in words():
        return None
    attribute = match[1][:-1]
    if attribute_kind(opcode, attribute) is not COMPUTATION:
        return None
    return NO_ATTRIBUTES, ((attribute, COMPUTATION, match[2].removeprefix("%")),)


def _built(opcode: str, written: list[Written]) -> List:
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
