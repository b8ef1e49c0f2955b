"""Native: the functions that every executable of the process shares, compiled once.

The call from Python (call_ir), the thread pool (pool_ir) and what stops runs, with the door to the
pool (run_ir, pool_door_ir), are one object each in the cache, kept under this package's sources.
The call is used only where this Python's and NumPy's objects lie as it expects; elsewhere
executables are called through ctypes.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import struct
import sys
import threading
from collections.abc import Callable

import numpy as np

from hlo.backend.entry import process
from hlo.backend.entry.layouts import Array, Object
from hlo.backend.ir.interface import Field
from hlo.backend.ir.ir_module import AWAKE, PARALLEL, WAKE, IrModule
from hlo.backend.linking.compile import own_object
from hlo.backend.linking.elf import processor
from hlo.backend.linking.jit import Code, define_symbol
from hlo.process.once import lock, once
from hlo.runtime.stops import Enter

METH_FASTCALL = 0x80
SIG_BLOCK, SIG_SETMASK, SIGNAL_SET_BYTES = 0, 2, 128  # Numbers of Linux, where the pool is.
_lock = lock()


class _MethodDef(ctypes.Structure):
    """CPython's PyMethodDef."""

    _fields_ = (
        ("name", ctypes.c_char_p),
        ("function", ctypes.c_void_p),
        ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )


class NativeCall:
    """Makes Python callables of call records."""

    def __init__(self, code: Code) -> None:
        address = code.address(process.CALL.symbol)
        push = ctypes.PYFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)  # keeps Python's lock
        self.push_frame = push(code.address(process.PUSH_FRAME.symbol))
        self._method = _MethodDef(b"hlo_call", address, METH_FASTCALL, b"Run the program.")
        self._new = ctypes.pythonapi.PyCFunction_NewEx
        self._new.restype = ctypes.py_object
        self._new.argtypes = (ctypes.c_void_p, ctypes.py_object, ctypes.c_void_p)

    def function(self, record: np.ndarray) -> Callable[..., object]:
        """The built-in function of a record; it keeps the record alive."""
        made: Callable[..., object] = self._new(ctypes.addressof(self._method), record, None)
        return made


@once
def native_call() -> NativeCall | None:
    """The call from Python, or None where object layouts are not the expected ones."""
    if not layouts_as_expected():
        return None
    runs()
    for name in process.CALL_PYTHON_SYMBOLS:
        define_symbol(name, address_of(getattr(ctypes.pythonapi, name)))
    library = ctypes.CDLL(None)
    for name in process.CALL_LIBRARY_SYMBOLS:
        define_symbol(name, address_of(getattr(library, name)))
    table = _numpy_table()
    for name, place in process.NUMPY_SYMBOLS.items():
        define_symbol(name, table[place])
    define_symbol(process.NDARRAY, id(np.ndarray))
    for name, known in process.NUMBER_SYMBOLS.items():
        define_symbol(name, id(known))
    return NativeCall(shared_code("call", _call_module))


def _call_module() -> IrModule:
    from hlo.backend.entry import call_ir  # as its like below, where no object was kept

    return IrModule(call_ir.text(), (process.CALL.symbol, process.PUSH_FRAME.symbol))


