"""Aligning: an array's own address where it begins a cache line, else that of a copy."""

from __future__ import annotations

from hlo.backend.ir.interface import MEMCPY
from hlo.backend.ir.procedure import Procedure
from hlo.backend.ir.words import Word
from hlo.backend.planning.program import AlignStep


def aligned_address(p: Procedure, source: Word, spare: Word, step: AlignStep) -> Word:
    """The source's address or, where its bytes have to be copied there, the spare's."""
    begins = (source.to("i64") & (step.line_bytes - 1)).eq(0)
    address = begins.select(source, spare)
    there = p.join()
    there.go_if(begins)
    p.call(MEMCPY, spare, source, step.size, 0)
    there.here()
    return address
