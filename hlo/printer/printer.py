"""print_module: module -> text, in any of XLA's forms or our own (docs/text.md 8.1)."""

from __future__ import annotations

from hlo.ir.module import Module
from hlo.printer.header import header_text
from hlo.printer.module_printer import ModulePrinter
from hlo.printer.options import PrintOptions
from hlo.printer.orders import printed_computations

_DEFAULT = PrintOptions()


def print_module(module: Module, options: object | None = None) -> str:
    """The module's text; without options, a PrintOptions, the form that always reads back.

    >>> axpy = hlo.read("examples/axpy.hlo")
    >>> hlo.print_module(axpy, hlo.PrintOptions.short_parsable()).splitlines()[0]
    'HloModule axpy, entry_computation_layout={(f32[], f32[1024]{0}, f32[1024]{0})->f32[1024]{0}}'
    """
    chosen = _DEFAULT if options is None else options
    assert isinstance(chosen, PrintOptions), "options are a PrintOptions"
    writer = ModulePrinter(module, chosen)
    parts = ["  " * chosen.indent_amount + header_text(module, chosen)]
    parts += [
        writer.computation(computation)
        for computation in printed_computations(module, chosen)
        if computation not in writer.sugared
    ]
    return "\n\n".join(parts) + "\n\n"
