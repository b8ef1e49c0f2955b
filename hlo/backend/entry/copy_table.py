"""Copy tables: very many copies in a row as one loop over a table of slots and sizes.

LLVM compares each memory access of a block with the others: 500 copies in one function take it
seconds, a loop over their table nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from msgspec import Struct

from hlo.backend.planning.program import CopyStep, Step

LEAST_COPIES = 64  # that are a loop
TABLE = ".rows"  # how a table's symbol ends


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


def function(symbol: str, copies: Copies) -> str:
    """The loop, `void @symbol(ptr %frame)`, and its table: slots of both addresses, bytes."""
    count, table = len(copies.steps), f"{symbol}{TABLE}"
    rows = ", ".join(
        f"[3 x i64] [i64 {8 * c.source}, i64 {8 * c.target}, i64 {c.size}]" for c in copies.steps
    )
    return f"""@{table} = internal constant [{count} x [3 x i64]] [{rows}]
define void @{symbol}(ptr %frame) {{
entry:
  br label %copy
copy:
  %k = phi i64 [ 0, %entry ], [ %k.next, %copy ]
  %row = getelementptr [3 x i64], ptr @{table}, i64 %k
  %source.at = load i64, ptr %row, align 8
  %target.place = getelementptr i8, ptr %row, i64 8
  %target.at = load i64, ptr %target.place, align 8
  %bytes.place = getelementptr i8, ptr %row, i64 16
  %bytes = load i64, ptr %bytes.place, align 8
  %source.slot = getelementptr i8, ptr %frame, i64 %source.at
  %source = load ptr, ptr %source.slot, align 8
  %target.slot = getelementptr i8, ptr %frame, i64 %target.at
  %target = load ptr, ptr %target.slot, align 8
  call void @llvm.memcpy.p0.p0.i64(ptr %target, ptr %source, i64 %bytes, i1 false)
  %k.next = add i64 %k, 1
  %more = icmp ult i64 %k.next, {count}
  br i1 %more, label %copy, label %done
done:
  ret void
}}"""
