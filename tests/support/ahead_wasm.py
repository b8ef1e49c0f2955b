"""Programs that were compiled ahead of time to WebAssembly, driven from wasmtime's package.

    AheadOfTime ... --WasmHarness--> one module --run(number, arrays)--> arrays

It is linked as `hlo-run compile -o x.wasm` links, and has the methods of the C harness. Behind each
array and the arena stand bytes that no call may change, and no call may change its inputs.
"""

from __future__ import annotations

import shutil
import struct
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import numpy as np

from hlo import driver
from hlo.backend.ahead.ahead_of_time import AheadOfTime
from hlo.tools.c_compiler import linker, shared_library
from tests.support.ahead_harness import shaped

IS_THERE = bool(find_spec("wasmtime")) and bool(shutil.which("wasm-ld") or find_spec("ziglang"))
_GUARD = b"\x5a" * 256
_PAGE = 1 << 16


class WasmHarness:
    """A module of WebAssembly and what runs it."""

    def __init__(self, folder: Path, programs: Sequence[AheadOfTime]) -> None:
        import wasmtime  # the tests that need it are skipped where it is not there

        self.interfaces = [p.interface for p in programs]
        for made in programs:
            (folder / f"{made.name}.o").write_bytes(made.object)
        chosen = linker(programs[0].machine, driver.host_machine())
        self.module_bytes = shared_library([made.object for made in programs], chosen)
        (folder / "programs.wasm").write_bytes(self.module_bytes)
        self.store = wasmtime.Store()
        module = wasmtime.Module(self.store.engine, self.module_bytes)
        self.imports = [i.name for i in module.imports]
        exports = wasmtime.Instance(self.store, module, []).exports(self.store)
        self.exports, self.memory = exports, exports["memory"]
        self.base = exports["__heap_base"].value(self.store)

    def run(self, jobs: Sequence[tuple[int, Sequence[np.ndarray]]]) -> list[list[np.ndarray]]:
        """The outputs of programs by number; AssertionError where one gives an error."""
        found = []
        for number, (status, arrays) in zip(jobs, self.statuses(jobs), strict=True):
            assert status == 0, f"program {number[0]}: status {status}"
            found.append(arrays)
        return found

    def statuses(
        self, jobs: Sequence[tuple[int, Sequence[np.ndarray]]]
    ) -> list[tuple[int, list[np.ndarray]]]:
        """What the programs gave, and their outputs."""
        return [self._called(number, arrays) for number, arrays in jobs]

    def _called(self, number: int, arrays: Sequence[np.ndarray]) -> tuple[int, list[np.ndarray]]:
        made, at, places = self.interfaces[number], self.base, []
        contents = [np.ascontiguousarray(a).tobytes() for a in arrays]
        outputs = [leaf.bytes for leaf in made.results]
        contents += [b"\x55" * size for size in outputs]
        contents.append(b"\xff" * made.arena_bytes)
        for data in contents:
            # Arrays begin where their elements may, no better, and the arena as it has to.
            at += 64 - at % 64 + (8 if len(places) < len(contents) - 1 else 0)
            places.append(at)
            at += len(data) + len(_GUARD)
        table = at + 8 - at % 8
        self._room(table + 4 * len(places))
        for place, data in zip(places, contents, strict=True):
            self.memory.write(self.store, data + _GUARD, place)
        self.memory.write(self.store, struct.pack(f"<{len(places)}I", *places), table)
        status = self.exports[made.name](self.store, table, table + 4 * len(arrays), places[-1])
        for k, (place, data) in enumerate(zip(places, contents, strict=True)):
            end = place + len(data)
            assert self.memory.read(self.store, end, end + len(_GUARD)) == _GUARD, (number, k)
            if k < len(arrays):
                assert self.memory.read(self.store, place, end) == data, (number, "input", k)
        found = places[len(arrays) : -1]
        data = [
            bytes(self.memory.read(self.store, place, place + size))
            for place, size in zip(found, outputs, strict=True)
        ]
        return status, shaped(made, data)

    def _room(self, bytes: int) -> None:
        missing = bytes - self.memory.data_len(self.store)
        if missing > 0:
            self.memory.grow(self.store, -(-missing // _PAGE))
