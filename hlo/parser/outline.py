"""Fast reading: an outline of lines, and each distinct piece of text in them read once.

    text --one pattern a line--> OUTLINE_ tokens --Lark, rule outline--> ModuleBuilder
    pieces of a line (shape, attributes, literal) --the grammar's own rules, remembered--> values

A line that the pattern does not know (comments inside, nested operands, inline bodies, ...) is read
alone by the rule instruction_prefix. Where anything is wrong, fast reading gives up (Declined)
and the whole text is read token by token, which finds the places of the errors. It accepts a line
only when its pieces, each a complete run of tokens, follow the grammar; so both readings agree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from lark.exceptions import UnexpectedToken

from hlo.errors import Violation
from hlo.ir.instruction import NO_ATTRIBUTES, Instruction
from hlo.ir.shape import Shape, compatible
from hlo.ops.table import OPS
from hlo.parser.actions import Actions, reading
from hlo.parser.build import ModuleBuilder, Poisoned, Scope
from hlo.parser.checks import CHECKS
from hlo.parser.engine import Fault, Machine, tables
from hlo.parser.kinds import PAYLOADS, is_async
from hlo.parser.lexer import BLANK, END, WORDS, Token
from hlo.parser.pieces import Declined, attributes_piece, literal_piece, shape_piece
from hlo.parser.plain_tables import plain_tables
from hlo.parser.stacks import Callbacks, Terminal, stacks
from hlo.source import Source


def _nested(depth: int) -> str:
    """Parentheses up to some depth; no strings, no comments but the printer's own."""
    inner = rf"|{_nested(depth - 1)}" if depth else ""
    return rf"\((?:[^()\n\r\"'/]++|/\*index=[0-9]++\*/{inner})*+\)"


_INSIDE = rf"(?:[^()\n\r\"'/]++|/\*index=[0-9]++\*/|{_nested(3)})*+"
_NAME = r"%?[A-Za-z_][A-Za-z0-9_.\-]*+"
_ARRAY = r"[a-z][a-z0-9]*+\[[^\[\]\n\r\"'/]*+\](?:\{[^{}\n\r\"'/]*+\})?"
_SHAPE = rf"(?:{_ARRAY}|{_nested(3)})"
_LINE = re.compile(
    rf"{BLANK}(ROOT )?({_NAME}) = ({_SHAPE}) ([a-z][a-z0-9\-]*+)"
    rf"\(({_INSIDE})\)((?:, [^\n\r]*+)?)[\n\r]"
)
_OPEN = re.compile(rf"{BLANK}(ENTRY )?({_NAME}) (?:\(({_INSIDE})\) -> ({_SHAPE}) )?\{{[ ]*+[\n\r]")
_CLOSE = re.compile(
    rf'{BLANK}\}}(?:, execution_thread="([^"\\\n\r]*+)")?(?=[ \t\r\n]*+([^ \t\r\n,]|\Z))'
)
_PARAMETER = re.compile(rf"[A-Za-z_][A-Za-z0-9_.\-]*+: ({_SHAPE})(?:, (?=[A-Za-z_])|\Z)")
_INDEX = re.compile(r"/\*index=[0-9]++\*/")
_BLANK = re.compile(BLANK)
_NUMBER = re.compile(r"[0-9]{1,9}")


def outlined(source: Source, *, header: bool) -> ModuleBuilder:
    """The builder of a whole text, not finished; or Declined."""
    builder = ModuleBuilder(source)
    try:
        with reading(builder) as (actions, callbacks):
            return _Reader(builder, actions, callbacks).read(header=header)
    except (Fault, Violation, Poisoned, UnexpectedToken) as reason:
        raise Declined from reason


