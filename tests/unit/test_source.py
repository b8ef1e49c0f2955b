"""Drawing texts: nothing of them moves a terminal's cursor, and carets stand under their spans."""

from __future__ import annotations

import random
import sys

import pytest

from hlo.errors import HloError, Note
from hlo.source import Source, Span, caret_picture, shown, shown_lines

ODD = (
    "\x00\x07\b\v\f\r\x1b\x7f\x85\x9b\xa0\xad\u061c\u200b\u200e\u2028\u202e\u2066\u2069\ufeff\udc80"
)
ODD += "\U000e0041"


def test_every_character() -> None:
    """What is shown is printable, and the printable is shown as it is."""
    every = list(map(chr, (*range(0x12000), *range(0xE0000, 0xE0200), sys.maxunicode)))
    printable = "".join(c for c in every if c.isprintable())
    assert shown(printable) is printable
    for start in range(0, len(every), 4096):
        assert shown("".join(every[start : start + 4096])).isprintable()
    assert shown("\0\x1b\x7f\x9b\u202e") == r"\x00\x1b\x7f\x9b\u202e"


def test_lines_stay_lines() -> None:
    assert shown_lines("a\n\tb\x1b[2J\r\n") == "a\n\tb\\x1b[2J\\r\n"
    assert shown("a\nb\tc") == "a\\nb\\tc"


@pytest.mark.parametrize("seed", range(40))
def test_carets_stand_under_the_span(seed: int) -> None:
    rng = random.Random(seed)
    letters = "abc \t" + ODD
    text = "".join(rng.choices(letters, k=rng.choice([12, 60, 900]))).replace("\r", "\x1b") + "x"
    start = rng.randrange(len(text))
    end = rng.randrange(start, len(text)) + 1
    source = Source("f\x1b]0;t\x07\n", f"one\n{text}\r\n")
    picture = caret_picture(Span(source, start + 4, end + 4), "l\x9b")
    place, _, line, carets = picture.split("\n")
    assert picture.replace("\n", "").isprintable()
    assert place == rf" --> f\x1b]0;t\x07\n:2:{start + 1}"
    at, width = carets.index("^"), carets.count("^")
    marked = shown(text[start:end].replace("\t", " "))
    assert marked.startswith(line[at : at + width])
    assert line[at : at + width] == marked or line.endswith(line[at : at + width])


def test_the_end_of_a_line_has_a_caret() -> None:
    for ending in ("\n", "\r\n"):
        *_, line, carets = caret_picture(Span(Source("f", f"ab{ending}"), 2, 3)).split("\n")
        assert (line, carets) == ("1 | ab", "  |   ^")


def test_errors_are_shown_and_their_fields_are_as_they_are() -> None:
    span = Span(Source("f", f"p{ODD}"), 0, 2)
    error = HloError("x", f"m{ODD}", span, label=ODD, notes=[Note(ODD, span)], help=ODD)
    assert str(error).replace("\n", "").isprintable()
    assert error.message == f"m{ODD}"
    assert len(str(error).split("\n")) == 11
