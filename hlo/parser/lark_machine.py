"""Tables: the one file that knows Lark, which makes them, and the only one with its private names.

    grammar --compiled--> tables as plain data --tables.py--> rows of steps

Lark has no public door to the tables, so the versions that this file was written for are checked
when it is imported, which is when tables are made: at a build, or once for a grammar that is new.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import lark

from hlo.parser.stacks import DROPPED, END, PlainRule

try:
    from lark import Lark
    from lark.grammar import Rule, RuleOptions, Symbol, Terminal
    from lark.lexer import PatternStr
except ImportError as reason:
    _missing: ImportError | None = reason
else:
    _missing = None

VERSION = lark.__version__
KNOWN = ("1.2", "1.3")  # as pyproject.toml asks for


def check_version(version: str, missing: ImportError | None) -> None:
    """Raises ImportError for a Lark whose private names may be others."""
    if missing is not None or ".".join(version.split(".")[:2]) not in KNOWN:
        message = f"lark is {version}, expected {' or '.join(KNOWN)}: pip install 'lark>=1.2,<1.4'"
        raise ImportError(message) from missing


check_version(VERSION, _missing)


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
