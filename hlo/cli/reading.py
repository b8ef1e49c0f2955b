"""Reading a module for a command."""

from __future__ import annotations

from hlo import driver
from hlo.ir.module import Module
from hlo.tools.files import read_text


def read_module(path: str) -> Module:
    """The module in a file, `-` for standard input; raises HloErrors that name the file."""
    return driver.parse(read_text(path), "<stdin>" if path == "-" else path)
