"""--dump-to: numbered files, one per stage and per pass that changed the module."""

from __future__ import annotations

from pathlib import Path

from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.passes.manager import PassRun
from hlo.printer.options import PrintOptions
from hlo.printer.printer import print_module
from hlo.tools.files.reading import write_text


class Dump:
    """Writes `NN-name.ext` into a folder: 00-input.hlo, 01-algsimp.hlo, ..., 17-program.txt."""

    def __init__(self, folder: str) -> None:
        if not folder:
            raise HloError("file", f"{folder!r} is no folder's name")
        self.folder = Path(folder)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except (OSError, ValueError) as error:  # ValueError: NUL
            reason = getattr(error, "strerror", None) or error
            raise HloError("file", f"{folder!r} cannot be made: {reason}") from None
        self._count = 0

    def write(self, name: str, text: str) -> None:
        """The next numbered file."""
        write_text(str(self.folder / f"{self._count:02d}-{name}"), text)
        self._count += 1

    def module(self, name: str, module: Module) -> None:
        self.write(f"{name}.hlo", print_module(module, PrintOptions()))

    def after_pass(self, module: Module, run: PassRun) -> None:
        """An observer for the pass manager."""
        if run.changed:
            self.module(run.step.name, module)
