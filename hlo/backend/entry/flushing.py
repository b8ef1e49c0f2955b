"""Flushing: a run in which denormals are zeros, and the caller's floating-point mode after it."""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.generic import FloatMode


def around(run: str, mode: FloatMode, declarations: dict[str, str]) -> list[str]:
    """The body of a function that runs another of a frame in this mode and gives its status;
    what it calls is declared.
    """
    w, old, new = Writer(declarations=declarations), Value("%old", "ptr"), Value("%new", "ptr")
    for slot in (old, new):
        w.emit(f"{slot} = alloca i32")
    mode.save(w, old)
    w.emit(f"%bits = load i32, {old.typed}")
    w.emit(f"%flush = or i32 %bits, {mode.flushing}")
    w.emit(f"store i32 %flush, {new.typed}")
    mode.set(w, new)
    w.emit(f"%status = call i32 @{run}(ptr %frame)")
    mode.set(w, old)
    w.emit("ret i32 %status")
    return w.lines
