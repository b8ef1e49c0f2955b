"""C compilers: who links a shared library here, for a machine.

    Machine --linker--> Linker(name, command)      objects --shared_library--> bytes

The system's own compiler comes first, then one for another machine by its usual name, then the
package `ziglang`, which links for all. Nothing of what is linked is compiled by them.
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
from hlo.tools.files import read_bytes, write_bytes

NATIVE = ("cc", "gcc", "clang")
TIMEOUT_S = 300


class Linker(Struct, frozen=True):
    """What it is called, and the command that its arguments follow."""

    name: str
    command: tuple[str, ...]


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
            [*chosen.command, "-shared", *flags, *files, "-o", made],
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
    return (f"{machine.architecture}-linux-gnu-gcc",) if machine.system == "linux" else ()


def _linkers(machine: Machine, host: Machine) -> Iterator[Linker]:
    for name in _names(machine, host):
        if shutil.which(name):
            yield Linker(name, (name,))
    if find_spec("ziglang"):
        triple = machine.triple.replace("-unknown-", "-")
        yield Linker("ziglang", (sys.executable, "-m", "ziglang", "cc", "-target", triple))
