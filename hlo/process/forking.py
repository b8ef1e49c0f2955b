"""Forks beside threads that compile: a gate before LLVM, closed while a fork takes place.

    with inside(): calls into LLVM

A child has one thread, and whatever the others held in C (LLVM's own locks, llvmlite's, a module
half imported) stays held for ever. So a fork waits until other threads are out and none imports
this package or what it needs; new ones wait at the gate meanwhile. A module takes LLVM a fraction
of a second, but nobody's fork waits for more than PATIENCE_S: a child of such a fork compiles
nothing, and says so.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

PATIENCE_S = 20.0  # the imports of a first compilation take a second of a processor
_PAUSE_S = 0.001
# What this package imports. A program's own modules may be imported as long as it runs.
_WANTED = sys.stdlib_module_names | {
    "hlo", "lark", "llvmlite", "ml_dtypes", "msgspec", "numpy", "scipy"
}  # fmt: skip
_MESSAGE = (
    "this process was forked while another thread was importing or compiling, expected one that was"
    " started, or forked while none was"
)
_HELP = "compile before the fork, or start processes by spawn or forkserver"


class Gate:
    """The gate between threads that use LLVM and forks.

    depths: how often each thread has entered; closed: a fork is about to take place.
    """

    def __init__(self) -> None:
        self.reset()
        self.is_broken = False

    def reset(self) -> None:
        """Nobody is inside but this thread, as often as it was."""
        me = threading.get_ident()
        depth = getattr(self, "depths", {}).get(me, 0)
        self.depths: dict[int, int] = {me: depth} if depth else {}
        self.is_closed = False
        self.changed = threading.Condition()

    @contextmanager
    def inside(self) -> Iterator[None]:
        """Within, this thread calls LLVM; HloError in a child that cannot."""
        self.check()
        me = threading.get_ident()
        with self.changed:
            while self.is_closed and me not in self.depths:
                self.changed.wait()
            self.depths[me] = self.depths.get(me, 0) + 1
        try:
            yield
        finally:
            with self.changed:
                self.depths[me] -= 1
                if not self.depths[me]:
                    del self.depths[me]
                    self.changed.notify_all()

    def check(self) -> None:
        """Refuse at once what would wait for ever."""
        if not self.is_broken:
            return
        error = getattr(sys.modules.get("hlo.errors"), "HloError", None)
        if error is None:  # an import of it, too, might wait for ever
            raise RuntimeError(f"{_MESSAGE}; {_HELP}")
        raise error("forked", _MESSAGE, help=_HELP)

    def close(self, deadline: float) -> bool:
        """Keep others out; whether they were all out in time."""
        me = threading.get_ident()
        with self.changed:
            self.is_closed = True
            while self.depths.keys() - {me}:
                left = deadline - time.monotonic()
                if left <= 0 or not self.changed.wait(left):
                    return not self.depths.keys() - {me}
        return True

    def open(self) -> None:
        """Let others in again."""
        with self.changed:
            self.is_closed = False
            self.changed.notify_all()


class _Fork:
    """What the handlers around one fork hand on to each other."""

    def __init__(self, gate: Gate) -> None:
        self.gate = gate
        self.turn = threading.Lock()  # of one fork after the other
        self.is_quiet = True
        self.holds_imports = False
        self.library: Any = None  # llvmlite's lock, held

    def before(self) -> None:
        self.turn.acquire()
        deadline = time.monotonic() + PATIENCE_S
        self.is_quiet = self.gate.close(deadline) and self._imports_rest(deadline)
        self.library = library_lock()
        if self.library is not None and not self.library.acquire(
            timeout=max(_PAUSE_S, deadline - time.monotonic())
        ):
            self.library, self.is_quiet = None, False

    def _imports_rest(self, deadline: float) -> bool:
        """Hold the lock under which imports begin, when no other thread imports what we need."""
        imports = sys.modules.get("_imp")
        if imports is None or not hasattr(imports, "acquire_lock"):
            return True
        while True:
            imports.acquire_lock()
            if not _is_importing():
                self.holds_imports = True
                return True
            imports.release_lock()
            if time.monotonic() > deadline:
                return False
            time.sleep(_PAUSE_S)

    def _release(self) -> None:
        if self.holds_imports:
            self.holds_imports = False
            with suppress(RuntimeError):  # newer Pythons give it back in the child themselves
                sys.modules["_imp"].release_lock()

    def in_parent(self) -> None:
        self._release()
        if self.library is not None:
            self.library.release()
            self.library = None
        self.gate.open()
        self.turn.release()

    def in_child(self) -> None:
        self._release()
        if self.library is not None:
            self.library.release()
            self.library = None
        self.turn = threading.Lock()
        self.gate.reset()
        self.gate.is_broken = self.gate.is_broken or not self.is_quiet


def _is_importing() -> bool:
    """Whether another thread is importing a module of this package or one that it needs."""
    me = threading.get_ident()
    held = getattr(sys.modules.get("_frozen_importlib"), "_module_locks", {})
    for name, reference in list(held.items()):
        module_lock = reference()  # there while a thread wants it, whoever owns it by now
        is_wanted = module_lock is not None and name.split(".")[0] in _WANTED
        if is_wanted and getattr(module_lock, "owner", me) != me:
            return True
    return False


def library_lock() -> Any:
    """llvmlite's own lock, under which even its small calls are made; None: not loaded, or new."""
    library = getattr(sys.modules.get("llvmlite.binding.ffi"), "lib", None)
    found = getattr(getattr(library, "_lock", None), "_lock", None)
    return found if hasattr(found, "acquire") else None


GATE = Gate()
inside = GATE.inside
_fork = _Fork(GATE)
# Of handlers before a fork, the last one registered runs first: these take a lock, which a thread
# that this one waits for may need. And no thread may import the module while another one forks: it
# would let go of what it has not taken.
_TAKING_LOCKS = (logging,)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_fork.before, after_in_parent=_fork.in_parent, after_in_child=_fork.in_child
    )
