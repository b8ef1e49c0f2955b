"""Joined: a concatenate of very many operands, copied by a table instead of a loop nest for each.

    result[.., o + i, ..] = operand k [.., i, ..], o where operand k begins

A unit is one operand; the table says how many bytes it has in each row, and where in the result's
rows they go. The text is as long as the table whatever the shapes, of one function that LLVM sees
in no time: nests for 5,000 operands kept it busy for a minute.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod

from hlo.backend.ir.functions import Opaque
from hlo.backend.ir.kernel import Kernel
from hlo.backend.isa.target import Target
from hlo.ir.instruction import Instruction
from hlo.ops.table import attribute

TABLE = "hlo.joined"  # of all operands: bytes of a row, and bytes before them in the result's
MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"


def joined_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a concatenate."""
    dimensions = attribute(instruction, "dimensions")
    assert isinstance(dimensions, tuple), "dimensions is a tuple of ints"
    dimension: int = dimensions[0]
    shape, count = instruction.shape, len(instruction.operands)
    inner = prod(shape.dims[dimension + 1 :]) * shape.dtype.item_bytes
    widths = [o.shape.dims[dimension] * inner for o in instruction.operands]
    places = list(accumulate(widths, initial=0))
    rows = ", ".join(
        f"[2 x i64] [i64 {width}, i64 {at}]" for width, at in zip(widths, places, strict=False)
    )
    data = f"@{TABLE} = internal constant [{count} x [2 x i64]] [{rows}]"
    text = _text(count, prod(shape.dims[:dimension]), places[-1])
    made = Kernel(
        Opaque("KERNEL", text),
        count,
        declarations=(MEMCPY,),
        globals=(Opaque(TABLE, data),),
        bytes_moved=2 * shape.size_bytes,
        is_glue=True,
    )
    return target.shown(made, f"concatenate: a copy for each of {count} operands, by a table")


def _text(count: int, rows: int, row_bytes: int) -> str:
    return f"""define void @KERNEL(ptr %buffers, i64 %begin, i64 %end) {{
entry:
  %result.place = getelementptr ptr, ptr %buffers, i64 {count}
  %result = load ptr, ptr %result.place, align 8
  br label %operand
operand:
  %k = phi i64 [ %begin, %entry ], [ %k.next, %operand.done ]
  %more = icmp slt i64 %k, %end
  br i1 %more, label %known, label %done
known:
  %source.place = getelementptr ptr, ptr %buffers, i64 %k
  %source = load ptr, ptr %source.place, align 8
  %entry.place = getelementptr [2 x i64], ptr @{TABLE}, i64 %k
  %width = load i64, ptr %entry.place, align 8
  %at.place = getelementptr i8, ptr %entry.place, i64 8
  %at = load i64, ptr %at.place, align 8
  %first = getelementptr i8, ptr %result, i64 %at
  br label %row
row:
  %r = phi i64 [ 0, %known ], [ %r.next, %copy ]
  %r.more = icmp slt i64 %r, {rows}
  br i1 %r.more, label %copy, label %operand.done
copy:
  %from.bytes = mul i64 %r, %width
  %from = getelementptr i8, ptr %source, i64 %from.bytes
  %to.bytes = mul i64 %r, {row_bytes}
  %to = getelementptr i8, ptr %first, i64 %to.bytes
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %width, i1 false)
  %r.next = add i64 %r, 1
  br label %row
operand.done:
  %k.next = add i64 %k, 1
  br label %operand
done:
  ret void
}}
"""
