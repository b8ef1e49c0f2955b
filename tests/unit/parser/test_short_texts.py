"""Short texts: the first are read token by token, those that follow line by line."""

from __future__ import annotations

import pytest

import hlo
from hlo.parser import parse

TEXT = """HloModule m, entry_computation_layout={(f32[4]{0})->f32[4]{0}}

ENTRY e {
  x = f32[4]{0} parameter(0)
  two = f32[] constant(2)
  twos = f32[4]{0} broadcast(two), dimensions={}
  ROOT r = f32[4]{0} multiply(x, twos)
}
"""
assert len(TEXT) < parse.SMALL


@pytest.fixture
def fast(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What was read line by line in a process that has read nothing."""
    found: list[str] = []
    before = parse.fast

    def told(source, start):
        found.append(source.name)
        return before(source, start)

    monkeypatch.setattr(parse, "_READ", parse._Read())
    monkeypatch.setattr(parse, "fast", told)
    return found


def test_those_that_follow_the_first_are_read_by_lines(fast: list[str]) -> None:
    modules = [parse.parse(TEXT, name) for name in "abcd"]
    assert fast == ["c", "d"]
    assert len({str(m) for m in modules}) == 1
    spans = [[(i.span.start, i.span.end) for i in m.entry.instructions] for m in modules]
    assert spans[0] == spans[-1]


def test_errors_have_their_places_either_way(fast: list[str]) -> None:
    said = []
    for name in "abcd":
        with pytest.raises(hlo.HloError) as error:
            parse.parse(TEXT.replace("multiply", "multply"), name)
        said.append((error.value.code, error.value.line, error.value.column))
    assert fast == ["c", "d"]
    assert len(set(said)) == 1


def test_one_instruction_is_read_by_tokens(fast: list[str]) -> None:
    for name in "abcd":
        parse.parse("a = f32[] constant(1)", name)
    assert fast == []
