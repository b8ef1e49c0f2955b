"""Cycles: how many the processor's counter goes on in a microsecond.

The counter that `llvm.readcyclecounter` reads goes at one rate on processors of this century,
whatever clock the core has just then.
"""

from __future__ import annotations

import ctypes
import time

from hlo.backend.ir.ir_module import IrModule
from hlo.backend.linking.compile import objects
from hlo.backend.linking.jit import Code
from hlo.process.once import once

APART_S = 0.02  # So long the counter is watched: perf_counter's own errors are below 1 us.
SYMBOL = "hlo_cycles"
TEXT = f"""declare i64 @llvm.readcyclecounter()
define i64 @{SYMBOL}() {{
  %cycles = call i64 @llvm.readcyclecounter()
  ret i64 %cycles
}}"""


@once
def cycles_in_us() -> float:
    """Measured once in a process; 0 where the counter stands still."""
    code = Code(objects([IrModule(TEXT, (SYMBOL,))])).keep_forever()
    cycles = ctypes.CFUNCTYPE(ctypes.c_int64)(code.address(SYMBOL))
    cycles()
    first, began = cycles(), time.perf_counter()
    time.sleep(APART_S)
    last, ended = cycles(), time.perf_counter()
    rate: float = (last - first) / (ended - began) / 1e6
    return max(0.0, rate)
