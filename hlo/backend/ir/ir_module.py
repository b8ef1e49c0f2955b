"""IrModule: one compilation unit as text, and the symbols by which units know each other."""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.interface import prototype
from hlo.machine import Machine

ENTRY = "hlo_entry"
FILL = (
    "hlo_fill"  # The symbol that fills the tables of a program, if it has any (table_filling.py).
)
# The pool's parallel loop, what wakes its workers, and what asks whether any are awake:
# hlo/backend/entry/pool_ir.py.
PARALLEL = prototype("void", "hlo_parallel", "ptr", "ptr", *["i64"] * 6, "ptr")
WAKE = prototype("void", "hlo_wake")
AWAKE = prototype("i64", "hlo_awake", "i64", "i64")
LAPACK = "hlo_lapack_"  # How the symbols of LAPACK's routines begin.


class IrModule(Struct, frozen=True):
    """One compilation unit. optimised: whether LLVM's middle-end should see it; is_glue: whether
    it holds no loop that LLVM should optimise, so that plain code generation serves. machine: what
    LLVM makes code for; None: the processor that it runs on, with all that it has. is_small:
    whether little code is worth more than fast code. is_library: whether it is a function that
    programs of a process share.
    """

    text: str
    symbols: tuple[str, ...]
    optimised: bool = False
    is_glue: bool = False
    machine: Machine | None = None
    is_small: bool = False
    is_library: bool = False

    def __str__(self) -> str:
        return self.text
