"""hlo-run repl FILE...: modules at a Python prompt."""

from __future__ import annotations

import sys
from contextlib import suppress

import click

from hlo.cli.completing import FILE
from hlo.cli.reading import reads_input


@click.command("repl")
@click.argument("files", nargs=-1, type=FILE, metavar="FILE...")
@reads_input
def command(files: tuple[str, ...]) -> int:
    """A Python prompt with NumPy (np), hlo, and the files' modules: the first is m, each has its
    file's name too. m(np.ones((2, 3))) compiles and calls; help(m) tells the rest.
    """
    from hlo.tools import repl  # it loads the compiler: a help does without

    names = repl.namespace(files)
    prompt = repl.Prompt(names)
    is_terminal = sys.stdin.isatty()
    if not is_terminal:
        sys.ps1 = sys.ps2 = ""
    else:
        with suppress(ImportError):
            import readline
            import rlcompleter

            readline.set_completer(rlcompleter.Completer(names).complete)
            readline.parse_and_bind("tab: complete")
    known = ", ".join(name for name in names if name not in ("np", "hlo", "load"))
    hint = f"{known}: " if known else ""
    prompt.interact(f"hlo {hint}help(load) tells what modules can do" if is_terminal else "", "")
    return 0
