"""JIT: object files linked into this process."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence

import llvmlite.binding as llvm  # type: ignore[import-untyped]  # it has no types

from hlo.backend import toolchain

_lock = threading.Lock()


class Code:
    """Linked machine code; it stays as long as this object does."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        with _lock:  # engines are made on one thread at a time
            toolchain.initialise()
            # in the global context: the collector may end a context before the engine that uses it
            module = llvm.parse_assembly("")
            target = llvm.Target.from_triple(llvm.get_process_triple())
            self._engine = llvm.create_mcjit_compiler(
                module, target.create_target_machine(jit=True)
            )
            for body in objects:
                self._engine.add_object_file(llvm.ObjectFileRef.from_data(body))
            self._engine.finalize_object()

    def address(self, symbol: str) -> int:
        return int(self._engine.get_function_address(symbol))

    def data_address(self, symbol: str) -> int:
        return int(self._engine.get_global_value_address(symbol))

    def keep_forever(self) -> Code:
        """Never unload: threads of the process may be inside."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._engine))
        return self


def define_symbol(name: str, address: int) -> None:
    """Make an address known to code that is linked later."""
    llvm.add_symbol(name, address)
