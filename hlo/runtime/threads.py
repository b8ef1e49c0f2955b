"""How many threads a program may use: what was asked for, at most what the process is allowed."""

from __future__ import annotations

import math
import os

from hlo.errors import HloError, checked_count

VARIABLE = "HLO_NUM_THREADS"


def thread_count(asked: int | None = None) -> int:
    """`asked`, else HLO_NUM_THREADS, else all; never more than affinity and cgroup allow."""
    if asked is None:
        asked = _from_environment()
    allowed = allowed_threads()
    return allowed if asked is None else min(checked_count("threads", asked), allowed)


def _from_environment() -> int | None:
    text = os.environ.get(VARIABLE, "").strip()
    if not text:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise HloError("arguments", f"{VARIABLE} is {text!r}, expected a number from 1")
    return int(text)


def allowed_threads() -> int:
    """Processors of this process's affinity mask, less what its cgroup's quota takes away."""
    try:
        available = len(os.sched_getaffinity(0))
    except AttributeError:  # no affinity on this system
        available = os.cpu_count() or 1
    quota = _cgroup_quota()
    return max(1, available if quota is None else min(available, quota))


def _cgroup_quota() -> int | None:
    """Whole processors of the cgroup's CPU quota, rounded up; None without one."""
    try:  # version 2
        quota, period = _text("cpu.max").split()
    except (OSError, ValueError):
        try:
            quota, period = _text("cpu/cpu.cfs_quota_us"), _text("cpu/cpu.cfs_period_us")
        except OSError:
            return None
    try:
        limit, each = int(quota), int(period)
    except ValueError:  # "max"
        return None
    return math.ceil(limit / each) if limit > 0 and each > 0 else None


def _text(name: str) -> bytes:
    """A small file of the cgroup's. Each compilation asks: files of Python's take four times as
    long.
    """
    opened = os.open(f"/sys/fs/cgroup/{name}", os.O_RDONLY)
    try:
        return os.read(opened, 256)
    finally:
        os.close(opened)
