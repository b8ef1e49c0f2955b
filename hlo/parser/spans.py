"""Places inside an instruction's text, found when asked for: shape, opcode, operands, attributes.

Instructions keep only where they begin and end; their text is lexed again here.
"""

from __future__ import annotations

from functools import lru_cache

from msgspec import Struct, field

from hlo.ir.instruction import Instruction
from hlo.parser.kinds import attribute_kind
from hlo.parser.lexer import END, Lexer, Token
from hlo.source import Source, Span

_OPENING = frozenset(("LPAR", "LBRACE", "LSQB", "LAYOUT"))
_CLOSING = frozenset(("RPAR", "RBRACE", "RSQB"))
Offsets = tuple[int, int]


class _PartOffsets(Struct):
    """The places of an instruction's parts."""

    shape: Offsets | None = None
    opcode: Offsets | None = None
    operands: list[Offsets] = field(default_factory=list)
    attributes: dict[str, Offsets] = field(default_factory=dict)


def role_span(instruction: Instruction, role: str) -> Span | None:
    """The part that a Violation's role names: `operand 1`, `result`, an attribute, the opcode."""
    if instruction.source is None:
        return None
    if role.startswith("operand ") and role[8:].isdigit():
        return operand_span(instruction, int(role[8:]))
    if role == "result":
        return shape_span(instruction)
    if role in instruction.attributes:
        return attribute_span(instruction, role)
    return opcode_span(instruction)


def shape_span(instruction: Instruction) -> Span | None:
    """The written shape; None where there is none, or no text."""
    return _span(instruction, _parts_of(instruction).shape)


def opcode_span(instruction: Instruction) -> Span | None:
    """The opcode's word."""
    return _span(instruction, _parts_of(instruction).opcode)


def operand_span(instruction: Instruction, index: int) -> Span | None:
    """The operand as written, its shape included."""
    places = _parts_of(instruction).operands
    return _span(instruction, places[index] if 0 <= index < len(places) else None)


def attribute_span(instruction: Instruction, name: str) -> Span | None:
    """The attribute with its value."""
    return _span(instruction, _parts_of(instruction).attributes.get(name))


def _span(instruction: Instruction, place: Offsets | None) -> Span | None:
    if place is None or instruction.source is None:
        return None
    return Span(instruction.source, *place)


def _parts_of(instruction: Instruction) -> _PartOffsets:
    if instruction.source is None or instruction.start < 0:
        return _PartOffsets()
    return _parts(instruction.source, instruction.start, instruction.end)


@lru_cache(maxsize=64)
def _parts(source: Source, start: int, end: int) -> _PartOffsets:
    return _Scan(source.text, start, end).parts()


class _Scan:
    """One pass over an instruction's tokens."""

    def __init__(self, text: str, start: int, end: int) -> None:
        self.lexer = Lexer(text)
        self.end = end
        self.at = start
        self.previous = ""
        self.previous_end = start

    def parts(self) -> _PartOffsets:
        parts = _PartOffsets()
        opcode = self._head(parts)
        if opcode:
            self._operands(parts)
            self._attributes(parts, opcode)
        return parts

    def _next(self) -> Token:
        self.previous_end = self.at
        token = self.lexer.token(self.at, self.previous)
        if token.start_pos >= self.end:
            return Token(END, "", self.end, self.end)
        self.at, self.previous = token.end_pos, token.type
        return token

    def _head(self, parts: _PartOffsets) -> str:
        """`name =` (perhaps absent), shape (perhaps absent), opcode; the opcode's word."""
        depth = 0
        shape: Offsets | None = None
        while (token := self._next()).type != END:
            if token.type == "EQUAL":
                shape = None
            elif token.type == "IDENT" and not depth and self._calls():
                parts.shape, parts.opcode = shape, (token.start_pos, token.end_pos)
                return token.value
            else:
                depth += (token.type in _OPENING) - (token.type in _CLOSING)
                if token.type not in ("NAME", "IDENT", "ROOT"):
                    shape = (shape[0] if shape else token.start_pos, token.end_pos)
        return ""

    def _calls(self) -> bool:
        return self.lexer.token(self.at).type == "LPAR"

    def _operands(self, parts: _PartOffsets) -> None:
        depth, first, last = 0, -1, -1
        while (token := self._next()).type != END:
            depth += token.type in _OPENING
            ends = token.type == "RPAR" and depth == 1
            if (ends or (token.type == "COMMA" and depth == 1)) and first >= 0:
                parts.operands.append((first, last))
                first = -1
            elif not (depth == 1 and token.type == "LPAR" and last < 0):
                first = token.start_pos if first < 0 else first
            last = token.end_pos
            depth -= token.type in _CLOSING
            if ends:
                return

    def _attributes(self, parts: _PartOffsets, opcode: str) -> None:
        """Each from its name to what stands before the next name at depth 0."""
        depth, name, start, last = 0, "", -1, -1
        while (token := self._next()).type != END:
            if token.type == "ATTR":
                if depth == 0:
                    if name:
                        parts.attributes[name] = (start, last)
                    name, start = token.value[:-1], token.start_pos
                token = self._raw(opcode, name, depth) or token
            elif token.type == "COMMA" and depth == 0:
                continue
            depth += (token.type in _OPENING) - (token.type in _CLOSING)
            last = token.end_pos
        if name:
            parts.attributes[name] = (start, last)

    def _raw(self, opcode: str, name: str, depth: int) -> Token | None:
        """A raw dict, where the attribute's kind may have one at this depth."""
        kind = attribute_kind(opcode, name)
        raw_depth = {"kind_backend_config": 0, "kind_frontend_attributes": 1}
        if kind is None or raw_depth.get(kind.rule) != depth:
            return None
        token = self.lexer.dict(self.at)
        if token is not None:
            self.at = token.end_pos
        return token
