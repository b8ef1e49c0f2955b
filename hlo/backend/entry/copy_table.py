"""Copy tables: very many copies in a row as one loop over a table of slots and sizes.

LLVM compares each memory access of a block with the others: 500 copies in one function take it
seconds, a loop over their table nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from msgspec import Struct

from hlo.backend.entry import table_ir
from hlo.backend.ir.interface import MEMCPY, Field, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word
from hlo.backend.planning.program import CopyStep, Step

LEAST_COPIES = 64  # So many copies in a row are a loop.
TABLE = ".rows"  # How a table's symbol ends.
_ROW = "[3 x i64]"


class Copies(Struct, frozen=True):
    """Copies in a row, one after the other."""

    steps: tuple[CopyStep, ...]


def gathered(steps: Iterable[Step]) -> Iterator[Step | Copies]:
    """The steps, long rows of copies as one."""
    row: list[CopyStep] = []
    for step in steps:
        if isinstance(step, CopyStep):
            row.append(step)
            continue
        yield from _closed(row)
        row = []
        yield step
    yield from _closed(row)


def _closed(row: Sequence[CopyStep]) -> Iterator[Step | Copies]:
    if len(row) < LEAST_COPIES:
        yield from row
    else:
        yield Copies(tuple(row))


class TableRow:
    """A copy in the table: slots of both addresses, bytes."""

    source = Field(0)
    target = Field(8)
    bytes = Field(16)


def function(symbol: str, copies: Copies) -> str:
    """The loop, `void @symbol(ptr %frame)`, and its table."""
    count, table = len(copies.steps), f"{symbol}{TABLE}"
    rows = ", ".join(f"{_ROW} [i64 {c.source}, i64 {c.target}, i64 {c.size}]" for c in copies.steps)
    unit = Unit()
    unit.define(prototype("void", symbol, "ptr"), partial(_copy_all, table, count))
    data = f"@{table} = internal constant [{count} x {_ROW}] [{rows}]"
    return f"{data}\n{unit.functions[symbol]}"


def _copy_all(table: str, count: int, p: Procedure, frame: Word) -> None:
    with p.counted(p.word(count)) as k:
        row = p.symbol(table).item(_ROW, k)
        source, target, bytes = (
            row.load(f) for f in (TableRow.source, TableRow.target, TableRow.bytes)
        )
        read, written = (table_ir.slot(frame, at).get("ptr") for at in (source, target))
        p.call(MEMCPY, written, read, bytes, 0)
    p.ret()
