"""LAPACK's routines as symbols that compiled code may call: those of SciPy's own library.

symbol(name) in LLVM text --symbol_address--> the C function behind scipy.linalg.cython_lapack

The functions take Fortran's arguments (addresses only) with 32-bit integers. One symbol more is
what the process knows of the library's threads (hlo/ops/lapack_library.py).
"""

from __future__ import annotations

import ctypes

from hlo.backend.ir.ir_module import LAPACK
from hlo.errors import HloError
from hlo.ops.lapack_library import library_threads, routine_capsule

THREADS = LAPACK + "threads"


def symbol(routine: str) -> str:
    """The symbol of a routine, `dgetrf`."""
    return LAPACK + routine


def has_routine(routine: str) -> bool:
    """Whether SciPy is installed and offers the routine."""
    return routine_capsule(routine) is not None


def symbol_address(symbol: str) -> int:
    """Where a routine or the library's threads lie; HloError where SciPy is missing."""
    if symbol == THREADS:
        return ctypes.addressof(library_threads().state)
    capsule = routine_capsule(symbol.removeprefix(LAPACK))
    if capsule is None:
        raise HloError("unsupported", f"{symbol}: expected SciPy to be installed: no LAPACK")
    name_of, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(pointer(capsule, name_of(capsule)))
