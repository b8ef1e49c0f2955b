"""Where a thing stands in a text: Source, Span, and the caret picture that errors draw.

Offsets count characters of the text; lines and columns are computed only when an error is drawn.
What is drawn went through `shown`: a text's control characters never reach a terminal.
"""

from __future__ import annotations

import re
from bisect import bisect_right

from msgspec import Struct, field


class Source(Struct, frozen=True, eq=False):
    """A named text."""

    name: str
    text: str
    _starts: list[int] = field(default_factory=list)  # of the lines, once one is asked

    def line_column(self, offset: int) -> tuple[int, int]:
        """1-based line and column of an offset (columns count characters after the last LF)."""
        offset = max(0, min(offset, len(self.text)))
        if not self._starts:
            self._starts.extend([0, *(m.end() for m in re.finditer("\n", self.text))])
        line = bisect_right(self._starts, offset)
        return line, offset - self._starts[line - 1] + 1

    def line_at(self, offset: int) -> str:
        """The whole line that holds the offset, without its LF."""
        offset = max(0, min(offset, len(self.text)))
        start = self.text.rfind("\n", 0, offset) + 1
        end = self.text.find("\n", offset)
        return self.text[start : end if end >= 0 else len(self.text)]


class Span(Struct, frozen=True):
    """A half-open range of characters of a source."""

    source: Source
    start: int
    end: int

    @property
    def line(self) -> int:
        return self.source.line_column(self.start)[0]

    @property
    def column(self) -> int:
        return self.source.line_column(self.start)[1]

    @property
    def text(self) -> str:
        return self.source.text[self.start : self.end]


def shown(text: str, kept: str = "") -> str:
    """The text with all that is not printable escaped as Python writes it, but for `kept`.

    Escapes: controls (\\x1b), marks that turn the direction of writing (\\u202e), invisible spaces
    and joiners, halves of surrogate pairs. So nothing that a text holds moves a terminal's cursor,
    or lets a line read other than it is.
    """
    odd = [c for c in set(text) if not c.isprintable() and c not in kept]
    if not odd:
        return text
    return text.translate({ord(c): c.encode("unicode_escape").decode() for c in odd})


def shown_lines(text: str) -> str:
    """The same of a text of several lines, which stay lines."""
    return shown(text, "\n\t")


WIDEST_LINE = 160  # a dump's lines may be megabytes long: only the part around the caret is drawn


def caret_picture(span: Span, label: str = "") -> str:
    """The source line with a caret under the span, as rustc draws it.

    ```
     --> bad.hlo:6:26
      |
    6 |   ROOT r = f32[2] add(p, q)
      |                          ^ f32[3]
    ```
    """
    line, column = span.source.line_column(span.start)
    text = span.source.line_at(span.start).removesuffix("\r").replace("\t", " ")
    width = max(1, min(span.end - span.start, len(text) - column + 1))
    at = column - 1
    if len(text) > WIDEST_LINE:
        left = max(0, at - WIDEST_LINE // 2)
        text = ("..." if left else "") + text[left : left + WIDEST_LINE]
        at = at - left + (3 if left else 0)
        width = min(width, max(1, len(text) - at))
    before, marked, after = (
        shown(t) for t in (text[:at], text[at : at + width], text[at + width :])
    )
    number = str(line)
    gutter = " " * len(number)
    carets = "^" * max(1, len(marked))
    rows = [
        f"{gutter}--> {shown(span.source.name)}:{line}:{column}",
        f"{gutter} |",
        f"{number} | {before}{marked}{after}",
        f"{gutter} | {' ' * len(before)}{carets} {shown(label)}".rstrip(),
    ]
    return "\n".join(rows)
