"""InterpretedExecutable: a program whose sizes change at run time, run by the reference."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hlo.interpreter.evaluate import evaluate
from hlo.ir.module import Module
from hlo.runtime.executable import Binder, Program, Weights, checked_numbers, no_binder


class InterpretedExecutable:
    """Called like an Executable; correct, and slow."""

    temporary_bytes = 0

    def __init__(self, module: Module) -> None:
        self._module = module
        self.binder: Binder = no_binder

    def __call__(
        self, *arguments: object, donate: Collection[int] = (), timeout: float | None = None
    ) -> object:
        checked_numbers(donate, len(self._module.entry.parameters))  # nothing is ever in place
        return evaluate(self._module, *arguments, timeout=timeout)

    def run_guarded(self, *arguments: object) -> object:
        """The same: no memory here is a program's own."""
        return self(*arguments)

    def bind(self, weights: Weights) -> Program:
        """The same program with some parameters bound to arrays, as `Executable.bind` says."""
        return self.binder(weights)

    def run_devices(
        self, arguments: Sequence[Sequence[object]], *, timeout: float | None = None
    ) -> list[object]:
        return [self(*given, timeout=timeout) for given in arguments]

    def memory_report(self) -> str:
        return "run by the interpreter: sizes change at run time (see the pass dynamic_padder)\n"
