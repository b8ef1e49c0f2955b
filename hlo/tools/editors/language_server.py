"""The language server: HLO text in an editor, by the Language Server Protocol.

    editor <--JSON-RPC on two streams--> pygls --> editing.py

A changed text is read once it has been left alone for a moment, on a thread of its own, so that the
editor's other questions are answered meanwhile. Places of the protocol are lines and UTF-16 units.
pygls is imported here alone (the extra `lsp`).
"""

from __future__ import annotations

import asyncio
import re
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from hlo import __version__, driver
from hlo.errors import HloError
from hlo.tools.editors.editing import WARNING, Completion, Document, Outline, Problem, Use, problems
from hlo.tools.editors.format import formatted

try:
    from lsprotocol import types as lsp
    from pygls.exceptions import JsonRpcInvalidParams
    from pygls.lsp.server import LanguageServer
except ImportError as error:
    raise HloError(
        "unsupported",
        f"lsp: {error.name or 'pygls'} is not installed, expected the extra lsp",
        help="pip install 'hlo[lsp]'",
    ) from None

PAUSE_SECONDS = 0.25  # A text that was changed is left alone for so long before it is read.
_ENDS = re.compile(r"\r\n|\n|\r")
_KINDS = {
    "opcode": lsp.CompletionItemKind.Function,
    "instruction": lsp.CompletionItemKind.Variable,
    "attribute": lsp.CompletionItemKind.Property,
}


class Places:
    """Offsets of a text as positions of the protocol, and back."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.starts = [0, *(m.end() for m in _ENDS.finditer(text))]

    def position(self, offset: int) -> lsp.Position:
        """The line and the UTF-16 units before an offset."""
        offset = max(0, min(offset, len(self.text)))
        line = bisect_right(self.starts, offset) - 1
        before = self.text[self.starts[line] : offset]
        return lsp.Position(line, len(before.encode("utf-16-le")) // 2)

    def offset(self, position: lsp.Position) -> int:
        """The offset of a position; one beyond its line is the line's end."""
        if position.line >= len(self.starts):
            return len(self.text)
        start = self.starts[position.line]
        following = self.starts[position.line + 1 : position.line + 2]
        line = self.text[start : following[0] if following else len(self.text)].rstrip("\r\n")
        units = line.encode("utf-16-le")[: 2 * position.character]
        return start + len(units.decode("utf-16-le", "ignore"))

    def range(self, start: int, end: int) -> lsp.Range:
        return lsp.Range(self.position(start), self.position(end))


class Opened:
    """A text that the editor has open, in the state that it was last told of."""

    def __init__(self, uri: str, text: str, version: int) -> None:
        self.uri, self.text, self.version = uri, text, version
        self.places, self.document = Places(text), Document(text)

    def located(self, use: Use) -> lsp.Location:
        return lsp.Location(self.uri, self.places.range(use.start, use.end))


class HloServer(LanguageServer):
    """The server's state: open texts, and the readings that wait."""

    def __init__(self) -> None:
        super().__init__("hlo-opt", __version__)
        self.opened: dict[str, Opened] = {}
        self.waiting: dict[str, asyncio.Task[None]] = {}

    def at(self, params: Any) -> tuple[Opened, int]:
        """The text that a question is about, and the offset."""
        opened = self.text_of(params.text_document.uri)
        return opened, opened.places.offset(params.position)

    def text_of(self, uri: str) -> Opened:
        """What is known of an open text; it is scanned again where it has changed."""
        document = self.workspace.get_text_document(uri)
        known, version = self.opened.get(uri), document.version or 0
        if known is None or known.version != version:
            known = self.opened[uri] = Opened(uri, document.source, version)
        return known

    def read_later(self, uri: str, pause: float) -> None:
        """Read a text after a pause, unless it changes before that."""
        if uri in self.waiting:
            self.waiting[uri].cancel()
        self.waiting[uri] = asyncio.get_running_loop().create_task(self._read(uri, pause))

    async def _read(self, uri: str, pause: float) -> None:
        await asyncio.sleep(pause)
        opened = self.text_of(uri)
        name = uri.rpartition("/")[2]
        found = await asyncio.to_thread(problems, opened.text, name)
        if self.opened.get(uri) is opened:  # else a later reading tells
            told = [_diagnostic(p, opened.places) for p in found]
            self.text_document_publish_diagnostics(
                lsp.PublishDiagnosticsParams(uri, told, opened.version)
            )

    def forget(self, uri: str) -> None:
        """A text that is closed has no errors any more."""
        self.opened.pop(uri, None)
        if (task := self.waiting.pop(uri, None)) is not None:
            task.cancel()
        self.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, []))


