"""The grammar's tables say what Lark's say, are those of this grammar, and run as Lark's."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import msgspec
import pytest
from lark import Lark, Token, UnexpectedInput  # noqa: TID251  # whose tables are compared
from lark.grammar import Rule, RuleOptions, Terminal  # noqa: TID251
from lark.parsers.lalr_analysis import Reduce  # noqa: TID251

from hlo import cache
from hlo.parser import grammar, tables
from hlo.parser.engine import callbacks_for
from hlo.parser.lark_machine import check_version
from hlo.parser.stacks import DROPPED, END, PlainRule, Reduction, Stacks, UnexpectedToken
from hlo.parser.tables import Plain, Tables
from tests.support.attribute_kinds import all_kinds

ROOT = Path(__file__).resolve().parents[3]
SMALL = """
start: "A" item* | other -> named
item: "B" | "C" start
?other: AS_X "D"
AS_X: "x"
"""
STARTS = ("start", "item")


def decoded(data: bytes) -> Plain:
    return msgspec.json.decode(data, type=Plain)


def lark(text: str, starts: tuple[str, ...]) -> Lark:
    return Lark(text, parser="lalr", lexer="basic", start=list(starts), maybe_placeholders=False)


@pytest.mark.parametrize(
    ("text", "starts"), [(SMALL, STARTS), (grammar.grammar_text(), grammar.STARTS)]
)
def test_each_step_is_larks(text: str, starts: tuple[str, ...]) -> None:
    """Walks both machines from each start: the same kinds, steps and rules at every state."""
    made = lark(text, starts)
    larks = made.parser.parser._parse_table  # type: ignore[attr-defined]  # Lark says no more
    ours = Tables(decoded(grammar.made(text, starts)))
    pairs = {larks.start_states[name]: ours.start_states[name] for name in starts}
    waiting = list(pairs)
    for state in waiting:
        row = ours.states[pairs[state]]
        assert row is ours.states[pairs[state]]
        assert row.keys() == larks.states[state].keys()
        for kind, (action, target) in larks.states[state].items():
            aim = row[kind]
            assert isinstance(aim, Reduction) == (action is Reduce)
            if isinstance(target, Rule):
                assert isinstance(aim, Reduction)
                assert aim.size == len(target.expansion)
                same_rule(aim.plain, target)
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


def same_rule(ours: PlainRule, larks: Rule) -> None:
    options = RuleOptions(ours.keeps_all_tokens, ours.is_expanded_alone)
    assert (ours.name, ours.alias) == (larks.origin.name, larks.alias or "")
    assert vars(options) == vars(larks.options)
    for word, symbol in zip(ours.symbols.split(), larks.expansion, strict=True):
        dropped = isinstance(symbol, Terminal) and symbol.filter_out
        assert word == (DROPPED if dropped else "") + symbol.name


SHAPES = """
start: _many ";" | one
_many: item | _many "," item
one: "!" PLUS? (ITEM "+")* -> single
?item: ITEM | "(" _many ")" | "[" item "]" -> boxed
!kept: "{" ITEM "}"
     | start
PLUS: "+"
ITEM: /[a-z]/
"""


class Read:
    """A token, as Lark's lexer cut it."""

    def __init__(self, type: str, value: str) -> None:
        self.type = type
        self.value = value


def ours_of(text: str) -> object:
    """The tree that our stacks make of what Lark's lexer reads."""
    table = Tables(decoded(grammar.made(SHAPES, ["kept"])))
    machine = Stacks(table, callbacks_for(object()), "kept")
    for token in lark(SHAPES, ("kept",)).lex(text):
        machine.feed_token(Read(token.type, str(token)))
    return plain(machine.feed_token(Read(END, ""), is_end=True))


def plain(value: object) -> object:
    """A tree of either as nested tuples."""
    if isinstance(value, Read | Token):
        return str(getattr(value, "value", value))
    return (value.data, *map(plain, value.children))  # type: ignore[attr-defined]  # a tree


@pytest.mark.parametrize(
    "text", ["a;", "a,b,c;", "(a);", "(a,b),c;", "[a],([b,c]);", "!", "!+", "!a+b+", "{a}", "[[a]]"]
)
def test_the_stacks_make_larks_trees(text: str) -> None:
    """Repetitions, options, inlined rules, aliases, kept tokens, rules that stand for a part."""
    try:
        expected = plain(lark(SHAPES, ("kept",)).parse(text))
    except UnexpectedInput:
        with pytest.raises(UnexpectedToken):
            ours_of(text)
    else:
        assert ours_of(text) == expected


