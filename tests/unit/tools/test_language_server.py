"""hlo-opt lsp as an editor uses it: the process, over its standard input and output."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Awaitable, Callable
from importlib.util import find_spec

import pytest

if not find_spec("pygls"):
    pytest.skip("pygls is not there", allow_module_level=True)

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcException
from pygls.lsp.client import LanguageClient

from tests.unit.tools.test_editing import TEXT, at

URI = "file:///models/m.hlo"
WIDE = TEXT.replace("op_name=", 'op_type="😀é" op_name=')  # an emoji is two UTF-16 units


class Editor(LanguageClient):
    """An editor that notes what it is told of errors."""

    def __init__(self) -> None:
        super().__init__("editor", "1")
        self.told: asyncio.Queue[lsp.PublishDiagnosticsParams] = asyncio.Queue()

        @self.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)
        def told(params: lsp.PublishDiagnosticsParams) -> None:
            self.told.put_nowait(params)

    def open(self, text: str) -> None:
        item = lsp.TextDocumentItem(URI, "hlo", 1, text)
        self.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def change(self, version: int, start: lsp.Position, end: lsp.Position, text: str) -> None:
        change = lsp.TextDocumentContentChangePartial(lsp.Range(start, end), text)
        document = lsp.VersionedTextDocumentIdentifier(version, URI)
        self.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [change]))

    async def errors(self) -> list[lsp.Diagnostic]:
        return list((await asyncio.wait_for(self.told.get(), 60)).diagnostics)


def position(text: str, offset: int) -> lsp.Position:
    line = text.count("\n", 0, offset)
    before = text[text.rfind("\n", 0, offset) + 1 : offset]
    return lsp.Position(line, len(before.encode("utf-16-le")) // 2)


def session(use: Callable[[Editor], Awaitable[None]]) -> None:
    async def run() -> None:
        editor = Editor()
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        await editor.start_io(sys.executable, "-m", "hlo", "opt", "lsp", "--stdio", env=environment)
        capabilities = lsp.ClientCapabilities()
        await editor.initialize_async(lsp.InitializeParams(capabilities, root_uri="file:///models"))
        editor.initialized(lsp.InitializedParams())
        await use(editor)
        await editor.shutdown_async(None)
        editor.exit(None)
        await asyncio.wait_for(editor.stop(), 60)

    asyncio.run(run())


def test_errors_come_and_go_as_one_types() -> None:
    async def use(editor: Editor) -> None:
        editor.open(TEXT)
        assert await editor.errors() == []
        start = at(TEXT, 12, "negate")
        editor.change(2, position(TEXT, start), position(TEXT, start + 6), "negat")
        (error,) = await editor.errors()
        assert (error.code, error.source) == ("unknown-opcode", "hlo")
        assert (error.range.start, error.range.end.character) == (position(TEXT, start), 23)
        editor.change(3, position(TEXT, start), position(TEXT, start + 5), "negate")
        assert await editor.errors() == []

    session(use)


def test_what_is_asked_of_a_name() -> None:
    document = lsp.TextDocumentIdentifier(URI)
    offset = at(WIDE, 20, "%c")

    async def use(editor: Editor) -> None:
        editor.open(WIDE)
        place = position(WIDE, offset)
        found = await editor.text_document_hover_async(lsp.HoverParams(document, place))
        assert found is not None
        assert isinstance(found.contents, lsp.MarkupContent)
        assert "%c = f32[4]{0} call(%x)" in found.contents.value
        location = await editor.text_document_definition_async(
            lsp.DefinitionParams(document, place)
        )
        assert isinstance(location, lsp.Location)
        assert location.range.start == position(WIDE, at(WIDE, 18, "%c"))
        # Behind the emoji of line 6 and the comma of a name.
        quoted = position(WIDE, at(WIDE, 6, "%a,"))
        context = lsp.ReferenceContext(include_declaration=False)
        references = await editor.text_document_references_async(
            lsp.ReferenceParams(context, document, quoted)
        )
        assert [r.range.start for r in references or ()] == [quoted]
        edit = await editor.text_document_rename_async(lsp.RenameParams(document, place, "k"))
        assert edit is not None
        assert [e.new_text for e in (edit.changes or {})[URI]] == ["%k", "%k"]
        with pytest.raises(JsonRpcException, match="has a x already"):
            await editor.text_document_rename_async(lsp.RenameParams(document, place, "x"))
        items = await editor.text_document_completion_async(
            lsp.CompletionParams(document, position(WIDE, at(WIDE, 20, "%zero")))
        )
        assert {"x", "c", "zero"} <= {i.label for i in items or ()}  # type: ignore[union-attr]

    session(use)


def test_outline_and_form() -> None:
    document = lsp.TextDocumentIdentifier(URI)
    text = "HloModule m\nENTRY e {\n  x = f32[2]   parameter(0)\n  ROOT y = f32[2] tanh( x )\n}\n"

    async def use(editor: Editor) -> None:
        editor.open(text)
        rows = await editor.text_document_document_symbol_async(lsp.DocumentSymbolParams(document))
        assert [row.name for row in rows or ()] == ["e"]
        options = lsp.FormattingOptions(2, insert_spaces=True)
        edits = await editor.text_document_formatting_async(
            lsp.DocumentFormattingParams(document, options)
        )
        (edit,) = edits or ()
        assert "ROOT %y = f32[2]{0} tanh(%x)" in edit.new_text
        assert edit.range == lsp.Range(lsp.Position(0, 0), lsp.Position(5, 0))

    session(use)
