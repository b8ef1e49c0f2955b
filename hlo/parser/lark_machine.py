"""Lark's LALR machine: the one file that knows Lark, and the only one with its private names.

    grammar --compiled--> tables as plain data --tables.py--> rows of steps --stacks--> Stacks

Lark makes the tables and keeps the stacks. It has no public door to the tables, nor to stacks
without its own lexer; its annotations ask for its own tokens, where at run time any object with a
`type` will do. So the versions that this file was written for are checked when it is imported.
Imports nothing of this package: a build loads it alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol, cast

import lark

try:
    from lark import Lark, Tree
    from lark.exceptions import UnexpectedToken as UnexpectedToken
    from lark.grammar import NonTerminal, Rule, RuleOptions, Symbol, Terminal
    from lark.lexer import PatternStr
    from lark.parse_tree_builder import ParseTreeBuilder
    from lark.parsers.lalr_analysis import Reduce, Shift
    from lark.parsers.lalr_parser_state import ParseConf, ParserState
except ImportError as reason:
    _missing: ImportError | None = reason
else:
    _missing = None

VERSION = lark.__version__
KNOWN = ("1.2", "1.3")  # as pyproject.toml asks for
END = "$END"  # the kind of the token behind the last one
DROPPED = "-"  # begins a terminal whose token is no part of its rule's value
Step = tuple[object, object]  # Shift and a state, Reduce and a rule
Action = Callable[..., object]  # what is done with the parts of a rule, or with a token
Callbacks = dict[object, Action]


def check_version(version: str, missing: ImportError | None) -> None:
    """Raises ImportError for a Lark whose private names may be others."""
    if missing is not None or ".".join(version.split(".")[:2]) not in KNOWN:
        message = f"lark is {version}, expected {' or '.join(KNOWN)}: pip install 'lark>=1.2,<1.4'"
        raise ImportError(message) from missing


check_version(VERSION, _missing)


class PlainRule(NamedTuple):
    """name <- symbols; alias and options as Lark's grammars have them."""

    name: str
    symbols: str  # terminals in upper case, rules in lower case
    alias: str = ""
    keeps_all_tokens: bool = False
    is_expanded_alone: bool = False  # `?name`: one part stands for the whole


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


def shift(state: int) -> Step:
    """Go to a state."""
    return Shift, state


def reduction(rule: Reduction) -> Step:
    """Make a rule's value of the parts on the stack."""
    return Reduce, rule


class Token(Protocol):
    """What the machine asks of a token."""

    type: str


class Stacks(Protocol):
    """A run of the machine: the states it is in, and the value that each of them holds."""

    state_stack: list[int]
    value_stack: list[Any]  # tokens, and whatever the actions return

    def feed_token(self, token: Token, is_end: bool = ...) -> object:  # noqa: FBT001  # Lark's form
        """Shift a token after the reductions before it; the start rule's value at the end."""


def stacks(table: object, callbacks: Callbacks, start: str) -> Stacks:
    """The machine before the first token."""
    configuration = cast(Any, ParseConf)(table, callbacks, start)
    return cast(Stacks, cast(Any, ParserState)(configuration, None))


def action(rule: Rule, actions: object) -> Action:
    """The method of `actions` that a rule names, else what makes a Lark tree."""
    builder = cast(Any, ParseTreeBuilder)([rule], Tree, False, False, False)
    (made,) = cast(dict[Rule, Action], builder.create_callback(actions)).values()
    return made


def parts_of(value: object) -> object:
    """The parts of a rule that has no action of its own; of any other value, itself."""
    return value.children if isinstance(value, Tree) else value


def last_part(tree: object) -> object:
    """What follows a start rule that has no action of its own."""
    assert isinstance(tree, Tree), "no action made a value of it"
    return cast(object, tree.children[-1])


def compiled(text: str, starts: Iterable[str]) -> dict[str, object]:
    """What a grammar says, as fields of tables.Plain. States and rules are numbered in an order
    that follows from the grammar alone: Lark's own depends on the hashes of a process.
    """
    made = Lark(text, parser="lalr", lexer="basic", start=list(starts), maybe_placeholders=False)
    table: Any = cast(Any, made.parser).parser._parse_table
    rows = {s: {str(k): aim for k, (_, aim) in row.items()} for s, row in table.states.items()}
    order = _reached(rows, table.start_states)
    states = {state: number for number, state in enumerate(order)}
    written = {id(rule): _plain_rule(rule) for row in rows.values() for rule in _reduced_by(row)}
    rules = sorted(set(written.values()))
    codes = {rule: -1 - number for number, rule in enumerate(rules)}
    lines = []
    for state in order:
        kinds: dict[int, list[str]] = {}
        for kind, aim in sorted(rows[state].items()):
            code = codes[written[id(aim)]] if isinstance(aim, Rule) else states[aim]
            kinds.setdefault(code, []).append(kind)
        lines.append("; ".join(f"{code} {' '.join(kinds[code])}" for code in sorted(kinds)))
    patterns = {t.name: t.pattern for t in made.terminals}
    return {
        "starts": {name: states[state] for name, state in sorted(table.start_states.items())},
        "ends": {name: states[state] for name, state in sorted(table.end_states.items())},
        "asks": [states[s] for s in order if any(_asks(kind) for kind in rows[s])],
        "finals": [states[s] for s in order if rows[s].keys() == {END}],
        "rules": rules,
        "states": lines,
        "words": {k: p.value for k, p in sorted(patterns.items()) if isinstance(p, PatternStr)},
        "patterns": {k: p.to_regexp() for k, p in sorted(patterns.items())},
        "ignored": sorted(made.ignore_tokens),
    }


def _asks(kind: str) -> bool:
    """Whether the engine looks for it before the lexer gives a token."""
    return kind == "DICT" or kind.startswith("AS_")


def _reached(rows: dict[int, dict[str, Any]], starts: dict[str, int]) -> list[int]:
    """The states in the order in which a walk from the starts, by name, meets them."""
    order = dict.fromkeys(state for _, state in sorted(starts.items()))
    waiting = list(order)
    for state in waiting:  # it grows meanwhile
        for _, aim in sorted(rows[state].items(), key=lambda entry: entry[0]):
            if not isinstance(aim, Rule) and aim not in order:
                order[aim] = None
                waiting.append(aim)
    return waiting


def _reduced_by(row: dict[str, Any]) -> list[Rule]:
    return [aim for aim in row.values() if isinstance(aim, Rule)]


def _plain_rule(rule: Rule) -> PlainRule:
    options = rule.options
    known = RuleOptions(options.keep_all_tokens, options.expand1)
    assert vars(options) == vars(known), f"{rule}: options that the tables cannot say"
    words = " ".join(map(_word, rule.expansion))
    name, alias = str(rule.origin.name), str(rule.alias or "")
    return PlainRule(name, words, alias, options.keep_all_tokens, options.expand1)


def _word(symbol: Symbol) -> str:
    dropped = isinstance(symbol, Terminal) and symbol.filter_out
    return f"{DROPPED if dropped else ''}{symbol.name}"