def _diagnostic(problem: Problem, places: Places) -> lsp.Diagnostic:
    warning = problem.severity == WARNING
    return lsp.Diagnostic(
        places.range(problem.start, max(problem.end, problem.start + 1)),
        problem.message,
        lsp.DiagnosticSeverity.Warning if warning else lsp.DiagnosticSeverity.Error,
        code=problem.code,
        source="hlo",
    )


def _computation(row: Outline, places: Places) -> lsp.DocumentSymbol:
    """A computation, its instructions in it."""
    inside = [_symbol(r, places, lsp.SymbolKind.Variable) for r in row.inside]
    return _symbol(row, places, lsp.SymbolKind.Function, inside)


def _symbol(
    row: Outline,
    places: Places,
    kind: lsp.SymbolKind,
    inside: Sequence[lsp.DocumentSymbol] = (),
) -> lsp.DocumentSymbol:
    return lsp.DocumentSymbol(
        row.name,
        kind,
        places.range(row.start, row.end),
        places.range(row.name_start, row.name_end),
        detail=row.detail,
        children=inside,
    )


def _item(found: Completion) -> lsp.CompletionItem:
    return lsp.CompletionItem(found.label, kind=_KINDS[found.kind], detail=found.detail)


def server() -> HloServer:
    """A server that knows what it is asked; `start_io()` runs it."""
    made = HloServer()
    _follow_texts(made)
    _answer_names(made)
    _answer_texts(made)
    return made


def _follow_texts(made: HloServer) -> None:
    """Texts that are opened, changed and closed."""

    @made.feature(lsp.TEXT_DOCUMENT_DID_OPEN)
    async def opened(params: lsp.DidOpenTextDocumentParams) -> None:
        made.read_later(params.text_document.uri, 0.0)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CHANGE)
    async def changed(params: lsp.DidChangeTextDocumentParams) -> None:
        made.read_later(params.text_document.uri, PAUSE_SECONDS)

    @made.feature(lsp.TEXT_DOCUMENT_DID_CLOSE)
    async def closed(params: lsp.DidCloseTextDocumentParams) -> None:
        made.forget(params.text_document.uri)


def _answer_names(made: HloServer) -> None:
    """Questions about the name at a place."""

    @made.feature(lsp.TEXT_DOCUMENT_HOVER)
    def hover(params: lsp.HoverParams) -> lsp.Hover | None:
        opened, offset = made.at(params)
        found = opened.document.hover(offset)
        if found is None:
            return None
        text, start, end = found
        content = lsp.MarkupContent(lsp.MarkupKind.Markdown, text)
        return lsp.Hover(content, opened.places.range(start, end))

    @made.feature(lsp.TEXT_DOCUMENT_DEFINITION)
    def definition(params: lsp.DefinitionParams) -> lsp.Location | None:
        opened, offset = made.at(params)
        found = opened.document.definition(offset)
        return None if found is None else opened.located(found)

    @made.feature(lsp.TEXT_DOCUMENT_REFERENCES)
    def references(params: lsp.ReferenceParams) -> list[lsp.Location]:
        opened, offset = made.at(params)
        wanted = params.context.include_declaration
        found = opened.document.references(offset)
        return [opened.located(u) for u in found if wanted or not u.is_definition]

    @made.feature(lsp.TEXT_DOCUMENT_RENAME)
    def rename(params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        opened, offset = made.at(params)
        try:
            found = opened.document.renamed(offset, params.new_name)
        except HloError as error:
            raise JsonRpcInvalidParams(error.message) from None
        edits = [lsp.TextEdit(opened.places.range(a, b), text) for a, b, text in found]
        return lsp.WorkspaceEdit(changes={opened.uri: edits})

    @made.feature(
        lsp.TEXT_DOCUMENT_COMPLETION, lsp.CompletionOptions(trigger_characters=["%", " ", "("])
    )
    def completion(params: lsp.CompletionParams) -> list[lsp.CompletionItem]:
        opened, offset = made.at(params)
        return [_item(found) for found in opened.document.completions(offset)]


def _answer_texts(made: HloServer) -> None:
    """Questions about a whole text."""

    @made.feature(lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL)
    def outline(params: lsp.DocumentSymbolParams) -> Sequence[lsp.DocumentSymbol]:
        opened = made.text_of(params.text_document.uri)
        return [_computation(row, opened.places) for row in opened.document.outline]

    @made.feature(lsp.TEXT_DOCUMENT_FORMATTING)
    def formatting(params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        opened = made.text_of(params.text_document.uri)
        try:
            text, _ = formatted(driver.parse(opened.text))
        except HloError:
            return []  # its errors are shown already
        if text == opened.text:
            return []
        return [lsp.TextEdit(opened.places.range(0, len(opened.text)), text)]
