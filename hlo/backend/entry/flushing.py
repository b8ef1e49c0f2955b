"""Flushing: a run in which denormals are zeros, and the caller's floating-point mode after it."""

from __future__ import annotations

from hlo.backend.ir.records import Alloca, Arithmetic, Call, Load
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.generic import FloatMode


def around(run: str, mode: FloatMode, declarations: dict[str, str]) -> list[str]:
    """The body of a function that runs another of a frame in this mode and gives its status;
    what it calls is declared.
    """
    w, old, new = Writer(declarations=declarations), Value("%old", "ptr"), Value("%new", "ptr")
    bits, flush, status = (Value(f"%{name}", "i32") for name in ("bits", "flush", "status"))
    for slot in (old, new):
        w.append(Alloca(slot.text, "ptr", "alloca", (), memory="i32"))
    mode.save(w, old)
    w.append(Load(bits.text, bits.type, "load", (old,)))
    w.append(Arithmetic(flush.text, flush.type, "or", (bits, w.int(mode.flushing, "i32"))))
    w.emit("store", flush, new)
    mode.set(w, new)
    w.append(Call(status.text, status.type, "call", (Value("%frame", "ptr"),), symbol=run))
    mode.set(w, old)
    w.ret(status)
    return [str(record) for record in w.records]
