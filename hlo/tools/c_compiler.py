"""C compilers: who links a shared library here, for a machine.

    Machine --linker--> Linker(name, command)      objects --shared_library--> bytes

The system's own compiler comes first, then one for another machine by its usual name, then the
package `ziglang`, which links for all. Nothing of what is linked is compiled by them. Modules of
WebAssembly are linked by LLVM's wasm-ld, the system's or that package's: they need no C library,
and export their functions, their memory, where in it nothing of theirs is (__heap_base), and the
table by which addresses of functions are called, to which a host adds its own.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from hlo.errors import HloError
from hlo.machine import Machine
from hlo.tools.files.reading import read_bytes, write_bytes

NATIVE = ("cc", "gcc", "clang")
TIMEOUT_S = 300
_WASM_LINKER = "wasm-ld"
_SHARED = ("-shared",)
# What overflows the stack meets the end of memory, not the program's constants.
_WASM = (
    "--no-entry", "--export-dynamic", "--export=__heap_base", "--export-table",
    "--growable-table", "--stack-first", "-z", "stack-size=1048576",
)  # fmt: skip


class Linker(Struct, frozen=True):
    """What it is called, the command that its arguments follow, and those of a library."""

    name: str
    command: tuple[str, ...]
    shared: tuple[str, ...] = _SHARED


def linker(machine: Machine, host: Machine) -> Linker:
    """Who links for a machine on this one; HloError where nobody does."""
    found = next(_linkers(machine, host), None)
    if found is None:
        raise HloError(
            "unsupported",
            f"a shared library for {machine.triple}: no compiler of C that links for it, expected "
            f"one of {', '.join(_names(machine, host))} or the package ziglang",
            help="pip install ziglang; or write an object (.o) or a static library (.a)",
        )
    return found


def shared_library(objects: Sequence[bytes], chosen: Linker, flags: Sequence[str] = ()) -> bytes:
    """The library's bytes. flags: more for the linker; HloError with what it says."""
    with tempfile.TemporaryDirectory(prefix="hlo-link-") as folder:
        files = []
        for number, data in enumerate(objects):
            files.append(str(Path(folder, f"{number}.o")))
            write_bytes(files[-1], data)
        made = str(Path(folder, "library"))
        done = subprocess.run(
            [*chosen.command, *chosen.shared, *flags, *files, "-o", made],
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        if done.returncode:
            raise HloError("file", f"{chosen.name} does not link: {done.stderr.strip()[:2000]}")
        return read_bytes(made)


def _names(machine: Machine, host: Machine) -> tuple[str, ...]:
    """The commands that are looked for."""
    if machine.architecture == host.architecture and machine.system == host.system:
        return NATIVE
    if machine.architecture == "wasm32":
        return (_WASM_LINKER,)
    if machine.system != "linux":
        return ()
    ending = machine.triple.rpartition("-")[2]  # gnu, gnueabihf
    return (f"{machine.architecture}-linux-{ending}-gcc",)


def _linkers(machine: Machine, host: Machine) -> Iterator[Linker]:
    shared = _WASM if machine.architecture == "wasm32" else _SHARED
    for name in _names(machine, host):
        if shutil.which(name):
            yield Linker(name, (name,), shared)
    if not find_spec("ziglang"):
        return
    zig = (sys.executable, "-m", "ziglang")
    if shared is _WASM:
        yield Linker("ziglang", (*zig, _WASM_LINKER), shared)
    else:
        words = (word for word in machine.triple.split("-")[1:] if word != "unknown")
        triple = "-".join((machine.architecture, *words))
        yield Linker("ziglang", (*zig, "cc", "-target", triple), shared)
