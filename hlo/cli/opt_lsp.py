"""hlo-opt lsp: HLO text in editors."""

from __future__ import annotations

import click


@click.command("lsp")
@click.option("--stdio", is_flag=True, help="Accepted, as editors say it: there is no other way.")
def command(stdio: bool) -> int:
    """Serve an editor: the Language Server Protocol on standard input and output.

    Errors while typing, hover, definition, references, rename, outline, completion, formatting.
    It needs the extra lsp: pip install 'hlo[lsp]'. editors/vscode is an extension for VS Code.
    """
    from hlo.tools.editors.language_server import server  # it needs pygls: a help does without

    del stdio
    server().start_io()
    return 0