class _Reader:
    """One fast reading. Its state is the place in the text, and the builder."""

    def __init__(self, builder: ModuleBuilder, actions: Actions, callbacks: Callbacks) -> None:
        self.text = builder.source.text
        self.builder = builder
        self.actions = actions
        self.callbacks = callbacks
        self.at = 0
        self.scope: Scope | None = None
        self.written: dict[str, Instruction] = {}  # by the name as the text spells it, `%` and all

    def read(self, *, header: bool) -> ModuleBuilder:
        """Feed the outline's tokens to Lark; the callback of lines builds their instructions."""
        callbacks: Callbacks = {"OUTLINE_LINES": self._lines}
        callbacks.update(dict.fromkeys(tables().reductions("outline"), _nothing))
        feed = stacks(tables(), callbacks, "outline").feed_token
        if header:
            self._slow("header_prefix")
            self._tables()
            feed(Token("OUTLINE_HEADER", "", 0, self.at))
        for token in self._tokens():
            feed(token)
        feed(Token(END, "", self.at, self.at), True)
        return self.builder

    def _tokens(self) -> Iterator[Terminal]:
        """The outline."""
        while self._open():
            yield Token("OUTLINE_OPEN", "", self.at, self.at)
            yield Token("OUTLINE_LINES", "", self.at, self.at)  # read in the callback
            yield Token("OUTLINE_CLOSE", "", self.at, self.at)

    def _slow(self, rule: str) -> None:
        """Read one part token by token."""
        machine = Machine(rule, self.text, self.at, self.actions, self.callbacks)
        machine.run(prefix=True)
        if self.actions.errors:
            raise Declined
        self.at = machine.last_start  # a prefix rule ends with the token behind the part

    def _tables(self) -> None:
        """Read the stack frame tables, where there are any."""
        if not self.text.startswith("FileNames", self.at):
            return
        found = plain_tables(self.text, self.at)
        if found is None:
            self._slow("tables_prefix")
        else:
            self.builder.tables, self.at = found

    def _open(self) -> bool:
        """Read a computation's head; False at the end of the text."""
        match = _OPEN.match(self.text, self.at)
        if match is None or match[2] in WORDS or not _are_parameters(match[3] or ""):
            blank = _BLANK.match(self.text, self.at)
            assert blank is not None, "blanks always match"
            if blank.end() == len(self.text):
                return False
            self._slow("computation_prefix")
        else:
            entry, name, _, result = match.groups()
            shape = None if result is None else shape_piece(result)
            scope = self.builder.open(
                name.removeprefix("%"), match.start(2), shape, entry=entry is not None
            )
            self.builder.check_head(scope)
            self.at = match.end()
        self.scope = self.builder.scopes[-1]
        self.written = {}
        return True

    def _lines(self, token: Token) -> None:
        """Build the instructions of a computation, to its end and over it.

        Hot, with ModuleBuilder.instruction: most of a dump is lines.
        """
        text, line, closing = self.text, _LINE.match, _CLOSE.match
        while True:
            match = line(text, self.at)
            if match is not None and match[4] in OPS and match[2] not in WORDS:
                self._line(match)
                continue
            close = closing(text, self.at)
            if close is not None:
                self.builder.close(thread="main" if close[1] is None else close[1])
                self.at = close.start(2)
                return
            self._slow_line()

    def _line(self, match: re.Match[str]) -> None:
        """Build the instruction of a line that the pattern knows."""
        root, written, shape_text, opcode, inside, listed = match.groups()
        scope, builder = self.scope, self.builder
        assert scope is not None, "a line follows a head"
        shape = shape_piece(shape_text)
        operands: tuple[Instruction, ...] = ()
        if inside and opcode not in PAYLOADS:
            try:
                operands = tuple(map(self.written.__getitem__, inside.split(", ")))
            except KeyError:
                found = self._operands(inside)
                if found is None:
                    self._slow_line()
                    return
                operands = found
        attributes, is_shared = NO_ATTRIBUTES, True
        if listed:
            try:
                attributes, is_shared = attributes_piece(opcode, listed, builder, scope)
            except Fault:  # the list may go on in the next line
                self._slow_line()
                return
        if opcode in PAYLOADS:
            attributes = {**attributes, **_payload(opcode, inside, shape)}
        elif is_shared and (opcode in CHECKS or shape.elements or is_async(opcode)):
            attributes = dict(attributes)  # the builder may complete it
        made = builder.instruction(
            scope,
            written[1:] if written[0] == "%" else written,
            opcode,
            shape,
            operands,
            attributes,  # type: ignore[arg-type]  # a dict where the builder changes it
            match.start(2),
            match.end(6),
            root=root is not None,
        )
        self.written[written] = made
        self.at = match.end()

    def _slow_line(self) -> None:
        scope = self.scope
        assert scope is not None, "a line follows a head"
        self._slow("instruction_prefix")
        name = next(reversed(scope.names))
        self.written["%" + name] = scope.names[name]
        if name not in WORDS:
            self.written[name] = scope.names[name]

    def _operands(self, inside: str) -> tuple[Instruction, ...] | None:
        """Operands with shapes, with index comments, without blanks; None: another form."""
        if "/*" in inside:
            inside = _INDEX.sub("", inside)
        parts = inside.split(", " if "[" in inside or ", " in inside else ",")
        found: list[Instruction] = []
        for part in parts:
            instruction = self.written.get(part)
            if instruction is None:
                shape_text, _, name = part.rpartition(" ")
                instruction = self.written.get(name)
                if instruction is None or not shape_text or "[" not in shape_text:
                    return None
                try:
                    shape = shape_piece(shape_text)
                except Fault:
                    return None
                if shape is not instruction.shape and not compatible(shape, instruction.shape):
                    raise Declined
            found.append(instruction)
        return tuple(found)


def _are_parameters(parameters: str) -> bool:
    """Whether a signature's parameters are plain; they say nothing, but have to be right."""
    at = 0
    while at < len(parameters):
        match = _PARAMETER.match(parameters, at)
        if match is None:
            return False
        shape_piece(match[1])
        at = match.end()
    return True


def _payload(opcode: str, inside: str, shape: Shape) -> dict[str, object]:
    """What the parentheses of a constant or a parameter say."""
    if opcode == "constant":
        return {"literal": literal_piece(inside, shape)}
    if _NUMBER.fullmatch(inside) is None:
        raise Declined
    return {"parameter_number": int(inside)}


def _nothing(children: object) -> None:
    return None
