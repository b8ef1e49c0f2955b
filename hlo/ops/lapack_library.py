"""SciPy's library of LAPACK: its routines as C functions, and the threads that it works with.

    routine_capsule("dgetrf")    the C function behind scipy.linalg.cython_lapack
    with one_thread(): ...       meanwhile the library makes no threads of its own

The extension alone is loaded, not SciPy's package of Python code around it, which takes ten times
as long. OpenBLAS, with which SciPy is built, shares the work of one call out to all processors, and
calls of several threads then wait for each other: a batch of matrices by two threads takes 2 to 30
times as long as by one (4 matrices of 200 x 200, two processors). It works with one thread where
problems are many, which have threads of ours, and where they are small. Rounding depends on how the
library shares work out, so the interpreter and compiled code ask here alike.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader
from importlib.util import find_spec, module_from_spec, spec_from_loader
from math import prod
from pathlib import Path

from hlo.process.once import once

EXTENSION = "scipy.linalg.cython_lapack"
# The work (elements times the shorter side) of one problem that is worth the library's threads: a
# matrix of 256 x 256. QR of complex matrices of 100 x 100 takes twice as long with two as with one,
# factorisations of 300 x 300 as long, those of 700 x 700 two thirds.
LEAST_SHARED_WORK = 1 << 24
# How OpenBLAS calls the functions around its number of threads, in SciPy's build and in others.
_PREFIXES = ("scipy_openblas_", "openblas_")


def routine_capsule(routine: str) -> object | None:
    """The capsule of a routine's C function; None where there is no SciPy, or not in it."""
    return _capsules().get(routine)


def works_alone(dims: Sequence[int], rank: int) -> bool:
    """Whether the library works with one thread on problems whose first operand has these
    dimensions, the last `rank` of them of one problem.
    """
    problem = dims[len(dims) - rank :]
    work = prod(problem) * min(problem, default=1)
    return prod(dims[: len(dims) - rank]) != 1 or work <= LEAST_SHARED_WORK


class LibraryThreads(ctypes.Structure):
    """What the process knows of the library's threads. inside: how many callers want one thread
    now; before: the number that returns when the last of them leaves; get, set: the library's
    functions, NULL where it has none. mutex: around all of it, of C, as compiled code takes it too.
    """

    _fields_ = (
        ("mutex", ctypes.c_char * 64),
        ("inside", ctypes.c_int32),
        ("before", ctypes.c_int32),
        ("get", ctypes.c_void_p),
        ("set", ctypes.c_void_p),
    )


class _Threads:
    """The process's LibraryThreads, and its functions for Python."""

    def __init__(self) -> None:
        self.state = LibraryThreads()
        self._process = ctypes.CDLL(None)
        self._get, self._set = _function("get_num_threads"), _function("set_num_threads")
        if self._get and self._set:
            self.state.get = ctypes.cast(self._get, ctypes.c_void_p).value
            self.state.set = ctypes.cast(self._set, ctypes.c_void_p).value
        self._open()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    def count(self) -> int:
        """How many the library has now; 1 where it does not say."""
        return int(self._get()) if self._get else 1

    def enter(self) -> None:
        """One thread, until as many have left."""
        state = self.state
        self._process.pthread_mutex_lock(ctypes.byref(state))
        if state.inside == 0 and self._get and self._set:
            state.before = self._get()
            self._set(1)
        state.inside += 1
        self._process.pthread_mutex_unlock(ctypes.byref(state))

    def leave(self) -> None:
        """The last gives the library its threads back."""
        state = self.state
        self._process.pthread_mutex_lock(ctypes.byref(state))
        state.inside -= 1
        if state.inside == 0 and self._get and self._set:
            self._set(state.before)
        self._process.pthread_mutex_unlock(ctypes.byref(state))

    def _open(self) -> None:
        self._process.pthread_mutex_init(ctypes.byref(self.state), None)

    def _forked(self) -> None:
        """None of the callers is in a child."""
        if self.state.inside and self._get and self._set:
            self._set(self.state.before)
        self.state.inside = 0
        self._open()


def _function(name: str) -> ctypes._CFunctionType | None:
    """OpenBLAS's function of a name, as the library behind the extension has it; None: it is
    another library."""
    file = getattr(_extension(), "__file__", None)
    library = ctypes.CDLL(file) if file else None
    found = (getattr(library, prefix + name, None) for prefix in _PREFIXES)
    return next(filter(None, found), None)


@once
def library_threads() -> _Threads:
    """The process's one."""
    return _Threads()


@contextmanager
def one_thread() -> Iterator[None]:
    """Within, the library works with one thread."""
    threads = library_threads()
    threads.enter()
    try:
        yield
    finally:
        threads.leave()


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
