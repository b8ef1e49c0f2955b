"""Memory: how much there is for this process, and the errors for what does not fit.

    machine_bytes(): the most that the process can ever hold
    available_bytes(): what it can still take now
    check_memory(size, what): HloError code "memory" before an allocation that must fail

The system promises memory that it does not have, and ends the process that uses it; so what is
large is compared before it is asked for. The least counts of: physical memory and swap, the
control group's limit, the limits on address space and data, the address space itself.
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from pathlib import Path

from hlo.errors import HloError, Note
from hlo.source import Span

MOST_DIMENSIONS = 64  # The most that a NumPy array has.
MOST_BYTES = 2**63 - 1  # The most that a NumPy array has.
ADDRESS_SPACE = 1 << 47  # The addresses of a process on today's processors.
LARGE = 1 << 26  # bytes; less is asked for without a look at what there is
_GROUPS = (  # limit, use: version 2, version 1
    ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current"),
    (
        "/sys/fs/cgroup/memory/memory.limit_in_bytes",
        "/sys/fs/cgroup/memory/memory.usage_in_bytes",
    ),
)
_PAGES_OF_SPACE, _PAGES_OF_DATA = 0, 5  # columns of /proc/self/statm
_UNITS = ((1 << 60, "EiB"), (1 << 50, "PiB"), (1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"))


def machine_bytes() -> int:
    """Bytes that a program of this process may take at all."""
    memory = _meminfo()
    found = [ADDRESS_SPACE]
    if "MemTotal" in memory:
        found.append(memory["MemTotal"] + memory.get("SwapTotal", 0))
    found += [limit for limit, _ in _group_limits()]
    found += [limit for limit, _ in _own_limits()]
    return min(found)


def available_bytes() -> int:
    """Bytes that this process can take now: what others hold is gone, what is cached is not."""
    memory = _meminfo()
    found = [ADDRESS_SPACE]
    if "MemAvailable" in memory:
        found.append(memory["MemAvailable"] + memory.get("SwapFree", 0))
    cached = memory.get("Cached", 0)  # a group's use counts pages of files, which can be dropped
    found += [limit - max(0, used - cached) for limit, used in _group_limits()]
    found += [limit - used for limit, used in _own_limits()]
    return max(0, min(found))


def numpy_problem(dims: Sequence[int], item_bytes: int) -> str:
    """Why NumPy has no such array, in the form `<what is>, expected <what can be>`; "" if it has.

    It counts the bytes of empty arrays too, zeros left out.
    """
    if len(dims) > MOST_DIMENSIONS:
        return f"{len(dims)} dimensions, expected at most {MOST_DIMENSIONS}: NumPy has no more"
    size = math.prod(n for n in dims if n) * item_bytes
    if size > MOST_BYTES:
        return f"{size} bytes, zero sizes left out, expected at most {MOST_BYTES}: NumPy's limit"
    return ""


def check_memory(size: int, what: str, span: Span | None = None) -> None:
    """Raises HloError "memory" where so many bytes cannot be had now."""
    if size > LARGE and size > available_bytes():
        raise memory_error(size, what, span)


def memory_error(
    size: int, what: str, span: Span | None = None, *, notes: tuple[Note, ...] = ()
) -> HloError:
    """The error for bytes that there are not. what: `<opcode>: <name> is f32[...]`."""
    there = bytes_text(available_bytes())
    return HloError(
        "memory",
        f"{what}, {bytes_text(size)}, expected at most {there}: what this process can have",
        span,
        notes=notes,
    )


def bytes_text(size: int) -> str:
    """A size as people read it."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size} bytes ({size / unit:.3g} {name})"
    return f"{size} bytes"


def _meminfo() -> dict[str, int]:
    """Linux's figures in bytes; what the C library knows elsewhere."""
    try:
        rows = [row.split() for row in Path("/proc/meminfo").read_text().splitlines()]
        return {row[0].rstrip(":"): int(row[1]) * 1024 for row in rows if len(row) > 1}
    except (OSError, ValueError):
        pass
    try:
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return {}
    return {"MemTotal": pages * size, "MemAvailable": pages * size}


def _group_limits() -> list[tuple[int, int]]:
    """Limit and use of the control group's memory, if it has a limit."""
    found: list[tuple[int, int]] = []
    for limit, use in _GROUPS:
        try:
            found.append((int(Path(limit).read_text()), int(Path(use).read_text())))
        except (OSError, ValueError):  # not there, or "max"
            continue
    return found


def _own_limits() -> list[tuple[int, int]]:
    """The process's own limits (ulimit -v, ulimit -d), each with what is used of it."""
    try:
        pages = [int(n) for n in Path("/proc/self/statm").read_text().split()]
    except (OSError, ValueError):
        pages = []
    import resource  # few programs take so much that anybody asks

    found: list[tuple[int, int]] = []
    for name, column in (("RLIMIT_AS", _PAGES_OF_SPACE), ("RLIMIT_DATA", _PAGES_OF_DATA)):
        soft, _ = resource.getrlimit(getattr(resource, name))
        if soft != resource.RLIM_INFINITY:
            used = pages[column] * resource.getpagesize() if len(pages) > column else 0
            found.append((soft, used))
    return found
