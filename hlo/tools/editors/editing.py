"""editing: what an editor asks of HLO text, half-written text too.

    text --Document--> names and where they are defined and used, outline, completions
    text --problems--> errors and warnings with their places

Names are found by a scan that knows strings, comments, braces and no grammar, so that a text with
errors has them too. Places are offsets of characters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator

from msgspec import Struct

from hlo import driver
from hlo.errors import HloError, HloErrors
from hlo.ir.instruction import CALLING_ATTRIBUTES
from hlo.ops.instruction_attributes import INSTRUCTION_ATTRS
from hlo.ops.listing import explain_op
from hlo.ops.table import OPS
from hlo.process.once import cached_property, lock
from hlo.source import Span

ERROR, WARNING = "error", "warning"
MOST_COMPLETIONS = 500
_IDENT = r"[A-Za-z_][\w.\-]*"
_NAME = re.compile(rf"{_IDENT}\Z")
_TOKEN = re.compile(
    r"(?P<comment>/\*.*?(?:\*/|\Z)|//[^\n]*)"
    r"|(?P<string>\"(?:\\.|[^\"\\\n])*(?:\"|(?=\n)|\Z))"
    rf"|(?P<name>%?{_IDENT})"
    r"|(?P<bound><=)"  # of a size, or of an iota: it defines nothing
    r"|(?P<sign>[{}()=,\n]|->)",
    re.DOTALL,
)
_DEFINITION = re.compile(rf"[ \t]*(?:ROOT[ \t]+)?(%?{_IDENT})[ \t]*=")
_HEAD = re.compile(
    rf"[ \t]*(?:ENTRY[ \t]+)?(%?{_IDENT})[ \t]*(?:\([^\n]*\)[ \t]*->[^\n]*)?\{{[ \t\r]*\Z"
)
_STATEMENT = re.compile(rf"\s*(?:ROOT\s+)?%?{_IDENT}\s*=\s*(?P<rest>.*)\Z", re.DOTALL)


class Problem(Struct, frozen=True):
    """A fault in a text, as an editor shows it.

    severity: ERROR or WARNING. start, end: of what is wrong; 0, 0 where that has no place.
    """

    severity: str
    code: str
    message: str
    start: int
    end: int


class Use(Struct, frozen=True):
    """A name in the text, without its %. scope: the computation that it belongs to, "" for the
    module's own names, those of computations.
    """

    name: str
    scope: str
    start: int
    end: int
    is_definition: bool


class Outline(Struct, frozen=True):
    """A computation with its instructions: name, what follows it, place of all and of the name."""

    name: str
    detail: str
    start: int
    end: int
    name_start: int
    name_end: int
    inside: tuple[Outline, ...] = ()


class Completion(Struct, frozen=True):
    """A word that may stand at a place of a text.

    kind: opcode, instruction, attribute.
    """

    label: str
    kind: str
    detail: str


def problems(text: str, name: str) -> list[Problem]:
    """All errors of a text, or the advice about a module that has none. Never raises HloErrors."""
    try:
        module = driver.parse(text, name)
        driver.verify(module)
    except HloErrors as errors:
        return [_problem(error) for error in errors.errors]
    except HloError as error:
        return [_problem(error)]
    return [
        Problem(WARNING, advice.code, advice.message, *_place(advice.span))
        for advice in driver.lint(module)
    ]


def _problem(error: HloError) -> Problem:
    parts = [error.message, *map(str, error.notes)] + [f"help: {error.help}"] * bool(error.help)
    return Problem(ERROR, error.code, "\n".join(parts), *_place(error.span))


def _place(span: Span | None) -> tuple[int, int]:
    return (0, 0) if span is None else (span.start, span.end)


class _Region(Struct):
    """A computation: its name, where the name is, where its braces are."""

    name: str
    at: int
    opens: int
    closes: int


class Document:
    """A text, and where its names are."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lock = lock()

    # -- names -----------------------------------------------------------------------------------

    @cached_property
    def _tokens(self) -> list[tuple[str, str, int]]:
        """(kind, text, start) of names and signs; no comments, strings as they are."""
        return [
            (str(m.lastgroup), m.group(), m.start())
            for m in _TOKEN.finditer(self.text)
            if m.lastgroup != "comment"
        ]

    @cached_property
    def _regions(self) -> list[_Region]:
        """Computations, in order: heads that end a line with a brace."""
        found: list[_Region] = []
        depth = 0
        for kind, text, start in self._tokens:
            if kind != "sign":
                continue
            if text == "{":
                line = self.text.rfind("\n", 0, start) + 1
                end = self.text.find("\n", start)
                head = _HEAD.match(self.text[line : end if end >= 0 else len(self.text)])
                if head is not None and line + head.end() > start:
                    if found and found[-1].closes < 0:
                        found[-1].closes = line  # its own end is missing
                    at = line + head.start(1)
                    found.append(_Region(head[1].lstrip("%"), at, start, -1))
                    depth = 0
                else:
                    depth += 1
            elif text == "}":
                if depth == 0 and found and found[-1].closes < 0:
                    found[-1].closes = start
                depth = max(0, depth - 1)
        if found and found[-1].closes < 0:
            found[-1].closes = len(self.text)
        return found

    def _region_at(self, offset: int) -> _Region | None:
        number = bisect_right([r.at for r in self._regions], offset) - 1
        if number < 0 or offset > self._regions[number].closes:
            return None
        return self._regions[number]

    @cached_property
    def uses(self) -> list[Use]:
        """All names that are defined somewhere, in the order of the text."""
        defined = {r.name: dict[str, int]() for r in self._regions}
        for region in self._regions:
            for line in re.finditer(r"[^\n]+", self.text[region.opens + 1 : region.closes]):
                start = region.opens + 1 + line.start()
                match = _DEFINITION.match(self.text, start)
                if match is not None and match.start(1) in self._beginnings:
                    defined[region.name].setdefault(match[1].lstrip("%"), match.start(1))
        computations = {r.name: r.at for r in self._regions}
        return list(self._found(defined, computations))

    @cached_property
    def _beginnings(self) -> set[int]:
        """Where names stand that begin lines, but for lines that go on with one before."""
        found: set[int] = set()
        opens = {r.opens for r in self._regions}
        depth, is_first, last = 0, True, ""
        for kind, text, start in self._tokens:
            if text == "\n":
                is_first = True
                continue
            if kind == "name" and is_first and depth == 0 and last != "," and text != "ROOT":
                found.add(start)
            is_first = is_first and text == "ROOT"
            last = text
            if text == "(" or (text == "{" and start not in opens):
                depth += 1
            elif text in (")", "}"):
                depth = max(0, depth - 1)
        return found

    def _found(
        self, defined: dict[str, dict[str, int]], computations: dict[str, int]
    ) -> Iterator[Use]:
        regions, number = self._regions, 0
        tokens = self._tokens
        key = ""
        for n, (kind, text, start) in enumerate(tokens):
            while number < len(regions) and regions[number].closes < start:
                number += 1
            if kind != "name":
                key = "" if text == ")" else key
                continue
            following = tokens[n + 1][1] if n + 1 < len(tokens) else ""
            bare, end = text.lstrip("%"), start + len(text)
            inside = number < len(regions) and regions[number].opens < start
            scope = regions[number].name if inside else ""
            own = defined.get(scope, {})
            if own.get(bare) == start:
                key = ""
                yield Use(bare, scope, start, end, is_definition=True)
            elif computations.get(bare) == start:
                yield Use(bare, "", start, end, is_definition=True)
            elif following == "=" and not text.startswith("%"):
                key = text
            elif key in CALLING_ATTRIBUTES and bare in computations:
                yield Use(bare, "", start, end, is_definition=False)
            elif bare in own and (
                text.startswith("%")
                or key == "control-predecessors"
                or (following != "(" and not key)
            ):
                yield Use(bare, scope, start, end, is_definition=False)

    @cached_property
    def _starts(self) -> list[int]:
        return [use.start for use in self.uses]

    def use_at(self, offset: int) -> Use | None:
        """The name at an offset, its end included."""
        number = bisect_right(self._starts, offset) - 1
        if number < 0 or offset > self.uses[number].end:
            return None
        return self.uses[number]

    def definition(self, offset: int) -> Use | None:
        """Where the name at an offset is defined."""
        use = self.use_at(offset)
        return None if use is None else self._definition_of(use)

    def _definition_of(self, use: Use) -> Use | None:
        return next((u for u in self.references_of(use) if u.is_definition), None)

    def references(self, offset: int) -> list[Use]:
        """The name at an offset wherever it stands, its definition too."""
        use = self.use_at(offset)
        return [] if use is None else self.references_of(use)

    def references_of(self, use: Use) -> list[Use]:
        return [u for u in self.uses if (u.name, u.scope) == (use.name, use.scope)]

    def renamed(self, offset: int, name: str) -> list[tuple[int, int, str]]:
        """(start, end, text) that give what is named at an offset another name; HloError where that
        is none, or taken.
        """
        use = self.use_at(offset)
        if use is None:
            raise HloError("unknown-name", "rename: no instruction or computation is named here")
        bare = name.lstrip("%")
        if not _NAME.match(bare):
            message = f"rename: {name} is no name, expected letters, digits, _ . - after a letter"
            raise HloError("syntax", message)
        if any(u.is_definition and u.name == bare and u.scope == use.scope for u in self.uses):
            what = f"the computation {use.scope}" if use.scope else "the module"
            raise HloError("duplicate-name", f"rename: {what} has a {bare} already")
        return [
            (u.start, u.end, "%" * self.text.startswith("%", u.start) + bare)
            for u in self.references_of(use)
        ]

    # -- what is shown -----------------------------------------------------------------------------

    def hover(self, offset: int) -> tuple[str, int, int] | None:
        """(Markdown, start, end): how the name at an offset is defined, or an opcode's page."""
        use = self.use_at(offset)
        if use is not None:
            made = self._definition_of(use)
            if made is None:
                return None
            line = self._statement_at(made.start).strip()
            opcode = opcode_of(line)
            page = f"\n\n---\n{_page(opcode)}" if opcode else ""
            return f"```hlo\n{line}\n```{page}", use.start, use.end
        word = self._word_at(offset)
        if word is None or word[0] not in OPS:
            return None
        return _page(word[0]), word[1], word[2]

    def _word_at(self, offset: int) -> tuple[str, int, int] | None:
        line = self.text.rfind("\n", 0, offset) + 1
        for match in re.finditer(_IDENT, self.text[line : self.text.find("\n", line) + 1 or None]):
            if line + match.start() <= offset <= line + match.end():
                return match[0], line + match.start(), line + match.end()
        return None

    def _statement_at(self, offset: int) -> str:
        """The line of an offset, and lines behind it while a bracket is open."""
        start = self.text.rfind("\n", 0, offset) + 1
        end, depth = start, 0
        while end < len(self.text):
            stop = self.text.find("\n", end)
            stop = len(self.text) if stop < 0 else stop
            line = self.text[end:stop]
            depth += line.count("(") + line.count("{") - line.count(")") - line.count("}")
            end = stop + 1
            if depth <= 0 or line.rstrip().endswith("{"):
                break
        return self.text[start : end - 1]

    @cached_property
    def outline(self) -> tuple[Outline, ...]:
        """Computations, and their instructions in them."""
        inside: dict[str, list[Outline]] = {r.name: [] for r in self._regions}
        for use in self.uses:
            if use.is_definition and use.scope:
                end = self.text.find("\n", use.end)
                end = len(self.text) if end < 0 else end
                detail = self.text[use.end : end].strip(" =\t\r,")[:80]
                inside[use.scope].append(
                    Outline(use.name, detail, use.start, end, use.start, use.end)
                )
        found = []
        for r in self._regions:
            end = self.text.index(r.name, r.at) + len(r.name)
            detail = self.text[end : r.opens].strip()
            closes = min(r.closes + 1, len(self.text))
            found.append(Outline(r.name, detail, r.at, closes, r.at, end, tuple(inside[r.name])))
        return tuple(found)

    # -- completion --------------------------------------------------------------------------------

    def completions(self, offset: int) -> list[Completion]:
        """What may follow: opcodes behind a shape, names between brackets, then attributes."""
        region = self._region_at(offset)
        line = self._begun(offset)
        match = _STATEMENT.match(line)
        if region is None or match is None:
            return []
        rest = match["rest"]
        depth = rest.count("(") - rest.count(")") - self._tuple_brackets(rest)
        if re.search(r"[=\s,({%][%\w.\-]*\Z", " " + rest) is None:
            return []
        if re.fullmatch(r"(?:\(.*\)|\S+)\s+[\w-]*", rest, re.DOTALL):
            return [Completion(name, "opcode", _first_line(name)) for name in OPS]
        if depth > 0:
            return self._names(region, offset)
        opcode = opcode_of(line)
        if opcode and re.search(r"\).*,\s*[\w-]*\Z", rest, re.DOTALL):
            return _attributes(opcode)
        return []

    def _begun(self, offset: int) -> str:
        """The statement around an offset, up to it."""
        start = self.text.rfind("\n", 0, offset) + 1
        while start and not _DEFINITION.match(self.text, start):
            start = self.text.rfind("\n", 0, start - 1) + 1
        return self.text[start:offset]

    @staticmethod
    def _tuple_brackets(rest: str) -> int:
        """Brackets that a shape before the opcode leaves open: one of a tuple is being written."""
        return int(rest.lstrip().startswith("(") and rest.count(")") == 0)

    def _names(self, region: _Region, offset: int) -> list[Completion]:
        found = [
            use
            for use in self.uses
            if use.is_definition and use.scope == region.name and use.start < offset
        ]
        return [
            Completion(use.name, "instruction", self._statement_at(use.start).strip()[:80])
            for use in found[-MOST_COMPLETIONS:]
        ]


def opcode_of(statement: str) -> str:
    """The opcode of an instruction's text; "" where there is none."""
    match = _STATEMENT.match(statement)
    if match is None:
        return ""
    found = re.search(r"(?:^|[\s})\]])([a-z][a-z0-9\-]*)\(", match["rest"])
    return found[1] if found is not None and found[1] in OPS else ""


def _attributes(opcode: str) -> list[Completion]:
    own = [*OPS[opcode].attrs, *INSTRUCTION_ATTRS]
    return [Completion(f"{name}=", "attribute", opcode) for name in dict.fromkeys(own)]


def _first_line(opcode: str) -> str:
    return explain_op(opcode).partition("\n")[0]


def _page(opcode: str) -> str:
    return f"```text\n{explain_op(opcode).strip()}\n```"
