"""Table filling: tables that kernels only read, filled once, when a program's executable is made.

    kernels by name --apart--> those kernels, and for each of their tables a kernel that fills it

A kernel declares its table and brings the function that fills one: `@T = external constant [...]`,
`define internal void @T.entries(ptr %table)`. The kernel that fills it defines the table, and is
compiled beside the others; linking calls all of them before anything else runs. A kernel that is
compiled alone does not link, so that none reads a table that nobody filled.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec.structs import replace

from hlo.backend.ir.definitions import only_needed, symbol_of
from hlo.backend.ir.functions import Data, Function
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer

TABLE = Value("%table", "ptr")  # The parameter of a function that fills a table.

_DECLARED = re.compile(r"@(?P<table>[\w.$-]+) = external constant (?P<type>\[[^]]*\])")


def enter(w: Writer, table: str, type: str, inner: Writer) -> None:
    """Enter a table beside a kernel. inner: the records that write its entries to `%table`."""
    w.declarations.update(inner.declarations)
    w.globals.update(inner.globals)
    w.declarations[table] = f"@{table} = external constant {type}, align 64"
    entries = f"{table}.entries"
    w.globals[entries] = Function(
        parameters=(TABLE,),
        records=inner.records,
        symbol=entries,
        linkage="internal",
        ends_line=False,
    )


def apart(kernels: dict[str, Kernel], fills: dict[str, Kernel]) -> dict[str, Kernel]:
    """The kernels without the functions that fill their tables; fills: those, added to."""
    found: dict[str, Kernel] = {}
    for name, kernel in kernels.items():
        tables = _tables(kernel.declarations)
        for table, type in tables.items():
            fills.setdefault(f"{table}.fill", _fill(kernel, table, type))
        found[name] = only_needed(kernel, kernel.function) if tables else kernel
    return found


def has_tables(kernel: Kernel) -> bool:
    """Whether a kernel reads tables that are to be filled."""
    return bool(_tables(kernel.declarations))


def _tables(declarations: Iterable[str]) -> dict[str, str]:
    """The declared tables, and their types."""
    found = (_DECLARED.match(line) for line in declarations)
    return {m["table"]: m["type"] for m in found if m}


def _fill(kernel: Kernel, table: str, type: str) -> Kernel:
    """A function without parameters that fills one of a kernel's tables, beside the table."""
    w = Writer()
    w.call(f"{table}.entries", Value(f"@{table}", "ptr"))
    w.ret()
    function = Function(parameters=(), records=w.records)
    needed = only_needed(Kernel(function, 0, kernel.declarations, kernel.globals), function)
    own = Data(table, f"@{table} = global {type} zeroinitializer, align 64")
    outside = tuple(x for x in needed.declarations if "@" not in x or symbol_of(x) != table)
    return replace(needed, declarations=outside, globals=(own, *needed.globals))