class Runs:
    """What stops runs, and the door to the pool: their state in this process, and the functions
    around a run and its loops.
    """

    def __init__(self) -> None:
        library = ctypes.CDLL(None)
        for name in process.RUN_SYMBOLS:
            define_symbol(name, address_of(getattr(library, name)))
        for name in process.RUN_PYTHON_SYMBOLS:
            define_symbol(name, address_of(getattr(ctypes.pythonapi, name)))
        self._code = shared_code("run", _run_module)
        own = (process.ENTER, process.POLL, process.POLL_STEP, process.PIECES, PARALLEL, AWAKE)
        for function in own:
            define_symbol(function.symbol, self._code.address(function.symbol))
        self.run_listed = self._code.address(process.RUN_LISTED.symbol)
        self._state = self._code.address(process.RUN_STATE)
        for key in (process.RunState.run_key, process.RunState.limit_key):
            library.pthread_key_create(ctypes.c_void_p(self._state + key.offset), None)
        self._forked()
        os.register_at_fork(after_in_child=self._forked)
        # These keep the interpreter's lock; `enter` gives it up itself, and tells of exceptions.
        enter = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
        limit = ctypes.PYFUNCTYPE(None, ctypes.c_int64)
        leave = ctypes.PYFUNCTYPE(None)
        self.enter = Enter(
            enter(self._code.address(process.ENTER.symbol)),
            limit(self._code.address(process.LIMIT.symbol)),
        )
        atexit.register(leave(self._code.address(process.LEAVE.symbol)))
        # Called from runs, with the interpreter's lock or without.
        self._make = ctypes.CFUNCTYPE(None, ctypes.c_int64)(lambda _: self._make_pool())
        self._open(process.PoolCells.make, ctypes.cast(self._make, ctypes.c_void_p).value or 0)
        self._threads = 1
        self._pool: Pool | None = None

    def share(self, threads: int) -> None:
        """A program for so many threads takes those that are awake: there are as many, once there
        is a pool.
        """
        self._threads = max(self._threads, threads)
        if self._pool is not None:
            self._pool.grow(self._threads)

    def lead_to(self, pool: Pool, code: Code) -> None:
        """The door leads to a pool from now on."""
        self._pool = pool
        self._open(process.PoolCells.awake, code.address(AWAKE.symbol))
        self._open(process.PoolCells.parallel, code.address(PARALLEL.symbol))

    def _make_pool(self) -> None:
        pool()
        self.share(1)

    def _open(self, cell: Field, address: int) -> None:
        at = self._code.address(process.POOL_CELLS) + cell.offset
        ctypes.c_uint64.from_address(at).value = address

    def _forked(self) -> None:
        """A process begins: its main thread is known, and no other thread runs anything."""
        main = threading.main_thread().ident or 0
        state, fields = self._state, process.RunState
        ctypes.c_uint64.from_address(state + fields.main_thread.offset).value = main
        ctypes.c_int32.from_address(state + fields.active.offset).value = 0


def _run_module() -> IrModule:
    from hlo.backend.entry import pool_interface_ir

    return IrModule(pool_interface_ir.text(processor()), (process.ENTER.symbol,))


@once
def runs() -> Runs:
    """What stops runs in this process: threads keep a run under its keys."""
    return Runs()


def shared_code(name: str, made: Callable[[], IrModule]) -> Code:
    """One of the modules that all executables share."""
    return Code([own_object(name, made)]).keep_forever()


def address_of(function: object) -> int:
    """Where a function of ctypes is."""
    pointer = ctypes.cast(function, ctypes.c_void_p)  # type: ignore[arg-type]  # a C function
    return pointer.value or 0


def _numpy_table() -> ctypes.Array[ctypes.c_size_t]:
    """NumPy's C API: an array of addresses behind a capsule."""
    from numpy._core import _multiarray_umath  # type: ignore[attr-defined]  # has no stub

    get = ctypes.pythonapi.PyCapsule_GetPointer
    get.restype, get.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    start = get(_multiarray_umath._ARRAY_API, None)
    return (ctypes.c_size_t * 300).from_address(start)


def layouts_as_expected() -> bool:
    """Whether the fields that native code reads and writes are where layouts.py says."""
    if sys.implementation.name != "cpython" or ctypes.sizeof(ctypes.c_void_p) != 8:
        return False
    if not getattr(sys, "_is_gil_enabled", lambda: True)():
        return False  # the free list and the frame rely on the interpreter's lock
    try:
        table = _numpy_table()
    except (ImportError, AttributeError, ValueError):
        return False
    probe = np.arange(6, dtype=np.float32).reshape(2, 3)
    start = id(probe)
    words = (ctypes.c_size_t * 9).from_address(start)
    rank = ctypes.c_int32.from_address(start + Array.rank.offset).value
    sizes = (ctypes.c_ssize_t * 2).from_address(words[Array.sizes.word])
    flags = ctypes.c_int32.from_address(start + Array.flags.offset).value
    return (
        words[Object.type.word] == id(np.ndarray)
        and words[Array.data.word] == probe.__array_interface__["data"][0]
        and rank == 2
        and tuple(sizes) == (2, 3)
        and words[Array.dtype.word] == id(probe.dtype)
        and flags & process.NEW_FLAGS == process.NEW_FLAGS
        and table[2] == id(np.ndarray)
        and ctypes.c_double.from_address(id(0.7) + Object.content.offset).value == 0.7
    )


