"""The pool's interface as LLVM IR: programs run their loops through it, pool or none.

    hlo_parallel(kernel, .., run)   the pool's parallel loop, else all units on the caller's thread
    hlo_awake(threads, ns)          how many threads may run a short program's loops: the pool's
                                    answer, else one

To make the pool takes some ms, more than short programs take together in most processes: it is made
for the first program that wakes it, or when short ones have asked for it ASKED times. The cells
that both functions look into hold its functions then.
"""

from __future__ import annotations

from hlo.backend.entry import call_list_ir, run_ir
from hlo.backend.entry.process import PIECES, POOL_CELLS, POOL_CELLS_BYTES, PoolCells
from hlo.backend.ir.interface import NULL
from hlo.backend.ir.ir_module import AWAKE, PARALLEL
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word

ASKED = 16  # Short programs until the pool is made.


def text(architecture: str) -> str:
    """The door, what stops runs and what runs lists of calls, for an architecture as
    `platform.machine()` calls it.
    """
    unit = Unit()
    run_ir.define(unit, architecture)
    call_list_ir.define(unit)
    unit.data(POOL_CELLS, f"global [{POOL_CELLS_BYTES} x i8] zeroinitializer, align 64")
    unit.define(PARALLEL, _parallel)
    unit.define(AWAKE, _awake)
    return unit.text()


def _parallel(p: Procedure, *parameters: Word) -> None:
    """All parameters go on to the pool."""
    kernel, row, _, units, _, _, _, piece, run = parameters
    pool = p.symbol(POOL_CELLS).load(PoolCells.parallel, "monotonic")
    with p.when(pool.ne(NULL)):
        p.call_address("void", pool, *parameters)
        p.ret()
    p.call(PIECES, kernel, row, 0, units, piece, run, 1)
    p.ret()


def _awake(p: Procedure, threads: Word, ns: Word) -> None:
    cells = p.symbol(POOL_CELLS)
    pool = cells.load(PoolCells.awake, "monotonic")
    with p.when(pool.ne(NULL)):
        p.ret(p.call_address("i64", pool, threads, ns))
    asked = cells.load(PoolCells.asked, "monotonic") + 1
    cells.store(PoolCells.asked, asked, "monotonic")
    make = cells.load(PoolCells.make, "monotonic")
    with p.when(asked.eq(ASKED) & make.ne(NULL)):
        p.call_address("void", make, threads)
    p.ret(p.word(1))
