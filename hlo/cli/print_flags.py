"""--print=FORM and two flags a field of PrintOptions: --print-metadata, --no-print-metadata."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import click
from msgspec.structs import fields, replace

from hlo.cli.numbers import INDENT, INTERVAL
from hlo.printer.options import PrintOptions

FORMS: dict[str, Callable[[], PrintOptions]] = {
    "default": PrintOptions,
    "xla": PrintOptions.xla_default,
    "short": PrintOptions.short_parsable,
    "canonical": PrintOptions.canonical,
    "fingerprint": PrintOptions.fingerprint,
}
NUMBERS = {"print_operand_index_annotation_interval": INTERVAL, "indent_amount": INDENT}
INTERNAL = frozenset({"reads_back", "is_in_nested_computation", "as_written"})

Command = Callable[..., int]


def print_flags(command: Command) -> Command:
    """Adds the flags to a command, which gets them as keywords: `form` and the fields' names."""
    for field in reversed(fields(PrintOptions)):
        if field.name in INTERNAL:
            continue
        flag = f"--{field.name.replace('_', '-')}"
        if isinstance(field.default, bool):
            names = f"{flag}/--no-{flag[2:]}"
            command = click.option(names, field.name, default=None, hidden=True)(command)
        else:
            kind = NUMBERS[field.name]
            command = click.option(flag, field.name, default=None, type=kind, hidden=True)(command)
    choice = click.Choice(list(FORMS))
    help = "The form; each field of XLA's print options is a flag of its own (--no-print-metadata)."
    return click.option(
        "--print", "form", type=choice, default="default", show_default=True, help=help
    )(command)


def print_options(form: str, flags: Mapping[str, object]) -> PrintOptions:
    """The form's options with the flags that were given."""
    given = {name: value for name, value in flags.items() if value is not None}
    options = FORMS[form]()
    return replace(options, **given) if given else options
