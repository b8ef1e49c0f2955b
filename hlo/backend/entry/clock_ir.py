"""The clock as LLVM IR: nanoseconds that no change of the date moves."""

from __future__ import annotations

from hlo.backend.ir.interface import prototype
from hlo.backend.ir.procedure import Procedure
from hlo.backend.ir.words import Word

CLOCK = 1  # Linux: CLOCK_MONOTONIC
COARSE = 6  # Linux: CLOCK_MONOTONIC_COARSE, which costs a few ns; macOS: CLOCK_MONOTONIC

_GET_TIME = prototype("i32", "clock_gettime", "i32", "ptr")


def now(p: Procedure, clock: int = CLOCK) -> Word:
    """A clock's time in nanoseconds."""
    time = p.stack("[2 x i64]", 8)
    p.call(_GET_TIME, clock, time)
    return time.get("i64") * 1_000_000_000 + time.get("i64", 1)
