"""Tile registers are the system's to grant: what a process asks for, and whether it may."""

from __future__ import annotations

import ctypes
import sys

from hlo.process.once import once

# Linux on x86-64: arch_prctl(ARCH_REQ_XCOMP_PERM, XFEATURE_XTILE_DATA)
PERMISSION_CALL = (158, 0x1023, 18)


@once
def may_use_tiles() -> bool:
    """Whether this process may use tile registers (asked once); without, its machine has none."""
    if not sys.platform.startswith("linux"):
        return False
    try:
        call = ctypes.CDLL(None).syscall
    except (OSError, AttributeError):
        return False
    return int(call(*PERMISSION_CALL)) == 0