class Pool:
    """The process's worker threads: grown when a program wants more, never shrunk."""

    def __init__(self) -> None:
        runs()
        library = ctypes.CDLL(None)
        for name in ("syscall", "sched_getcpu", "sched_setaffinity"):
            define_symbol(name, address_of(getattr(library, name)))
        # Older libraries of C have no gettid: 0, as sched_yield gives, is no thread.
        define_symbol("gettid", address_of(getattr(library, "gettid", library.sched_yield)))
        self._code = shared_code("pool", _pool_module)
        self._say_processors()
        define_symbol(WAKE.symbol, self._code.address(WAKE.symbol))
        self.waker = self._code.address(WAKE.symbol)
        self._worker = self._code.address(process.WORKER)
        self._state = self._code.address(process.POOL_STATE)
        self._create = library.pthread_create
        self._create.argtypes = (ctypes.c_void_p,) * 4
        self._detach = library.pthread_detach
        self._detach.argtypes = (ctypes.c_void_p,)
        self._mask = library.pthread_sigmask
        self._mask.argtypes = (ctypes.c_int, ctypes.c_char_p, ctypes.c_char_p)
        self._workers = 0
        os.register_at_fork(after_in_child=self._forked)
        runs().lead_to(self, self._code)

    def _say_processors(self) -> None:
        """Which processors this process may use, as far as there are bits for them."""
        words = [0] * process.PROCESSOR_WORDS
        for number in os.sched_getaffinity(0):
            if number < 64 * len(words):
                words[number // 64] |= 1 << number % 64
        packed = struct.pack(f"={len(words)}Q", *words)
        ctypes.memmove(self._code.address(process.POOL_PROCESSORS), packed, len(packed))

    def grow(self, threads: int) -> None:
        """At least threads - 1 workers, where the system gives them."""
        if threads <= self._workers + 1:
            return
        with _lock:
            blocked = self._signals_blocked(SIG_BLOCK, b"\xff" * SIGNAL_SET_BYTES)
            try:
                while self._workers < threads - 1:
                    thread = ctypes.c_void_p()
                    index = self._workers + 1
                    if self._create(ctypes.byref(thread), None, self._worker, index):
                        break  # no more threads: loops run on those there are
                    self._detach(thread)
                    self._workers += 1
            finally:
                self._signals_blocked(SIG_SETMASK, blocked)

    def _signals_blocked(self, how: int, chosen: bytes) -> bytes:
        """Change this thread's blocked signals, which its threads inherit; gives those before."""
        before = ctypes.create_string_buffer(SIGNAL_SET_BYTES)
        self._mask(how, chosen, before)
        return before.raw

    def _forked(self) -> None:
        """A child has none of its parent's threads: programs of before the fork need its own."""
        workers, self._workers = self._workers, 0
        ctypes.memset(self._state, 0, process.POOL_STATE_BYTES)
        threads = self._code.address(process.POOL_THREADS)
        ctypes.memset(threads, 0, 4 * process.WORKERS_KNOWN)
        self.grow(workers + 1)


def _pool_module() -> IrModule:
    from hlo.backend.entry import pool_ir

    return IrModule(pool_ir.text(processor()), (PARALLEL.symbol,))


@once
def pool() -> Pool | None:
    """The pool, or None on systems without futexes."""
    if sys.platform != "linux" or processor() not in process.FUTEX_SYSCALL:
        return None
    return Pool()
