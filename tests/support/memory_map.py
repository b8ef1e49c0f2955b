"""What this process may do with its memory, as Linux tells it."""

from __future__ import annotations

from pathlib import Path


def allowed(address: int) -> str:
    """Three letters for the memory there, as `r-x`; empty where there is none."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        ends, mode, *_ = line.split()
        low, high = (int(end, 16) for end in ends.split("-"))
        if low <= address < high:
            return mode[:3]
    return ""
