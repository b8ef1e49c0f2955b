"""A concatenate of very many operands, copied by a table instead of a loop nest for each.

    result[.., o + i, ..] = operand k [.., i, ..], o where operand k begins

A unit is one operand; the table says how many bytes it has in each row, and where in the result's
rows they go. The text is as long as the table whatever the shapes, of one function that LLVM sees
in no time: nests for 5,000 operands kept it busy for a minute.
"""

from __future__ import annotations

from itertools import accumulate
from math import prod

from hlo.backend.ir.functions import PARAMETERS, Data, Function
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.named import Named
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.loops.schedule import Plan
from hlo.ir.instruction import Instruction
from hlo.ops.movement import DimensionsAttributes

# The symbol of a table: of each operand, bytes of a row, and bytes before them in the result's row.
TABLE = "hlo.joined"
MEMCPY = "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"


def concatenate_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a concatenate."""
    (dimension,) = DimensionsAttributes.of(instruction.attributes).dimensions
    shape, count = instruction.shape, len(instruction.operands)
    inner = prod(shape.dims[dimension + 1 :]) * shape.dtype.item_bytes
    widths = [o.shape.dims[dimension] * inner for o in instruction.operands]
    starts = list(accumulate(widths, initial=0))
    rows = ", ".join(
        f"[2 x i64] [i64 {width}, i64 {at}]" for width, at in zip(widths, starts, strict=False)
    )
    data = f"@{TABLE} = internal constant [{count} x [2 x i64]] [{rows}]"
    function = _function(count, prod(shape.dims[:dimension]), starts[-1])
    made = Kernel(
        function,
        count,
        declarations=(MEMCPY,),
        globals=(Data(TABLE, data),),
        bytes_moved=2 * shape.size_bytes,
        is_glue=True,
    )
    lines = (f"concatenate: a copy for each of {count} operands, by a table",)
    return target.shown(made, lambda: Plan(lines))


def _function(count: int, rows: int, row_bytes: int) -> Function:
    """for k in [begin, end): for r in rows: the operand's row r to its place in the result's."""
    w, (buffers, begin, end) = Writer(), PARAMETERS
    n, one, known_k, known_r = Named(w), w.int(1), Value("%k.next", "i64"), Value("%r.next", "i64")
    w.label("entry")
    place = n.address("result.place", buffers, w.int(count), "ptr")
    result = n.load("result", "ptr", place)
    w.branch("operand")
    w.label("operand")
    k = w.phi("i64", (begin, "entry"), (known_k, "operand.done"), name="%k").value
    w.branch_if(n.compare("more", "icmp slt", k, end), "known", "done")
    w.label("known")
    source = n.load("source", "ptr", n.address("source.place", buffers, k, "ptr"))
    entry = n.address("entry.place", Value(f"@{TABLE}", "ptr"), k, "[2 x i64]")
    width = n.load("width", "i64", entry, 8)
    at = n.load("at", "i64", n.address("at.place", entry, w.int(8), "i8"), 8)
    first = n.address("first", result, at, "i8")
    w.branch("row")
    w.label("row")
    r = w.phi("i64", (w.int(0), "known"), (known_r, "copy"), name="%r").value
    w.branch_if(n.compare("r.more", "icmp slt", r, w.int(rows)), "copy", "operand.done")
    w.label("copy")
    read = n.address("from", source, n.binary("from.bytes", "mul", r, width), "i8")
    written = n.binary("to.bytes", "mul", r, w.int(row_bytes))
    w.copy_bytes(n.address("to", first, written, "i8"), read, width)
    n.binary("r.next", "add", r, one)
    w.branch("row")
    w.label("operand.done")
    n.binary("k.next", "add", k, one)
    w.branch("operand")
    w.label("done")
    w.ret()
    return Function(records=w.records)