def test_lark_numbers_its_states_otherwise_each_time_and_the_walk_finds_them_all() -> None:
    made = lark(SMALL, STARTS)
    states = made.parser.parser._parse_table.states  # type: ignore[attr-defined]  # Lark says no more
    assert len(decoded(grammar.made(SMALL, STARTS)).states) == len(states)


def test_every_kind_has_its_rule_among_the_values() -> None:
    values = tables.tables().states
    markers = {k for state in tables.tables().asks for k in values[state] if k.startswith("AS_K")}
    assert markers == {grammar.marker(kind.rule) for kind in all_kinds()}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, no file in the package, and nothing remembered."""
    monkeypatch.setenv("HLO_CACHE_DIR", str(tmp_path / "kept"))
    monkeypatch.setattr(tables, "FILE", "no tables.json")
    tables.tables.cache_clear()
    yield tmp_path / "kept"
    tables.tables.cache_clear()


def making(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is asked of Lark from here on."""
    asked: list[str] = []

    def made(text: str) -> bytes:
        asked.append(text)
        return grammar.made(text)

    monkeypatch.setattr(tables, "made", made)
    return asked


def test_tables_are_made_once_and_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = making(monkeypatch)
    first = tables.tables()
    tables.tables.cache_clear()
    assert tables.tables().end_states == first.end_states
    assert len(asked) == 1
    (kept,) = folder.iterdir()
    assert kept.name == grammar.digest(grammar.grammar_text())


def test_tables_that_others_may_write_are_made_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = making(monkeypatch)
    tables.tables()
    folder.chmod(0o777)
    tables.tables.cache_clear()
    tables.tables()
    assert len(asked) == 2


@pytest.mark.parametrize("old", [b"", b"{}", b"\xff", grammar.made(SMALL, STARTS)])
def test_a_file_of_another_grammar_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, old: bytes
) -> None:
    asked = making(monkeypatch)
    monkeypatch.setattr(tables, "packaged", lambda name: old)
    cache.store(grammar.digest(grammar.grammar_text()), old)
    assert "module_text" in tables.tables().start_states
    assert len(asked) == 1


@pytest.mark.usefixtures("folder")
def test_a_file_of_this_grammar_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = making(monkeypatch)
    data = grammar.made(grammar.grammar_text())
    monkeypatch.setattr(tables, "packaged", lambda name: data)
    assert "module_text" in tables.tables().start_states
    assert asked == []


@pytest.mark.parametrize(
    ("version", "missing"),
    [("1.1.9", None), ("1.20.0", None), ("2.0", None), ("1.3.1", ImportError("no Shift"))],
)
def test_an_unknown_lark_is_named(version: str, missing: ImportError | None) -> None:
    with pytest.raises(ImportError, match=f"lark is {version}, expected 1.2 or 1.3"):
        check_version(version, missing)


def test_a_build_makes_the_tables(tmp_path: Path) -> None:
    """Of a tree as bare as its files need; no other third party than Lark is there."""
    pytest.importorskip("setuptools")
    shutil.copytree(ROOT / "hlo" / "parser", tmp_path / "hlo" / "parser")
    shutil.copy(ROOT / "hlo" / "hashing.py", tmp_path / "hlo")
    (tmp_path / "hlo" / "parser" / grammar.FILE).unlink(missing_ok=True)
    (tmp_path / "hlo" / "__init__.py").write_text("raise ImportError")
    shutil.copy(ROOT / "setup.py", tmp_path)
    subprocess.run(
        [sys.executable, "setup.py", "-q", "build_py", "--build-lib", "built"],
        cwd=tmp_path,
        capture_output=True,
        check=True,
    )
    data = (tmp_path / "built" / "hlo" / "parser" / grammar.FILE).read_bytes()
    assert decoded(data).digest == grammar.digest(grammar.grammar_text())


def test_the_data_are_the_same_for_every_order_of_sets() -> None:
    """Lark walks through sets: another seed of hashes, another numbering of its states."""
    code = (
        "import sys; from hlo.parser import grammar as g; "
        f"sys.stdout.buffer.write(g.made({SMALL!r}, {STARTS!r}))"
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


def test_wheels_hold_all_that_the_package_reads() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    globs = settings["tool"]["setuptools"]["package-data"]["hlo"]
    held = {path for glob in globs for path in (ROOT / "hlo").glob(glob)}
    others = {
        p for p in (ROOT / "hlo").rglob("*") if p.is_file() and p.suffix not in (".py", ".pyc")
    }
    assert others == held
