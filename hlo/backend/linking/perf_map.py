"""perf map: names of compiled code for Linux's perf, which knows machine code by files alone.

    HLO_PERF_MAP=1 perf record -g python program.py     then `perf report` names our kernels

Each line of /tmp/perf-PID.map is where a function begins, its size, both hexadecimal, and a name:
a kernel's is that of the first instruction that it is for. Source of the form: the perf sources'
tools/perf/Documentation/jit-interface.txt. Other writers (CPython's trampolines) append as we do.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence

from hlo.backend.linking.elf import ObjectFile

FOLDER = "/tmp"  # where perf looks, whatever TMPDIR says
FUNCTION = 2  # of the types of symbols in ELF
ELF = b"\x7fELF"


def write(
    objects: Sequence[bytes], address: Callable[[str], int], names: Mapping[str, str]
) -> None:
    """Append the functions of linked objects; a warning where the file cannot be written."""
    rows = [
        f"{address(name):x} {size:x} {names.get(name, name)}\n" for name, size in _sizes(objects)
    ]
    path = f"{FOLDER}/perf-{os.getpid()}.map"
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0)
    try:
        file = os.open(path, flags, 0o600)
        with os.fdopen(file, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write("".join(rows))
    except OSError as error:
        reason = error.strerror or error
        warnings.warn(f"HLO_PERF_MAP: {path} cannot be written: {reason}", stacklevel=2)


def _sizes(objects: Iterable[bytes]) -> list[tuple[str, int]]:
    """Functions that objects define for others, with how many bytes each has."""
    found = []
    for data in objects:
        if data[:4] != ELF:
            continue
        file = ObjectFile(data)
        for row in file.symbols:
            is_global, kind = int(row["info"]) >> 4, int(row["info"]) & 15
            if is_global and kind == FUNCTION and row["section"]:
                found.append((file.name(int(row["name"])), int(row["size"])))
    return found
