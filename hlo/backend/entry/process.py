"""The functions that all programs of a process share: symbols, prototypes, words of memory.

Who writes them: call_ir.py, block_ir.py, scalar_ir.py, run_ir.py, call_list_ir.py, pool_ir.py and
pool_interface_ir.py, none of which is needed where their objects were kept.
"""

from __future__ import annotations

from hlo.backend.ir.interface import Field, prototype
from hlo.ir import dtype as types
from hlo.ir.dtype import DType
from hlo.machine import COMMON

# -- the call from Python (call_ir.py) ---------------------------------------------------------

# Flags of the call record: other Python threads may run meanwhile; the result is a tuple; an
# argument is given away; the run may be stopped, which lets other threads run too.
RELEASES, TUPLE, GIVES, WATCHED = 1, 2, 4, 8
CALL_PYTHON_SYMBOLS = (
    "Py_IncRef", "Py_DecRef", "PyEval_SaveThread", "PyEval_RestoreThread", "PyTuple_New",
    "PyTuple_SetItem", "PyObject_Vectorcall", "PyCapsule_New", "PyCapsule_GetPointer",
    "PyErr_NoMemory", "PyLong_AsLongLongAndOverflow", "PyLong_FromLong",
    "PyObject_GetAttr", "PyObject_GetBuffer", "PyBuffer_Release", "PyErr_Clear",
)  # fmt: skip
CALL_LIBRARY_SYMBOLS = ("posix_memalign", "free", "syscall", "memcpy")
# Places in the table of NumPy's C API.
NUMPY_SYMBOLS = {"hlo_new_from_descr": 94, "hlo_set_base": 282}

CALL = prototype("ptr", "hlo_call", "ptr", "ptr", "i64")
PUSH_FRAME = prototype("void", "hlo_push_frame", "ptr", "ptr")
# What a frame is told of its run: it goes as planned; its caller is alone; workers are woken.
PLANNED, ALONE, WOKEN = range(3)
TRIED = prototype("void", "hlo_tried", "ptr", "i64", "i64")

# -- numbers as arguments (scalar_ir.py) -------------------------------------------------------

# Kinds of types for which native code takes Python numbers; for the others (kind 0) Python does.
SIGNED, UNSIGNED, PRED, DOUBLE, SINGLE, BFLOAT = range(1, 7)
NUMBER_SYMBOLS = {"hlo_float": float, "hlo_int": int, "hlo_bool": bool, "hlo_true": True}
_KINDS = {types.PRED: PRED, types.F64: DOUBLE, types.F32: SINGLE, types.BF16: BFLOAT}
_WHOLE = (types.S8, types.S16, types.S32, types.S64, types.U8, types.U16, types.U32, types.U64)


def kind(dtype: DType) -> int:
    """How Python numbers become the type."""
    if dtype in _WHOLE:
        return SIGNED if dtype.is_signed else UNSIGNED
    return _KINDS.get(dtype, 0)


# -- results (block_ir.py) -----------------------------------------------------------------------

# Results from this size on come from the free list, or all that have any bytes.
BLOCK_BYTES = 32 * 1024
# Those below take NumPy's memory, which keeps blocks of less than KEPT_BYTES itself. The C library
# gives the end of its heap back from 128 KiB on: where a program's small results together come near
# that, each call could touch all their pages for the first time.
KEPT_BYTES = 1024
TRIMMED_BYTES = 64 * 1024
NDARRAY = "hlo_ndarray"
NEW_FLAGS = 0x501  # NumPy's flags of new arrays: contiguous in C's order, aligned, writeable.

# -- runs that can be stopped (run_ir.py) --------------------------------------------------------

# Why a run stops: a host call failed, whose status is 1 and whose error the frame knows; Python
# raised; time is over; the interpreter exits; a handler of XLA's FFI failed, whose error
# hlo/runtime/stops.py knows.
FAILED, RAISED, LATE, EXITING, HANDLER = 1, 2, 3, 4, 5
POLL_NS = 10_000  # Estimated work between two looks at the clock.
RUN_STATE = "hlo_run_state"
RUN_STATE_BYTES = 64


class RunState:
    """What the process's runs share: the key of a thread's run, the key of the deadline that its
    next run has, the main thread, whether the interpreter exits, runs under way on other threads.
    """

    run_key = Field(0, "i32")
    limit_key = Field(4, "i32")
    main_thread = Field(8)
    exits = Field(16, "i32")
    active = Field(20, "i32")


ENTER = prototype("i32", "hlo_enter", "ptr", "ptr")
POLL = prototype("i32", "hlo_poll")
POLL_STEP = prototype("i32", "hlo_poll_step", "ptr")
PIECES = prototype("void", "hlo_pieces", "ptr", "ptr", "i64", "i64", "i64", "ptr", "i64")
LIMIT = prototype("void", "hlo_limit", "i64")
LEAVE = prototype("void", "hlo_leave")
SAVE_THREAD = prototype("ptr", "PyEval_SaveThread")
RESTORE_THREAD = prototype("void", "PyEval_RestoreThread", "ptr")
RUN_SYMBOLS = (
    "pthread_getspecific", "pthread_setspecific", "pthread_self", "clock_gettime", "usleep",
)  # fmt: skip
RUN_PYTHON_SYMBOLS = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals")

# -- the thread pool (pool_ir.py) ----------------------------------------------------------------

FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98, "riscv64": 98}
WORKER = "hlo_worker"
POOL_STATE = "hlo_pool_state"
POOL_LINE_BYTES = COMMON.line_bytes
POOL_STATE_BYTES = 4 * POOL_LINE_BYTES
# Workers who are asleep are woken for short programs that have taken so long since they were.
WORTH_NS = 750_000  # To wake a worker costs a caller 12 to 17 us: a fiftieth of this.

# -- which processors workers use (placing_ir.py) ------------------------------------------------

POOL_THREADS = "hlo_pool_threads"
POOL_PROCESSORS = "hlo_pool_processors"
WORKERS_KNOWN = 256  # Further ones run wherever the system puts them.
PROCESSOR_WORDS = 16  # Of 64 processors each.

# -- programs that are lists of calls (call_list_ir.py) ------------------------------------------

RUN_LISTED = prototype("i32", "hlo_run_listed", "ptr")

# -- the door to the pool (pool_interface_ir.py) ---------------------------------------------------

POOL_CELLS = "hlo_pool_cells"
POOL_CELLS_BYTES = 64


class PoolCells:
    """Addresses, NULL where there is nothing yet: the pool's functions, and what makes it. asked:
    how many short programs have begun without it.
    """

    parallel = Field(0, "ptr")
    awake = Field(8, "ptr")
    make = Field(16, "ptr")
    asked = Field(24)
