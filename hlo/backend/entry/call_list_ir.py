"""Call lists as LLVM IR: the entry of all programs that only call kernels one after the other.

    hlo_run_listed(frame)    runs the calls in the frame's header, gives 0

LLVM takes 0.3 to 0.9 ms for an entry, however short, which is a twentieth of what a short program
takes to compile. The calls are in memory instead, and this function is compiled once for a process.
"""

from __future__ import annotations

from hlo.backend.entry import table_ir
from hlo.backend.entry.layouts import Frame, ListedCall
from hlo.backend.entry.process import RUN_LISTED
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word


def define(unit: Unit) -> None:
    """The function in a unit with others."""
    unit.define(RUN_LISTED, _run_listed)


def _run_listed(p: Procedure, frame: Word) -> None:
    calls = frame.load(Frame.calls)
    with p.counted(calls.get("i64")) as number:
        row = calls.item("i64", number * ListedCall.words + 1)
        kernel, units = row.load(ListedCall.kernel), row.load(ListedCall.units)
        addresses = table_ir.slot(frame, row.load(ListedCall.slot))
        p.call_address("void", kernel, addresses, p.word(0), units)
    p.ret(p.word(0, "i32"))
