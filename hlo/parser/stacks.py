"""Lark's LALR stacks, with types: the one place that knows what Lark leaves untyped.

    (tables, callbacks, start rule) -> Stacks, fed with the tokens of our own lexer

Lark's annotations ask for its own tokens and its own lexer; at run time any object with a `type`
will do, and no lexer is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, cast

from lark import Tree
from lark.grammar import Rule
from lark.parse_tree_builder import ParseTreeBuilder
from lark.parsers.lalr_parser_state import ParseConf, ParserState

Reduce = Callable[..., object]  # what is done with the parts of a rule, or with a token
Callbacks = dict[object, Reduce]


class Terminal(Protocol):
    """What the machine asks of a token."""

    type: str


class Stacks(Protocol):
    """A run of the machine: the states it is in, and the value that each of them holds."""

    state_stack: list[int]
    value_stack: list[Any]  # tokens, and whatever the actions return

    def feed_token(self, token: Terminal, is_end: bool = ...) -> object:  # noqa: FBT001  # Lark's form
        """Shift a token after the reductions before it; the start rule's value at the end."""


def stacks(table: object, callbacks: Callbacks, start: str) -> Stacks:
    """The machine before the first token."""
    configuration = cast(Any, ParseConf)(table, callbacks, start)
    return cast(Stacks, cast(Any, ParserState)(configuration, None))


def reduce(rule: Rule, actions: object) -> Reduce:
    """The method of `actions` that a rule names, else what makes a Lark tree."""
    builder = cast(Any, ParseTreeBuilder)([rule], Tree, False, False, False)
    (made,) = cast(dict[Rule, Reduce], builder.create_callback(actions)).values()
    return made


def last_part(tree: object) -> object:
    """What follows a start rule that has no action of its own."""
    assert isinstance(tree, Tree), "no action made a value of it"
    return cast(object, tree.children[-1])
