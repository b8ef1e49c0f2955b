"""No garbage collection while a compiler works: its graphs are alive, and walking them to find that
out takes as long as the work itself (half of the passes' time on a module of 100,000 instructions).
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """Within, or in a function decorated with it, Python's cycle collector rests."""
    if not gc.isenabled():
        yield  # the caller's choice, or an outer stage
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
