"""The machine's tables: Lark's, in a plain form that another process reads in a millisecond.

    Lark --plain--> numbers and words --kept on disk (grammar.py)--> Tables

A state's row becomes Lark's again when the machine is first in that state, and a rule when it is
first reduced by: a text meets a tenth of them.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from lark import Lark
from lark.grammar import Rule
from lark.parsers.lalr_analysis import Reduce, Shift
from msgspec import Struct, field

from hlo.parser.lexer import END

Step = tuple[object, object]  # of Lark: Shift and a state, Reduce and a rule
FORM = "1"  # of what is kept


class Plain(Struct):
    """states: state -> terminal or rule -> the next state, or -1 - the number of a rule to reduce
    by. rules: name, length, the rest. asks: states that want a marker or a DICT; finals: states
    that only the end can follow.
    """

    starts: dict[str, int]
    ends: dict[str, int]
    states: dict[int, dict[str, int]] = field(default_factory=dict)
    rules: list[tuple[str, int, bytes]] = field(default_factory=list)
    asks: list[int] = field(default_factory=list)
    finals: list[int] = field(default_factory=list)


def plain(grammar: Lark) -> Plain:
    """What the machine needs of a grammar."""
    table: Any = grammar.parser.parser._parse_table  # Lark offers no public door to its tables
    made = Plain(dict(table.start_states), dict(table.end_states))
    numbers: dict[int, int] = {}
    for state, row in table.states.items():
        codes = made.states[state] = {}
        for kind, (_, target) in row.items():
            if isinstance(target, Rule):
                if id(target) not in numbers:
                    numbers[id(target)] = len(made.rules)
                    made.rules.append(_plain_rule(target))
                codes[str(kind)] = -1 - numbers[id(target)]
            else:
                codes[str(kind)] = target
        if any(kind == "DICT" or kind.startswith("AS_") for kind in codes):
            made.asks.append(state)
        if codes.keys() == {END}:
            made.finals.append(state)
    return made


def _plain_rule(rule: Rule) -> tuple[str, int, bytes]:
    parts = (rule.origin, rule.expansion, rule.order, rule.alias, rule.options)
    return str(rule.origin.name), len(rule.expansion), pickle.dumps(parts)


class Reduction:
    """A rule as the machine asks for it, looked up by identity: Lark's own rules hash their text,
    and their names compare in Python.
    """

    __slots__ = ("_parts", "expansion", "name", "origin")

    def __init__(self, name: str, size: int, parts: bytes) -> None:
        self.origin = self
        self.name = name
        self.expansion: Sequence[object] = range(size)
        self._parts = parts

    def rule(self) -> Rule:
        """Lark's rule."""
        made: Rule = Rule(*pickle.loads(self._parts))
        return made


class _Rows(dict[int, dict[str, Step]]):
    """The states' rows as Lark has them, made when first looked up."""

    def __init__(self, kept: dict[int, dict[str, int]], reductions: Sequence[Reduction]) -> None:
        super().__init__()
        self._kept = kept
        self._reductions = reductions

    def __missing__(self, state: int) -> dict[str, Step]:
        rules = self._reductions
        row = self[state] = {
            kind: (Shift, code) if code >= 0 else (Reduce, rules[-1 - code])
            for kind, code in self._kept[state].items()
        }
        return row


class Tables:
    """Lark's tables with slim rules, and what the loop wants to know of each state."""

    def __init__(self, kept: Plain) -> None:
        self.start_states = kept.starts
        self.end_states = kept.ends
        self.reductions = tuple([Reduction(*rule) for rule in kept.rules])
        self.states: dict[int, dict[str, Step]] = _Rows(kept.states, self.reductions)
        self.asks = frozenset(kept.asks)
        self.finals = frozenset(kept.finals)
