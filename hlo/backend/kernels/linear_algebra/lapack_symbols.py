"""LAPACK's routines as symbols that compiled code may call: those of SciPy's own library.

symbol(name) in LLVM text --address_of--> the C function behind scipy.linalg.cython_lapack

The functions take Fortran's arguments (addresses only) with 32-bit integers. The extension alone is
loaded, not SciPy's package of Python code around it, which takes ten times as long.
"""

from __future__ import annotations

import ctypes
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from pathlib import Path

from hlo.backend.ir.ir_module import LAPACK
from hlo.errors import HloError
from hlo.once import once

EXTENSION = "scipy.linalg.cython_lapack"


def symbol(routine: str) -> str:
    """The symbol of a routine, `dgetrf`."""
    return LAPACK + routine


def has_routine(routine: str) -> bool:
    """Whether SciPy is installed and offers the routine."""
    return routine in _capsules()


def routine_address(symbol: str) -> int:
    """Where a routine lies; HloError where SciPy is missing."""
    capsule = _capsules().get(symbol.removeprefix(LAPACK))
    if capsule is None:
        raise HloError("unsupported", f"{symbol}: expected SciPy to be installed: no LAPACK")
    name_of, pointer = ctypes.pythonapi.PyCapsule_GetName, ctypes.pythonapi.PyCapsule_GetPointer
    name_of.restype, name_of.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    pointer.restype, pointer.argtypes = ctypes.c_void_p, (ctypes.py_object, ctypes.c_char_p)
    return int(pointer(capsule, name_of(capsule)))


@once
def _capsules() -> dict[str, object]:
    """Routine -> capsule of its C function; empty where there is no SciPy."""
    try:
        return dict(_extension().__pyx_capi__)  # type: ignore[attr-defined]  # Cython's
    except ImportError:
        return {}


@once
def _extension() -> object:
    """The extension from its file, where that is where it usually is; it stays loaded."""
    package = find_spec("scipy")
    for folder in (package.submodule_search_locations or ()) if package else ():
        for suffix in EXTENSION_SUFFIXES:
            file = Path(folder, "linalg", f"cython_lapack{suffix}")
            if file.exists():
                spec = spec_from_loader(EXTENSION, ExtensionFileLoader(EXTENSION, str(file)))
                if spec is not None and spec.loader is not None:
                    module = module_from_spec(spec)
                    spec.loader.exec_module(module)
                    return module
    from scipy.linalg import cython_lapack  # type: ignore[import-untyped]  # Cython's

    return cython_lapack
