"""The standard form of a text, its comments kept: `hlo-opt fmt`.

    module, its text -> the default print form, each comment where it stood: over the instruction,
    head or closing brace that followed it, or behind the one that it stood behind

Instructions are printed one a line, so a comment from the middle of one moves behind it.
"""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator

from msgspec import Struct, field

from hlo.ir.module import Module
from hlo.parser.comments import Comment, comments
from hlo.parser.lexer import END, Lexer, Token
from hlo.printer.options import PrintOptions

# What a printed line is: ("header",), ("head", computation), ("end", computation), or an
# instruction ("in", computation, name); ("file end",) stands behind the last line.
Anchor = tuple[str, ...]
HEADER: Anchor = ("header",)
FILE_END: Anchor = ("file end",)
_HEAD = re.compile(r"(?:ENTRY )?%?([^\s({]+) .*\{$")
_INSTRUCTION = re.compile(r"  (?:ROOT )?%?([^\s=]+) = ")

_NAME = re.compile(r"(?:ROOT\s+)?%?([^\s=,(){}]+)\s*=")


class _Kept(Struct):
    """The comments of one printed line."""

    over: list[Comment] = field(default_factory=list)
    behind: list[Comment] = field(default_factory=list)


def formatted(module: Module) -> tuple[str, list[Comment]]:
    """The text of a module that was read from one, and the comments that found no place in it."""
    if module.source is None:
        return str(module), []
    found = comments(module.source.text)
    module = _as_named(module)
    text = module.to_text(PrintOptions(as_written=True))
    if not found:
        return text, []
    kept = _placed(found, _Marks(module))
    lines = list(_with_comments(text, kept))
    return "\n".join(lines), [c for k in kept.values() for c in (*k.over, *k.behind)]


def _as_named(module: Module) -> Module:
    """A copy whose instructions have the names of the text: reading makes them unique in the whole
    module, where the language asks for that within a computation only.
    """
    named = module.clone()
    for computation in named.computations:
        for instruction in computation.instructions:
            source = instruction.source
            match = None if source is None else _NAME.match(source.text, instruction.start)
            instruction.name = match[1] if match else instruction.name
        names = [i.name for i in computation.instructions]
        if len(set(names)) != len(names):  # of instructions that reading has made
            return module
    return named


class _Marks:
    """Where the text of each anchor begins and ends."""

    def __init__(self, module: Module) -> None:
        assert module.source is not None, "comments have a text"
        self.text = module.source.text
        self.anchors: list[tuple[int, int, Anchor]] = []
        last_end = self._header()
        for name, instructions in _by_computation(module):
            first, last = instructions[0], instructions[-1]
            head = self._head_start(last_end, first[0])
            if head is not None:
                self.anchors.append((head, self._token_before(head, first[0]), ("head", name)))
            self.anchors += [(start, end, ("in", name, n)) for start, end, n in instructions]
            closing = Lexer(self.text).token(last[1])
            last_end = last[1]
            if closing.type == "RBRACE":
                last_end = closing.end_pos
                self.anchors.append((closing.start_pos, last_end, ("end", name)))
        self.anchors.sort()
        self.starts = [place[0] for place in self.anchors]

    def over(self, comment: Comment) -> Anchor:
        """What follows a comment."""
        at = bisect_left(self.starts, comment.end)
        return self.anchors[at][2] if at < len(self.anchors) else FILE_END

    def around(self, comment: Comment) -> Anchor | None:
        """What a comment stands in, or behind on the same line."""
        at = bisect_right(self.starts, comment.start) - 1
        if at < 0:
            return None
        _, end, anchor = self.anchors[at]
        inside = comment.start < end or "\n" not in self.text[end : comment.start]
        return anchor if inside else None

    def _header(self) -> int:
        token = Lexer(self.text).token(0)
        if token.type != "HLO_MODULE":
            return 0
        line = self.text.find("\n", token.end_pos)
        end = len(self.text) if line < 0 else line
        self.anchors.append((token.start_pos, end, HEADER))
        return token.end_pos

    def _head_start(self, at: int, first: int) -> int | None:
        """The first token of the last line before `first` on which a name could begin a head."""
        start = None
        for token in self._tokens(at, first):
            line = self.text.rfind("\n", 0, token.start_pos) + 1
            begins = not self.text[line : token.start_pos].strip()
            if begins and token.type in ("ENTRY", "NAME", "IDENT"):
                start = token.start_pos
        return start

    def _token_before(self, at: int, limit: int) -> int:
        return max((t.end_pos for t in self._tokens(at, limit)), default=at)

    def _tokens(self, at: int, limit: int) -> Iterator[Token]:
        lexer, previous = Lexer(self.text), ""
        while (token := lexer.token(at, previous)).type != END and token.start_pos < limit:
            yield token
            at, previous = token.end_pos, token.type


def _by_computation(module: Module) -> list[tuple[str, list[tuple[int, int, str]]]]:
    """Computations in the order of the text with their written instructions (start, end, name).

    What was written inside another instruction (inline bodies, nested operands) is left out.
    """
    found = []
    for computation in module.computations:
        written = sorted(
            (i.start, i.end, i.name)
            for i in computation.instructions
            if i.source is module.source and i.start >= 0
        )
        if written:
            found.append((computation.name, written))
    found.sort(key=lambda item: item[1][0])
    outer: list[tuple[str, list[tuple[int, int, str]]]] = []
    reached = -1
    for name, written in found:
        kept = []
        for start, end, instruction in written:
            if start >= reached:
                kept.append((start, end, instruction))
                reached = end
        if kept:
            outer.append((name, kept))
    return outer


def _placed(found: Iterable[Comment], marks: _Marks) -> dict[Anchor, _Kept]:
    kept: dict[Anchor, _Kept] = defaultdict(_Kept)
    for comment in found:
        around = marks.around(comment)
        if around is not None and not (comment.starts_line and around == HEADER):
            kept[around].behind.append(comment)
        else:
            kept[marks.over(comment)].over.append(comment)
    return kept


def _with_comments(text: str, kept: dict[Anchor, _Kept]) -> Iterator[str]:
    """The printed lines with the comments of their anchors, which are taken out of `kept`."""
    computation = ""
    *lines, _ = text.split("\n")
    for line in lines:
        head, instruction = _HEAD.match(line), _INSTRUCTION.match(line)
        anchor: Anchor | None = None
        if line.startswith("HloModule "):
            anchor = HEADER
        elif instruction is not None:
            anchor = ("in", computation, instruction[1])
        elif head is not None:
            computation = head[1]
            anchor = ("head", computation)
        elif line.startswith("}"):
            anchor = ("end", computation)
        mine = kept.pop(anchor, _Kept()) if anchor is not None else _Kept()
        indent = "  " if anchor is not None and anchor[0] in ("in", "end") else ""
        yield from (indent + c.text for c in mine.over)
        yield line + _behind(mine.behind)
    yield from (c.text for c in kept.pop(FILE_END, _Kept()).over)
    yield ""


def _behind(found: list[Comment]) -> str:
    """Comments at the end of a line: one to the line's end must stand last."""
    blocks = [c.text for c in found if c.text.startswith("/*")]
    lines = [c.text for c in found if not c.text.startswith("/*")]
    if len(lines) > 1:
        lines = [lines[0], *(text.lstrip("/") for text in lines[1:])]
    return "".join("  " + text for text in blocks) + ("  " + " ".join(lines) if lines else "")
