"""The machine's tables, as they are kept beside this file (tables.json) and as Lark wants them.

    Plain (JSON: numbers and words) --Tables--> Lark's rows and rules

A state's row becomes Lark's when the machine is first in that state, and a rule when it is first
reduced by: a text meets a tenth of them. What makes the file: grammar.py.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Sequence

import msgspec
from lark.grammar import NonTerminal, Rule, RuleOptions, Symbol, Terminal
from lark.parsers.lalr_analysis import Reduce, Shift
from msgspec import Struct

FILE = "tables.json"
DROPPED = "-"  # begins a terminal whose token is no part of its rule's value
Step = tuple[object, object]  # of Lark: Shift and a state, Reduce and a rule


class PlainRule(Struct, frozen=True, array_like=True):
    """name <- symbols; alias and options as Lark's grammars have them."""

    name: str
    symbols: str  # terminals in upper case, rules in lower case
    alias: str = ""
    keeps_all_tokens: bool = False
    is_expanded_alone: bool = False  # `?name`: one part stands for the whole


class Plain(Struct, frozen=True):
    """starts, ends: start rule -> state. states: each row `CODE KIND KIND ...; ...`: what the
    machine does on terminals and rules: go to state CODE, or reduce by rule -1 - CODE. asks: states
    that want a marker or a DICT. finals: states that only the end can follow.
    """

    starts: dict[str, int]
    ends: dict[str, int]
    asks: list[int]
    finals: list[int]
    rules: list[PlainRule]
    states: list[str]


def kept() -> Plain:
    """The tables of HLO's grammar."""
    data = pkgutil.get_data(__package__, FILE)
    assert data is not None, "the package holds its tables"
    return msgspec.json.decode(data, type=Plain)


class Reduction:
    """A rule as the machine asks for it, looked up by identity: Lark's own rules hash their text,
    and their names compare in Python.
    """

    __slots__ = ("_plain", "expansion", "name", "origin")

    def __init__(self, plain: PlainRule) -> None:
        self.origin = self
        self.name = plain.name
        self.expansion: Sequence[object] = plain.symbols.split()
        self._plain = plain

    def rule(self) -> Rule:
        """Lark's rule."""
        plain = self._plain
        options = RuleOptions(plain.keeps_all_tokens, plain.is_expanded_alone)
        symbols = [_symbol(word) for word in plain.symbols.split()]
        return Rule(NonTerminal(plain.name), symbols, 0, plain.alias or None, options)


def _symbol(word: str) -> Symbol:
    if not word.isupper():
        return NonTerminal(word)
    return Terminal(word.removeprefix(DROPPED), word.startswith(DROPPED))


class _Rows(dict[int, dict[str, Step]]):
    """The states' rows as Lark has them, made when first looked up."""

    def __init__(self, lines: Sequence[str], reductions: dict[int, Reduction]) -> None:
        super().__init__()
        self._lines = lines
        self._reductions = reductions

    def __missing__(self, state: int) -> dict[str, Step]:
        row: dict[str, Step] = {}
        line = self._lines[state]
        for part in line.split(";") if line else ():  # a text's last state goes nowhere
            code, *kinds = part.split()
            number = int(code)
            step = (Shift, number) if number >= 0 else (Reduce, self._reductions[-1 - number])
            row.update(dict.fromkeys(kinds, step))
        return self.setdefault(state, row)  # whole: other threads may be looking


class _Reductions(dict[int, Reduction]):
    """Rules by their number, made when first looked up."""

    def __init__(self, rules: Sequence[PlainRule]) -> None:
        super().__init__()
        self._rules = rules

    def __missing__(self, number: int) -> Reduction:
        return self.setdefault(number, Reduction(self._rules[number]))


class Tables:
    """Lark's tables with slim rules, and what the loop wants to know of each state."""

    def __init__(self, tables: Plain) -> None:
        self.start_states = tables.starts
        self.end_states = tables.ends
        self._rules = tables.rules
        self._reductions = _Reductions(tables.rules)
        self.states: dict[int, dict[str, Step]] = _Rows(tables.states, self._reductions)
        self.asks = frozenset(tables.asks)
        self.finals = frozenset(tables.finals)

    def reductions(self, part: str) -> list[Reduction]:
        """The rules whose names hold a word."""
        found = (number for number, rule in enumerate(self._rules) if part in rule.name)
        return [self._reductions[number] for number in found]
