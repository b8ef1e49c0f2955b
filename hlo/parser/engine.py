"""Runs the LALR machine over the precise lexer's tokens.

    (start rule, text, place) --tokens, tables, actions--> value of the start rule

Lark makes the tables, stacks.py keeps the stacks; this loop feeds them. It knows the three things
that a plain lexer cannot: a DICT is lexed where the grammar accepts one, a marker (AS_...) is put
in front of what a name decides, and a prefix rule (`instruction_prefix`) ends where only the end
may follow.
No recursion: nesting costs stack entries of the machine, and their number is bounded.
"""

from __future__ import annotations

from collections.abc import Mapping

from hlo.parser.grammar import marker
from hlo.parser.kinds import HEADER, PAYLOADS, allowed_attributes, attribute_kind, is_opcode
from hlo.parser.lexer import END, Lexer, Token
from hlo.parser.stacks import (
    Action,
    Callbacks,
    Reduction,
    Stacks,
    UnexpectedToken,
    action,
)
from hlo.parser.tables import tables

DEEPEST = 2000  # entries of the machine's stack: several per level of nesting


class Fault(Exception):
    """A place where the text leaves the language: what stands there, what was expected."""

    def __init__(self, code: str, message: str, start: int, end: int, *, help: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.start = start
        self.end = end
        self.help = help


class Machine:
    """One run: a start rule over a text, with the actions that the rules' reductions call."""

    __slots__ = (
        "_asks", "_finals", "_lexer", "actions", "at", "last_start", "previous", "state", "states",
        "text",
    )  # fmt: skip

    def __init__(
        self, start: str, text: str, at: int, actions: object, callbacks: Callbacks
    ) -> None:
        table = tables()
        self.states = table.states
        self._asks = table.asks
        self._finals = table.finals
        self.state = Stacks(table, callbacks, start)
        self.text = text
        self._lexer = Lexer(text)
        self.actions = actions
        self.at = at
        self.last_start = at
        self.previous = ""

    def run(self, *, prefix: bool = False, first: Token | None = None) -> object:
        """The start rule's value; raises Fault. `at` is then behind the last token."""
        stack, asks, finals = self.state.state_stack, self._asks, self._finals
        feed, lexer, actions = self.state.feed_token, self._lexer, self.actions
        if first is not None:
            feed(first)
        while True:
            top = stack[-1]
            token = None
            if top in asks:
                token = self._asked(top)
            if token is None:
                token = lexer.token(self.at, self.previous)
            kind = token.type
            try:
                value = feed(token, is_end=kind == END)
            except UnexpectedToken:
                raise self.unexpected(token) from None
            if kind == END:
                return value
            self.at = actions.last_end = token.end_pos  # type: ignore[attr-defined]  # Actions
            self.last_start = token.start_pos
            self.previous = kind
            if prefix and stack[-1] in finals:
                return feed(Token(END, "", self.at, self.at), is_end=True)
            if len(stack) > DEEPEST:
                raise Fault("nesting", "the text nests too deeply", token.start_pos, token.end_pos)

    def _asked(self, top: int) -> Token | None:
        """What stands before the next plain token: a marker, or a DICT in its place."""
        row = self.states[top]
        if "DICT" in row:
            return self._lexer.dict(self.at)
        values = self.state.value_stack
        if "AS_OPERANDS" in row:
            kind = PAYLOADS.get(values[-2].value, "AS_OPERANDS")
            return Token(kind, "", self.at, self.at)
        owner, name = values[-4], values[-1]
        kind_of = attribute_kind(owner.value, name.value[:-1])
        if kind_of is None:
            if owner.value != HEADER and not is_opcode(owner.value):
                raise _unknown_opcode(owner.value, owner.head.place)
            raise self._unknown_attribute(owner.value, name)
        return Token(marker(kind_of.rule), "", self.at, self.at)

    def _unknown_attribute(self, owner: str, name: Token) -> Fault:
        from hlo.parser.wording import near  # of faults, as below

        word = name.value[:-1]
        allowed = allowed_attributes(owner)
        what = "the module's header" if owner == HEADER else owner
        message = f"{word} is not an attribute of {what}"
        start, end = name.start_pos, name.end_pos - 1
        return Fault("attribute-unknown", message, start, end, help=near(word, allowed))

    def unexpected(self, token: Token) -> Fault:
        """The fault of a token that cannot stand where it stands.

        In the parentheses of an unknown opcode it is the opcode that is wrong: another one may
        allow the token, as parameter does a number.
        """
        from hlo.parser.wording import meant, misread, no_shape, reserved, spelled

        values = self.state.value_stack
        inside = (i for i in range(len(values) - 1, 1, -1) if _is_marker(values[i]))
        head = next((values[i - 2] for i in inside), None)
        if head is not None and not is_opcode(head.value):
            return _unknown_opcode(head.value, head.place)
        row = self.states[self.state.state_stack[-1]]
        seen = spelled(token)
        message = f"{seen}, expected {_expectation(row, token)}"
        before = values[-1] if values and isinstance(values[-1], Token) else None
        mistaken, help = no_shape(before, token)
        if mistaken and before is not None:
            return Fault("syntax", mistaken, before.start_pos, before.end_pos, help=help)
        help = misread(before, token)
        if not help:
            help = meant(self.text, token, in_operands=head is not None and "COMMA" in row)
        if not help and "NAME" in row:
            help = reserved(token)
        return Fault("syntax", message, token.start_pos, token.end_pos, help=help)


def _expectation(row: Mapping[str, object], token: Token) -> str:
    """What could stand here; of a text that ends after its header, what it lacks."""
    if token.type == END and "ENTRY" in row:
        return "a computation, such as ENTRY main { ... }"
    from hlo.parser.wording import described

    return described(sorted(k for k in row if k.isupper() or k == END))


def _is_marker(value: object) -> bool:
    """Whether it stands between an opcode's `(` and the operands."""
    return isinstance(value, Token) and value.type == "AS_OPERANDS"


def _unknown_opcode(opcode: str, place: tuple[int, int]) -> Fault:
    from hlo.parser.wording import near_opcode

    message = f"{opcode} unknown, expected an opcode"
    return Fault("unknown-opcode", message, *place, help=near_opcode(opcode))


class _Bound(dict[Reduction, Action]):
    """What reductions call, made when the machine first reduces by a rule."""

    def __init__(self, actions: object) -> None:
        super().__init__()
        self._actions = actions

    def __missing__(self, reduction: Reduction) -> Action:
        made = self[reduction] = action(reduction.plain, self._actions)
        return made


def callbacks_for(actions: object) -> Callbacks:
    """What reductions call: the methods of `actions` for the rules that it names."""
    return _Bound(actions)
