"""IrModule: one compilation unit as text, and the symbols by which units know each other."""

from __future__ import annotations

from msgspec import Struct

from hlo.machine import Machine

ENTRY = "hlo_entry"
FILL = "hlo_fill"  # fills the tables, where a program has any: hlo/backend/ir/filling.py
PARALLEL = "hlo_parallel"  # the pool's loop: hlo/backend/entry/pool_ir.py
PARALLEL_TYPES = "ptr, ptr, i64, i64, i64, i64, i64, i64, ptr"  # of its parameters
WAKE = "hlo_wake"
LAPACK = "hlo_lapack_"  # begins the symbols of LAPACK's routines


class IrModule(Struct, frozen=True):
    """One compilation unit. optimised: whether LLVM's middle-end should see it; is_glue: whether
    it holds no loop that LLVM should optimise, so that plain code generation serves. machine: what
    LLVM makes code for; None: the processor that it runs on, with all that it has.
    """

    text: str
    symbols: tuple[str, ...]
    optimised: bool = False
    is_glue: bool = False
    machine: Machine | None = None

    def __str__(self) -> str:
        return self.text
