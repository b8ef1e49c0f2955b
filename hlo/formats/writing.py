"""Modules in each form that `hlo-opt convert` writes.

module, form --written--> bytes
"""

from __future__ import annotations

from collections.abc import Callable

from hlo import choices
from hlo.errors import HloError
from hlo.formats import stablehlo
from hlo.formats.json_format import print_json
from hlo.formats.message import Message
from hlo.formats.module_message import module_message
from hlo.formats.text_format import print_text
from hlo.formats.wire import encode
from hlo.ir.module import Module
from hlo.printer.printer import print_module

Write = Callable[[Module], bytes]


def hlo_proto(module: Module) -> Message:
    """A module as dumps hold it."""
    return Message("HloProto", hlo_module=module_message(module))


FORMS: dict[str, Write] = dict(
    zip(
        choices.FORMS,
        (
            lambda module: print_module(module).encode("utf-8", "surrogateescape"),
            lambda module: encode(hlo_proto(module)),
            lambda module: encode(module_message(module)),
            lambda module: print_text(hlo_proto(module)).encode("utf-8", "surrogateescape"),
            lambda module: print_json(hlo_proto(module)).encode(),
            lambda module: stablehlo.stablehlo_text(module).encode(),
            stablehlo.stablehlo_bytecode,
        ),
        strict=True,
    )
)
TEXTS = frozenset(("text", "pbtxt", "json", "stablehlo"))
# The form that a file's name asks for where no flag says one.
SUFFIXES = {
    ".hlo": "text", ".txt": "text", ".pb": "pb", ".pbtxt": "pbtxt", ".json": "json",
    ".mlir": "stablehlo", ".mlirbc": "stablehlo-bytecode",
}  # fmt: skip


def written(module: Module, form: str) -> bytes:
    """The bytes of a module in a form of FORMS. Raises HloError where it cannot be written so."""
    if form not in FORMS:
        raise HloError("arguments", f"form {form!r}, expected one of {', '.join(FORMS)}")
    return FORMS[form](module)
