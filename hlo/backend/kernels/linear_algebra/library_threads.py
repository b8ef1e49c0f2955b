"""Library threads: LAPACK's library works with one thread while a kernel calls it.

The kernel's threads enter and leave as the interpreter does (hlo/ops/lapack_library.py), under the
same mutex: the first finds out how many threads the library has, the last gives them back.
"""

from __future__ import annotations

from hlo.backend.ir.called import as_function
from hlo.backend.ir.interface import NULL, Field, prototype
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.procedure import Procedure
from hlo.backend.ir.words import Word
from hlo.backend.ir.writer import Writer
from hlo.backend.kernels.linear_algebra.lapack_symbols import THREADS
from hlo.ops.lapack_library import LibraryThreads
from hlo.process.once import once

INSIDE = Field(LibraryThreads.inside.offset, "i32")
BEFORE = Field(LibraryThreads.before.offset, "i32")
GET = Field(LibraryThreads.get.offset, "ptr")
SET = Field(LibraryThreads.set.offset, "ptr")
LOCK = prototype("i32", "pthread_mutex_lock", "ptr")
UNLOCK = prototype("i32", "pthread_mutex_unlock", "ptr")


@once
def entering() -> Kernel:
    """(): one thread, until as many have left."""
    p = Procedure(Writer(), ())
    state = _state(p)
    p.call(LOCK, state)
    inside, get = state.load(INSIDE), state.load(GET)
    with p.when(inside.eq(0) & get.ne(NULL)):
        state.store(BEFORE, p.call_address("i32", get))
        p.call_address("void", state.load(SET), p.word(1, "i32"))
    state.store(INSIDE, inside + 1)
    p.call(UNLOCK, state)
    return as_function(p.w, (), is_library=True)


@once
def leaving() -> Kernel:
    """(): the last gives the library its threads back."""
    p = Procedure(Writer(), ())
    state = _state(p)
    p.call(LOCK, state)
    inside, get = state.load(INSIDE) - 1, state.load(GET)
    state.store(INSIDE, inside)
    with p.when(inside.eq(0) & get.ne(NULL)):
        p.call_address("void", state.load(SET), state.load(BEFORE))
    p.call(UNLOCK, state)
    return as_function(p.w, (), is_library=True)


def _state(p: Procedure) -> Word:
    """The process's LibraryThreads."""
    p.w.declarations[THREADS] = f"@{THREADS} = external global i8"
    return p.symbol(THREADS)
