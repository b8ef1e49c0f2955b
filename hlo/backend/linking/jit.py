"""JIT: object files linked into this process.

On x86-64 Linux our own loader does it (elf.py); elsewhere LLVM's MCJIT.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Mapping, Sequence

from hlo.backend.ir.ir_module import LAPACK
from hlo.backend.linking import elf
from hlo.process.forking import inside
from hlo.process.once import lock

# Libraries that LLVM's code may call into: for memcpy, fmod, arithmetic on wide integers.
LIBRARIES = (None, "libm.so.6", "libgcc_s.so.1")
PERF_MAP = "HLO_PERF_MAP"  # whose presence in the environment asks for names of functions
_lock = lock()
_defined: dict[str, int] = {}


class Code:
    """Linked machine code; it stays as long as this object does."""

    def __init__(self, objects: Sequence[bytes], labels: Mapping[str, str] | None = None) -> None:
        """labels: names by symbol, for a profiler that wants them."""
        self._linked = elf.Image(objects, address_of) if elf.is_supported() else Engine(objects)
        if os.environ.get(PERF_MAP):
            from hlo.backend.linking import perf_map

            perf_map.write(objects, self.address, labels or {})

    def address(self, symbol: str) -> int:
        """Where a function or a variable lies."""
        return self._linked.address(symbol)

    def find(self, symbol: str) -> int:
        """Where a function lies; 0 where no object defines it."""
        return self._linked.find(symbol)

    def run_once(self, symbol: str) -> None:
        """Call a function of the objects, if they define it; variables never change after it."""
        address = self.find(symbol)
        if address:
            ctypes.CFUNCTYPE(ctypes.c_int32, ctypes.c_void_p)(address)(None)
            self._linked.seal()

    def keep_forever(self) -> Code:
        """Never unload: threads of the process may be inside."""
        self._linked.keep_forever()
        return self


class Engine:
    """MCJIT around objects."""

    def __init__(self, objects: Sequence[bytes]) -> None:
        import re  # only where there is no loader of ours

        from llvmlite import binding as llvm  # type: ignore[import-untyped]  # it has no types

        from hlo.backend.linking import toolchain

        toolchain.initialise()
        with inside(), _lock:  # engines are made on one thread at a time
            named = re.findall(rf"{LAPACK}\w+".encode(), b"\0".join(objects))
            for name in set(named):
                define_symbol(name.decode(), address_of(name.decode()))
            for name, address in list(_defined.items()):
                llvm.add_symbol(name, address)
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
        """Where a function or a variable lies."""
        found = self._engine.get_function_address(symbol)
        return int(found or self._engine.get_global_value_address(symbol))

    def find(self, symbol: str) -> int:
        """Where a function lies; 0 where no object defines it."""
        return int(self._engine.get_function_address(symbol))

    def seal(self) -> None:
        """Variables stay as they are: MCJIT does not say where they lie."""

    def keep_forever(self) -> None:
        """Never unload."""
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._engine))


def define_symbol(name: str, address: int) -> None:
    """Make an address known to code that is linked later."""
    _defined[name] = address


def address_of(name: str) -> int:
    """Where a symbol from outside a program's objects lies; OSError where there is none."""
    found = _defined.get(name)
    if not found and name.startswith(LAPACK):
        from hlo.backend.kernels.linear_algebra import lapack_symbols

        found = _defined[name] = lapack_symbols.symbol_address(name)
    for library in () if found else LIBRARIES:
        with contextlib.suppress(OSError, AttributeError):
            function = getattr(ctypes.CDLL(library), name)
            found = _defined[name] = ctypes.cast(function, ctypes.c_void_p).value or 0
            break
    if not found:
        raise OSError(f"no function {name} in this process")
    return found
