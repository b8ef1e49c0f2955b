"""Stacks: the LALR machine, run on the tables that Lark has made of the grammar.

    token --feed_token--> shifts and reductions --actions--> the start rule's value

It does what Lark's own machine does, step by step, without Lark: loading that takes three times as
long as reading a short program, so it is loaded where tables are made (lark_machine.py).
Imports nothing of this package: a build loads it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

END = "$END"  # the kind of the token behind the last one
DROPPED = "-"  # begins a terminal whose token is no part of its rule's value
Action = Callable[..., object]  # what is done with the parts of a rule


class PlainRule(NamedTuple):
    """name <- symbols; alias and options as Lark's grammars have them."""

    name: str
    symbols: str  # terminals in upper case, rules in lower case
    alias: str = ""
    keeps_all_tokens: bool = False
    is_expanded_alone: bool = False  # `?name`: one part stands for the whole


class Reduction:
    """A rule as the machine asks for it, looked up by identity: names would hash their text."""

    __slots__ = ("name", "plain", "size")

    def __init__(self, plain: PlainRule) -> None:
        self.name = plain.name
        self.size = len(plain.symbols.split())
        self.plain = plain


Step = int | Reduction  # go to a state, or make a rule's value of the parts on the stack
Callbacks = dict[Reduction, Action]


class Tree:
    """A rule's parts, of a rule that has no action of its own."""

    __slots__ = ("children", "data")

    def __init__(self, data: str, children: list[object]) -> None:
        self.data = data
        self.children = children


class Token(Protocol):
    """What the machine asks of a token."""

    type: str


class Table(Protocol):
    """What the machine asks of the tables (tables.py)."""

    start_states: dict[str, int]
    end_states: dict[str, int]
    states: dict[int, dict[str, Step]]


class UnexpectedToken(Exception):
    """A token that cannot stand where it stands, after the reductions that any token asked for."""


class Stacks:
    """A run of the machine: the states it is in, and the value that each but the first holds."""

    __slots__ = ("_callbacks", "_end", "_rows", "state_stack", "value_stack")

    def __init__(self, table: Table, callbacks: Callbacks, start: str) -> None:
        self._rows = table.states
        self._end = table.end_states[start]
        self._callbacks = callbacks
        self.state_stack = [table.start_states[start]]
        self.value_stack: list[Any] = []  # tokens, and whatever the actions return

    def feed_token(self, token: Token, *, is_end: bool = False) -> object:
        """Shift a token after the reductions before it; the start rule's value at the end.

        Raises UnexpectedToken.
        """
        states, values, rows = self.state_stack, self.value_stack, self._rows
        while True:
            step = rows[states[-1]].get(token.type)
            if step is None:
                raise UnexpectedToken
            if isinstance(step, int):
                states.append(step)
                values.append(token)
                return None
            first = len(values) - step.size
            parts = values[first:]
            del values[first:], states[first + 1 :]
            value = self._callbacks[step](parts)
            following = rows[states[-1]][step.name]
            assert isinstance(following, int), "a state"
            states.append(following)
            values.append(value)
            if is_end and following == self._end:
                return value


def action(rule: PlainRule, actions: object) -> Action:
    """The method of `actions` that a rule names, else what makes a tree."""
    name = rule.alias or rule.name
    made: Action = getattr(actions, name, None) or partial(Tree, name)
    if rule.is_expanded_alone and not rule.alias:
        made = partial(_expanded, made)
    words = rule.symbols.split()
    taken = {
        number: _is_inlined(word)
        for number, word in enumerate(words)
        if rule.keeps_all_tokens or not word.startswith(DROPPED)
    }
    if len(taken) < len(words) or any(taken.values()):
        made = partial(_filtered, made, taken)
    return made


def _is_inlined(word: str) -> bool:
    """Whether a symbol is a rule whose parts are its user's."""
    return word.startswith("_") and not word.isupper()


def _expanded(made: Action, parts: list[object]) -> object:
    return parts[0] if len(parts) == 1 else made(parts)


def _filtered(made: Action, taken: Mapping[int, bool], parts: list[Any]) -> object:
    """What is made of some of the parts, by number, those of inlined rules among them.

    The first inlined one's list grows in place: a repetition is a rule inlined in itself, and
    copies at each step would take the square of its length.
    """
    found: list[object] = []
    for number, is_inlined in taken.items():
        part = parts[number]
        if not is_inlined:
            found.append(part)
        elif found:
            found += part.children
        else:
            found = part.children
    return made(found)


def parts_of(value: object) -> object:
    """The parts of a rule that has no action of its own; of any other value, itself."""
    return value.children if isinstance(value, Tree) else value


def last_part(tree: object) -> object:
    """What follows a start rule that has no action of its own."""
    assert isinstance(tree, Tree), "no action made a value of it"
    return tree.children[-1]
