"""Flushing: a run in which denormals are zeros, and the caller's floating-point mode after it."""

from __future__ import annotations

from hlo.backend.ir.interface import Prototype
from hlo.backend.ir.procedure import Procedure
from hlo.backend.ir.words import Word
from hlo.backend.isa.generic import FloatMode


def around(p: Procedure, frame: Word, run: Prototype, mode: FloatMode) -> None:
    """Run another function of a frame in this mode, and give its status."""
    old, new = p.stack("i32", 4), p.stack("i32", 4)
    mode.save(p.w, old)
    new.put(old.get("i32") | mode.flushing)
    mode.set(p.w, new)
    status = p.call(run, frame)
    mode.set(p.w, old)
    p.ret(status)
