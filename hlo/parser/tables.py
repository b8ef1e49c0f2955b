"""The grammar's tables: found, or made and kept, and as the machine wants them.

    the package's file, else the cache's, else Lark --Plain (numbers and words)--> Tables

A state's row becomes a dictionary when the machine is first in that state, and a rule when it is
first reduced by: a text meets a tenth of them.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hlo.parser.grammar import FILE, digest, grammar_text, made, packaged
from hlo.parser.stacks import PlainRule, Reduction, Step
from hlo.process.once import once


class Plain(Struct, frozen=True):
    """The grammar's tables as they are kept on disk.

    starts, ends: start rule -> state. states: each row `CODE KIND KIND ...; ...`: what the
    machine does on terminals and rules: go to state CODE, or reduce by rule -1 - CODE. asks: states
    that want a marker or a DICT. finals: states that only the end can follow. words: the terminals
    that are spelled in one way; patterns: all as regular expressions; ignored: between tokens.
    """

    digest: str
    starts: dict[str, int]
    ends: dict[str, int]
    asks: list[int]
    finals: list[int]
    rules: list[PlainRule]
    states: list[str]
    words: dict[str, str]
    patterns: dict[str, str]
    ignored: list[str]


@once
def tables() -> Tables:
    """Those of HLO's grammar, when the first text is read."""
    text = grammar_text()
    name = digest(text)
    return Tables(_plain(packaged(FILE), name) or _kept(text, name))


def _kept(text: str, name: str) -> Plain:
    """The tables from the cache, which knows whom to trust; made where they are not there."""
    from hlo import cache  # an installed package has its tables

    plain = _plain(cache.load(name) or b"", name)
    if plain is None:
        data = made(text)
        cache.store(name, data)
        plain = _plain(data, name)
    assert plain is not None, "tables bear the digest of what they are made of"
    return plain


def _plain(data: bytes, name: str) -> Plain | None:
    """What data say, if they are whole and made of this grammar by this Lark."""
    try:
        plain = msgspec.json.decode(data, type=Plain)
    except msgspec.DecodeError:
        return None
    return plain if plain.digest == name else None


class _Rows(dict[int, dict[str, Step]]):
    """The states' rows, made when first looked up."""

    def __init__(self, lines: Sequence[str], rules: Sequence[PlainRule]) -> None:
        super().__init__()
        self._lines = lines
        self._rules = rules
        self._reductions: dict[int, Reduction] = {}

    def __missing__(self, state: int) -> dict[str, Step]:
        row: dict[str, Step] = {}
        line = self._lines[state]
        for part in line.split(";") if line else ():  # a text's last state goes nowhere
            code, *kinds = part.split()
            row.update(dict.fromkeys(kinds, self._step(int(code))))
        return self.setdefault(state, row)  # whole: other threads may be looking

    def _step(self, code: int) -> Step:
        if code >= 0:
            return code
        found = self._reductions.get(code) or Reduction(self._rules[-1 - code])
        return self._reductions.setdefault(code, found)


class Tables:
    """The machine's tables, what the loop wants to know of each state, and terminals."""

    def __init__(self, plain: Plain) -> None:
        self.start_states = plain.starts
        self.end_states = plain.ends
        self.states: dict[int, dict[str, Step]] = _Rows(plain.states, plain.rules)
        self.asks = frozenset(plain.asks)
        self.finals = frozenset(plain.finals)
        self.words = plain.words
        self.patterns = plain.patterns
        self.ignored = plain.ignored
