"""Fast reading: line by line, and each distinct piece of text in a line read once.

    text --one pattern a line--> pieces: shape, operands, attributes, literal
    piece --the grammar's own rules, remembered (pieces.py)--> value --ModuleBuilder--> instruction

The patterns only cut: they say where pieces end, and the grammar what a piece may be. A line that
they do not know (comments inside, nested operands, inline bodies, ...) is read alone by the rule
instruction_prefix. Where anything is wrong, fast reading gives up (Declined) and the whole text is
read token by token, which finds the places of the errors. It accepts a line only when its pieces,
each a complete run of tokens, follow the grammar; so both readings agree.
"""

from __future__ import annotations

import re

from hlo.attributes.escape import unquoted
from hlo.errors import Violation
from hlo.ir.instruction import NO_ATTRIBUTES, Instruction
from hlo.ir.shape import Shape, compatible
from hlo.ops.table import OPS
from hlo.parser.actions import THREAD, Actions, reading
from hlo.parser.build import ModuleBuilder, Poisoned, Scope, may_complete
from hlo.parser.engine import Fault, Machine
from hlo.parser.kinds import PAYLOADS
from hlo.parser.pieces import Declined, attributes_piece, literal_piece, shape_piece
from hlo.parser.printed import printed_tables
from hlo.parser.stacks import Callbacks
from hlo.parser.terminals import SHORT_INT, pattern, words
from hlo.process.once import once
from hlo.source import Source

_INDEX = r"/\*index=[0-9]++\*/"  # the only comment that the printer writes


def _nested(depth: int) -> str:
    """Parentheses up to some depth; no strings, no comments but the printer's own."""
    inner = rf"|{_nested(depth - 1)}" if depth else ""
    return rf"\((?:[^()\n\r\"'/]++|{_INDEX}{inner})*+\)"


_INSIDE = rf"(?:[^()\n\r\"'/]++|{_INDEX}|{_nested(3)})*+"
_NAME = "%?@IDENT"
_SHAPE = (
    r"(?:[^()\[\]{}, \n\r\"'/]++|\[[^\[\]\n\r\"'/]*+\]|\{[^{}\n\r\"'/]*+\}|" + _nested(3) + ")++"
)


class _Cuts:
    """The patterns of lines and of what stands in them."""

    def __init__(self) -> None:
        self.line = pattern(
            rf"@BLANK(@ROOT )?({_NAME}) @EQUAL ({_SHAPE}) (@IDENT)"
            rf"@LPAR({_INSIDE})@RPAR((?:@COMMA [^\n\r]*+)?)[\n\r]"
        ).match
        self.open = pattern(
            rf"@BLANK(@ENTRY )?({_NAME}) (?:@LPAR({_INSIDE})@RPAR @ARROW ({_SHAPE}) )?"
            r"@LBRACE[ ]*+[\n\r]"
        ).match
        self.parameter = pattern(rf"@IDENT@COLON ({_SHAPE})(?:@COMMA (?=@IDENT)|\Z)").match
        self.close = pattern(
            r"@BLANK@RBRACE(?:@COMMA (@ATTR)(@STRING))?(?=[ \t\r\n]*+([^ \t\r\n,]|\Z))"
        ).match
        self.blank = pattern("@BLANK").match
        self.index = re.compile(_INDEX)
        self.number = pattern(SHORT_INT).fullmatch
        self.words = words()


@once
def _cuts() -> _Cuts:
    """Made when the first text is long enough."""
    return _Cuts()


def read_lines(source: Source, *, header: bool) -> ModuleBuilder:
    """The builder of a whole text, not finished; or Declined."""
    builder = ModuleBuilder(source)
    try:
        with reading(builder) as (actions, callbacks):
            _Reader(builder, actions, callbacks).read(header=header)
    except (Fault, Violation, Poisoned) as reason:
        raise Declined from reason
    return builder


class _Reader:
    """One fast reading. Its state is the place in the text, and the builder."""

    def __init__(self, builder: ModuleBuilder, actions: Actions, callbacks: Callbacks) -> None:
        self.text = builder.source.text
        self.builder = builder
        self.actions = actions
        self.callbacks = callbacks
        self.cuts = _cuts()
        self.at = 0
        self.scope: Scope | None = None
        self.written: dict[str, Instruction] = {}  # by the name as the text spells it, `%` and all

    def read(self, *, header: bool) -> None:
        """Header, tables, computations: of these at least one."""
        if header:
            self._slow("header_prefix")
            self._tables()
        if not self._open():
            raise Declined
        self._lines()
        while self._open():
            self._lines()

    def _slow(self, rule: str) -> None:
        """Read one part token by token."""
        machine = Machine(rule, self.text, self.at, self.actions, self.callbacks)
        machine.run(prefix=True)
        if self.actions.errors:
            raise Declined
        self.at = machine.last_start  # a prefix rule ends with the token behind the part

    def _tables(self) -> None:
        """Read the stack frame tables, where there are any."""
        if pattern("@FILE_NAMES").match(self.text, self.at) is None:
            return
        found = printed_tables(self.text, self.at)
        if found is None:
            self._slow("tables_prefix")
        else:
            self.builder.tables, self.at = found

    def _open(self) -> bool:
        """Read a computation's head; False at the end of the text."""
        match = self.cuts.open(self.text, self.at)
        if match is None or match[2] in self.cuts.words or not self._are_plain(match[3] or ""):
            blank = self.cuts.blank(self.text, self.at)
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

    def _are_plain(self, parameters: str) -> bool:
        """Whether a signature's parameters are plain; they say nothing, but have to be right."""
        at = 0
        while at < len(parameters):
            match = self.cuts.parameter(parameters, at)
            if match is None:
                return False
            shape_piece(match[1])
            at = match.end()
        return True

    def _lines(self) -> None:
        """Build the instructions of a computation, to its end and over it.

        Hot, with ModuleBuilder.instruction: most of a dump is lines.
        """
        text, line, closing, reserved = self.text, self.cuts.line, self.cuts.close, self.cuts.words
        while True:
            match = line(text, self.at)
            if match is not None and match[4] in OPS and match[2] not in reserved:
                self._line(match)
                continue
            close = closing(text, self.at)
            if close is not None:
                if close[1] is not None and close[1] != THREAD:
                    raise Declined
                self.builder.close(thread="main" if close[1] is None else unquoted(close[2]))
                self.at = close.start(3)
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
            attributes = {**attributes, **self._payload(opcode, inside, shape)}
        elif is_shared and (shape.elements or may_complete(opcode)):
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
        if name not in self.cuts.words:
            self.written[name] = scope.names[name]

    def _operands(self, inside: str) -> tuple[Instruction, ...] | None:
        """Operands with shapes, with index comments, without blanks; None: another form."""
        if "/*" in inside:
            inside = self.cuts.index.sub("", inside)
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

    def _payload(self, opcode: str, inside: str, shape: Shape) -> dict[str, object]:
        """What the parentheses of a constant or a parameter say."""
        if opcode == "constant":
            return {"literal": literal_piece(inside, shape)}
        if self.cuts.number(inside) is None:
            raise Declined
        return {"parameter_number": int(inside)}
