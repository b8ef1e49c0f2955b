"""Names in HLO text, half-written text too: definitions, uses, outline, hover, completion."""

from __future__ import annotations

import pytest

from hlo.errors import HloError
from hlo.tools.editors.editing import Document, problems

TEXT = """HloModule m, entry_computation_layout={(f32[4]{0})->f32[]}

%add (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)  // %a is no use here
  ROOT %add.1 = f32[] add(%a, %b), metadata={op_name="%a"}
}

plain {
  a = f32[4]{0} parameter(0)
  add = f32[4] add(a, a)
  ROOT r = f32[4] negate(add),
    control-predecessors={a}
}

ENTRY %main (x: f32[4]) -> f32[] {
  %x = f32[4]{0} parameter(0)
  %c = f32[4]{0} call(%x), to_apply=%plain
  %zero = f32[] constant(0)
  ROOT %a = f32[] reduce(%c, %zero), dimensions={0}, to_apply=%add
}
"""


def at(text: str, line: int, word: str, nth: int = 0) -> int:
    """The offset of a word in a line, counted from 1."""
    start = sum(len(row) + 1 for row in text.split("\n")[: line - 1])
    for _ in range(nth + 1):
        start = text.index(word, start) + 1
    return start - 1


def lines(document: Document, offset: int) -> list[int]:
    return [document.text.count("\n", 0, u.start) + 1 for u in document.references(offset)]


@pytest.mark.parametrize(
    ("line", "word", "nth", "found"),
    [
        (6, "%a,", 0, [4, 6]),
        (20, "%a ", 0, [20]),
        (20, "%add", 0, [3, 20]),
        (18, "%plain", 0, [9, 18]),
        (11, "a,", 0, [10, 11, 11, 13]),
        (12, "add)", 0, [11, 12]),
        (13, "a}", 0, [10, 11, 11, 13]),
        (20, "%c", 0, [18, 20]),
    ],
)
def test_a_name_is_found_where_it_is_meant(
    line: int, word: str, nth: int, found: list[int]
) -> None:
    document = Document(TEXT)
    assert lines(document, at(TEXT, line, word, nth)) == found
    definition = document.definition(at(TEXT, line, word, nth))
    assert definition is not None
    assert TEXT.count("\n", 0, definition.start) + 1 == found[0]


def test_the_bound_of_a_size_is_no_key() -> None:
    text = "ENTRY e {\n  p = f32[<=6] parameter(0)\n  ROOT n = f32[<=6] negate(p)\n}"
    assert lines(Document(text), at(text, 2, "p")) == [2, 3]


def test_nothing_is_found_in_comments_strings_opcodes_and_keys() -> None:
    document = Document(TEXT)
    for line, word in ((5, "%a is"), (6, '%a"'), (11, "add(a"), (20, "dimensions"), (6, "op_name")):
        assert document.use_at(at(TEXT, line, word) + 1) is None, word


def test_a_new_name_goes_everywhere_and_nowhere_else() -> None:
    document = Document(TEXT)
    changed = TEXT
    for start, end, text in reversed(document.renamed(at(TEXT, 20, "%add"), "%sum")):
        changed = changed[:start] + text + changed[end:]
    assert changed == TEXT.replace("%add (a", "%sum (a").replace("to_apply=%add", "to_apply=%sum")
    assert problems(changed, "m.hlo") == problems(TEXT, "m.hlo")
    for name, code in (("plain", "duplicate-name"), ("1x", "syntax"), ("a b", "syntax")):
        with pytest.raises(HloError) as raised:
            document.renamed(at(TEXT, 20, "%add"), name)
        assert raised.value.code == code
    with pytest.raises(HloError, match="no instruction"):
        document.renamed(at(TEXT, 1, "HloModule"), "x")


def test_outline() -> None:
    rows = Document(TEXT).outline
    assert [row.name for row in rows] == ["add", "plain", "main"]
    assert [row.name for row in rows[1].inside] == ["a", "add", "r"]
    assert rows[2].inside[0].detail == "f32[4]{0} parameter(0)"
    assert TEXT[rows[0].start : rows[0].end].endswith("}")


def test_hover_shows_the_definition_and_the_opcodes_page() -> None:
    document = Document(TEXT)
    text, start, end = document.hover(at(TEXT, 20, "%c")) or ("", 0, 0)
    assert "%c = f32[4]{0} call(%x), to_apply=%plain" in text
    assert TEXT[start:end] == "%c"
    text, start, end = document.hover(at(TEXT, 20, "reduce")) or ("", 0, 0)
    assert "reduce (" in text
    assert TEXT[start:end] == "reduce"
    assert document.hover(at(TEXT, 1, "HloModule")) is None


@pytest.mark.parametrize(
    ("line", "wanted", "unwanted"),
    [
        ("  %y = f32[4]{0} ta", {"tanh", "add"}, set()),
        ("  %y = (f32[4], s32[]) tu", {"tuple"}, set()),
        ("  %y = f32[4]{0} tanh(%", {"x", "c"}, {"a", "b"}),
        ("  %y = f32[4]{0} add(%x, ", {"x", "c"}, {"tanh"}),
        ("  %y = f32[] reduce(%c, %zero), dim", {"dimensions=", "to_apply=", "metadata="}, {"x"}),
        ("  %y = f32", set(), {"tanh"}),
    ],
)
def test_completions(line: str, wanted: set[str], unwanted: set[str]) -> None:
    text = TEXT.replace("  ROOT %a = f32[] reduce", line + "\n  ROOT %a = f32[] reduce")
    offset = text.index(line) + len(line)
    found = {c.label for c in Document(text).completions(offset)}
    assert wanted <= found
    assert not unwanted & found


def test_problems_have_places_and_half_a_text_has_names() -> None:
    assert [p.severity for p in problems(TEXT, "m.hlo")] == []
    bad = TEXT.replace("negate(add)", "negat(add)").replace(
        "f32[4]{0} call(%x)", "f32[5]{0} call(%x)"
    )
    (first, *_) = problems(bad, "m.hlo")
    assert (first.code, bad[first.start : first.end]) == ("unknown-opcode", "negat")
    half = (
        TEXT[: TEXT.index("ENTRY")]
        + "ENTRY %main {\n  %x = f32[4]{0} parameter(0)\n  %y = f32[4]{0} tanh(%x"
    )
    assert problems(half, "m.hlo")
    document = Document(half)
    assert lines(document, half.rindex("%x")) == [17, 18]


@pytest.mark.parametrize("cut", range(0, len(TEXT), 7))
def test_no_part_of_a_text_is_too_broken(cut: int) -> None:
    for text in (TEXT[:cut], TEXT[cut:], TEXT[:cut] + TEXT[cut + 1 :]):
        document = Document(text)
        assert document.outline is not None
        for offset in range(0, len(text), 13):
            document.hover(offset)
            document.completions(offset)
        problems(text, "part.hlo")
