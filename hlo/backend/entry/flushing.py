"""Flushing: a run in which denormals are zeros, and the caller's floating-point mode after it."""

from __future__ import annotations

from hlo.backend.ir.named import Named
from hlo.backend.ir.records import Alloca
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.generic import FloatMode


def around(run: str, mode: FloatMode, declarations: dict[str, str]) -> list[str]:
    """The body of a function that runs another of a frame in this mode and gives its status;
    what it calls is declared.
    """
    w, old, new = Writer(declarations=declarations), Value("%old", "ptr"), Value("%new", "ptr")
    n = Named(w)
    for slot in (old, new):
        w.append(Alloca(slot.text, "ptr", "alloca", (), memory="i32"))
    mode.save(w, old)
    bits = n.load("bits", "i32", old)
    w.emit("store", n.binary("flush", "or", bits, w.int(mode.flushing, "i32")), new)
    mode.set(w, new)
    status = n.call("status", "i32", run, Value("%frame", "ptr"))
    mode.set(w, old)
    w.ret(status)
    return [str(record) for record in w.records]
