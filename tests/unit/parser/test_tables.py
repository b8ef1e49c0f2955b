"""The tables beside the grammar say what Lark's say."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from lark import Lark  # noqa: TID251  # whose tables are compared
from lark.grammar import Rule  # noqa: TID251

import hlo.parser
from hlo.parser import grammar, tables
from hlo.parser.tables import Plain, Reduction, Tables

ROOT = Path(__file__).resolve().parents[3]
SMALL = """
start: "A" item* | other -> named
item: "B" | "C" start
?other: AS_X "D"
AS_X: "x"
"""
STARTS = ("start", "item")
FOLDER = Path(hlo.parser.__file__).parent


def lark(text: str, starts: tuple[str, ...]) -> Lark:
    return Lark(text, parser="lalr", lexer="basic", start=list(starts), maybe_placeholders=False)


@pytest.mark.parametrize(
    ("text", "starts"), [(SMALL, STARTS), (grammar.grammar_text(), grammar.STARTS)]
)
def test_each_step_is_larks(text: str, starts: tuple[str, ...]) -> None:
    """Walks both machines from each start: the same kinds, steps and rules at every state."""
    made = lark(text, starts)
    larks = made.parser.parser._parse_table  # type: ignore[attr-defined]  # Lark says no more
    ours = Tables(grammar.plain(made))
    pairs = {larks.start_states[name]: ours.start_states[name] for name in starts}
    waiting = list(pairs)
    for state in waiting:
        row = ours.states[pairs[state]]
        assert row is ours.states[pairs[state]]
        assert row.keys() == larks.states[state].keys()
        for kind, (action, target) in larks.states[state].items():
            own, aim = row[kind]
            assert own is action
            if isinstance(target, Rule):
                assert isinstance(aim, Reduction)
                same_rule(aim, target)
            elif target in pairs:
                assert aim == pairs[target]
            else:
                assert isinstance(aim, int)
                pairs[target] = aim
                waiting.append(target)
    assert sorted(pairs) == sorted(larks.states)
    assert len(set(pairs.values())) == len(pairs)
    assert {n: pairs[s] for n, s in larks.end_states.items()} == ours.end_states
    asking = {s for s, row in larks.states.items() if any(asks(kind) for kind in row)}
    assert ours.asks == {pairs[s] for s in asking}
    assert ours.finals == {pairs[s] for s, row in larks.states.items() if set(row) == {"$END"}}


def asks(kind: str) -> bool:
    return kind == "DICT" or kind.startswith("AS_")


def same_rule(ours: Reduction, larks: Rule) -> None:
    rule = ours.rule()
    assert (ours.origin.name, len(ours.expansion)) == (larks.origin.name, len(larks.expansion))
    assert rule == larks
    assert [s.fullrepr for s in rule.expansion] == [s.fullrepr for s in larks.expansion]
    assert rule.alias == larks.alias
    assert vars(rule.options) == vars(larks.options)


def test_the_file_is_the_grammars() -> None:
    """What is committed is what `python -m hlo.parser.grammar` writes."""
    text = grammar.file_text(grammar.compiled(grammar.grammar_text()))
    is_same = (FOLDER / tables.FILE).read_text() == text
    assert is_same, "run python -m hlo.parser.grammar"
    assert isinstance(tables.kept(), Plain)


def test_the_file_is_the_same_for_every_order_of_sets() -> None:
    """Lark walks through sets: another seed of hashes, another numbering of its states."""
    code = (
        "import sys; from hlo.parser import grammar as g; "
        f"sys.stdout.write(g.file_text(g.compiled({SMALL!r}, {STARTS!r})))"
    )
    texts = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=ROOT,
            capture_output=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(texts) == 1


def test_reductions_by_a_word_of_their_names() -> None:
    found = Tables(grammar.compiled(SMALL, STARTS)).reductions("other")
    assert [r.name for r in found] == ["other"]


def test_wheels_hold_all_that_the_package_reads() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    globs = settings["tool"]["setuptools"]["package-data"]["hlo"]
    held = {path for glob in globs for path in (ROOT / "hlo").glob(glob)}
    others = {
        p for p in (ROOT / "hlo").rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")
    }
    assert others == held
