"""Placing as LLVM IR: workers keep off the processor of the caller that wakes them.

    hlo_avoid(processor)   all workers may run on what the process may use, but not there

Linux may put a thread that is woken on the processor of the thread that wakes it, although others
are idle, and finds out some ms later: a caller that is woken for then, and spins or waits for its
worker, has half a processor. Measured on two virtual processors (Linux 6.18), a loop of short
products (an LSTM of 100 steps) called in turns with a program of one thread: 1.6 ms where both
threads shared a processor, 0.7 where the worker kept off the caller's, 1.14 on one thread.

A caller says so before it wakes anybody, and again only when it has moved since.
"""

from __future__ import annotations

from hlo.backend.entry.process import (
    POOL_PROCESSORS,
    POOL_THREADS,
    PROCESSOR_WORDS,
    WORKERS_KNOWN,
)
from hlo.backend.ir.interface import Field, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word

_AVOID = prototype("void", "hlo_avoid", "i64")
_HERE = prototype("i32", "sched_getcpu")
_OWN_THREAD = prototype("i32", "gettid")
_PLACE = prototype("i32", "sched_setaffinity", "i32", "i64", "ptr")


def define(unit: Unit) -> None:
    """What workers and callers share, and the function."""
    unit.data(POOL_THREADS, f"global [{WORKERS_KNOWN} x i32] zeroinitializer, align 64")
    unit.data(POOL_PROCESSORS, f"global [{PROCESSOR_WORDS} x i64] zeroinitializer, align 64")
    unit.define(_AVOID, _avoid, linkage="internal", attributes="noinline cold")


def begin(p: Procedure, index: Word) -> None:
    """A worker says which thread it is. index: its number, from 1 on."""
    with p.when(index.at_most(WORKERS_KNOWN)):
        p.symbol(POOL_THREADS).put(p.call(_OWN_THREAD), index - 1)


def keep_off(p: Procedure, state: Word, avoided: Field) -> None:
    """Before workers are woken. avoided: where it says of which processor, and one, they keep
    off.
    """
    here = p.call(_HERE)
    with p.when(state.load(avoided, "monotonic").ne(here + 1)):
        state.store(avoided, here + 1, "monotonic")
        p.call(_AVOID, here.to("i64"))


def _avoid(p: Procedure, processor: Word) -> None:
    """A processor whose number has no bit is not avoided; nor is the only one."""
    allowed, others = p.symbol(POOL_PROCESSORS), p.stack(f"[{PROCESSOR_WORDS} x i64]", 8)
    bit, left = p.word(1) << (processor & 63), p.word(0)
    for place in range(PROCESSOR_WORDS):
        word = allowed.get("i64", place)
        kept = (processor >> 6).eq(place).select(word & bit.binary("xor", -1), word)
        others.put(kept, place)
        left = left.binary("or", kept)
    with p.when(left.ne(0)), p.counted(p.word(WORKERS_KNOWN)) as k:
        thread = p.symbol(POOL_THREADS).get("i32", k)
        with p.when(thread.ne(0)):
            p.call(_PLACE, thread, 8 * PROCESSOR_WORDS, others)
    p.ret()
