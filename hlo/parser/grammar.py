"""The grammar, and what Lark makes of it: `python -m hlo.parser.grammar` writes tables.json.

    hlo.lark + outline.lark + attributes.lark + one `value` alternative per attribute kind
        --Lark--> LALR tables --plain--> tables.json

A process that parses reads the file alone (tables.py). States and rules are numbered in an order
that follows from the grammar, so that every version of Lark gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from lark import Lark
from lark.grammar import Rule, RuleOptions, Symbol, Terminal
from msgspec.structs import astuple, fields

from hlo.parser.kinds import all_kinds, marker
from hlo.parser.lexer import END
from hlo.parser.tables import DROPPED, FILE, Plain, PlainRule

STARTS = (
    "module_text",
    "computations_text",
    "instruction_text",
    "header_prefix",
    "tables_prefix",
    "computation_prefix",
    "instruction_prefix",
    "operands_text",
    "attributes_text",
    "literal_text",
    "shape_text",
    "outline",
)


def grammar_text() -> str:
    """The whole grammar: the files, and `value` with an alternative for every kind."""
    folder = resources.files("hlo.parser")
    parts = [(folder / f).read_text() for f in ("hlo.lark", "outline.lark", "attributes.lark")]
    rules = sorted({kind.rule for kind in all_kinds()})
    values = "\n     | ".join(f"{marker(rule)} {rule}" for rule in rules)
    parts.append(f"value: {values}\n")
    parts += [f"{marker(rule)}: /as {rule}/\n" for rule in rules]
    return "\n".join(parts)


def compiled(text: str, starts: Sequence[str] = STARTS) -> Plain:
    """The tables of a grammar, from Lark."""
    return plain(
        Lark(text, parser="lalr", lexer="basic", start=list(starts), maybe_placeholders=False)
    )


def plain(grammar: Lark) -> Plain:
    """What the machine needs of a grammar."""
    table: Any = grammar.parser.parser._parse_table  # Lark offers no public door to its tables
    rows = {s: {str(k): aim for k, (_, aim) in row.items()} for s, row in table.states.items()}
    order = _reached(rows, table.start_states)
    states = {state: number for number, state in enumerate(order)}
    written = {id(rule): _plain_rule(rule) for r in rows.values() for rule in _reduced_by(r)}
    rules = sorted(set(written.values()), key=astuple)
    codes = {rule: -1 - number for number, rule in enumerate(rules)}
    asks, finals, lines = [], [], []
    for state in order:
        kinds: dict[int, list[str]] = {}
        for kind, aim in sorted(rows[state].items()):
            code = codes[written[id(aim)]] if isinstance(aim, Rule) else states[aim]
            kinds.setdefault(code, []).append(kind)
        lines.append("; ".join(f"{code} {' '.join(kinds[code])}" for code in sorted(kinds)))
        if any(kind == "DICT" or kind.startswith("AS_") for kind in rows[state]):
            asks.append(states[state])
        if rows[state].keys() == {END}:
            finals.append(states[state])
    starts = {name: states[state] for name, state in sorted(table.start_states.items())}
    ends = {name: states[state] for name, state in sorted(table.end_states.items())}
    return Plain(starts, ends, asks, finals, rules, lines)


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
    assert vars(options) == vars(known), f"{rule}: options that tables.json cannot say"
    words = " ".join(map(_word, rule.expansion))
    name, alias = str(rule.origin.name), str(rule.alias or "")
    return PlainRule(name, words, alias, options.keep_all_tokens, options.expand1)


def _word(symbol: Symbol) -> str:
    dropped = isinstance(symbol, Terminal) and symbol.filter_out
    return f"{DROPPED if dropped else ''}{symbol.name}"


def file_text(tables: Plain) -> str:
    """The file's text: JSON, a line for each rule and each state."""
    parts = []
    for field in fields(Plain):
        value = getattr(tables, field.name)
        if field.name in ("rules", "states"):
            rows = [json.dumps(row if isinstance(row, str) else astuple(row)) for row in value]
            parts.append(f'"{field.name}": [\n' + ",\n".join(rows) + "\n]")
        else:
            parts.append(f'"{field.name}": {json.dumps(value)}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_text(file_text(compiled(grammar_text())))
