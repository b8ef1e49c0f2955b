"""The commands called in this process: exit code, stdout and stderr."""

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest import mock

from hlo.cli import main


@dataclass(frozen=True)
class Outcome:
    """What a command did."""

    code: int
    out: str
    err: str


def call(name: str, *arguments: str, stdin: bytes = b"") -> Outcome:
    """hlo-opt or hlo-run with the arguments."""
    out, err = io.StringIO(), io.StringIO()
    entry = {"hlo-opt": main.opt, "hlo-run": main.run}[name]
    fake_stdin = io.TextIOWrapper(io.BytesIO(stdin))
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "stdin", fake_stdin),
    ):
        try:
            entry(list(arguments))
        except SystemExit as leave:
            code = leave.code if isinstance(leave.code, int) else 1
        else:
            code = 0
    return Outcome(code, out.getvalue(), err.getvalue())
