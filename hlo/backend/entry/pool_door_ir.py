"""The door to the pool as LLVM IR: programs run their loops through it, if there is a pool or not.

    hlo_parallel(kernel, .., run)   the pool's parallel loop, else all units on the caller's thread
    hlo_awake(threads, ns)          how many threads may run a short program's loops: the pool's
                                    answer, else one

To make the pool takes some ms, more than short programs take together in most processes: it is made
for the first program that wakes it, or when short ones have asked for it ASKED times. The cells
that both functions look into hold its functions then.
"""

from __future__ import annotations

from hlo.backend.entry import run_ir
from hlo.backend.ir.ir_module import AWAKE, PARALLEL
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import NULL, Field, Word

CELLS = "hlo_pool_cells"
CELLS_BYTES = 64
ASKED = 16  # Short programs until the pool is made.


class Cells:
    """Addresses, NULL where there is nothing yet: the pool's functions, and what makes it. asked:
    how many short programs have begun without it.
    """

    parallel = Field(0, "ptr")
    awake = Field(8, "ptr")
    make = Field(16, "ptr")
    asked = Field(24)


def text(architecture: str) -> str:
    """The door, and what stops runs, for an architecture as `platform.machine()` calls it."""
    unit = Unit()
    run_ir.define(unit, architecture)
    unit.data(CELLS, f"global [{CELLS_BYTES} x i8] zeroinitializer, align {CELLS_BYTES}")
    unit.define(PARALLEL, _parallel)
    unit.define(AWAKE, _awake)
    return unit.text()


def _parallel(p: Procedure, *parameters: Word) -> None:
    """All parameters go on to the pool."""
    kernel, row, _, units, _, _, _, piece, run = parameters
    pool = p.symbol(CELLS).load(Cells.parallel, "monotonic")
    with p.when(pool.ne(NULL)):
        p.call_address("void", pool, *parameters)
        p.ret()
    p.call(run_ir.PIECES, kernel, row, 0, units, piece, run, 1)
    p.ret()


def _awake(p: Procedure, threads: Word, ns: Word) -> None:
    cells = p.symbol(CELLS)
    pool = cells.load(Cells.awake, "monotonic")
    with p.when(pool.ne(NULL)):
        p.ret(p.call_address("i64", pool, threads, ns))
    asked = cells.load(Cells.asked, "monotonic") + 1
    cells.store(Cells.asked, asked, "monotonic")
    make = cells.load(Cells.make, "monotonic")
    with p.when(asked.eq(ASKED) & make.ne(NULL)):
        p.call_address("void", make, threads)
    p.ret(p.word(1))
