"""Idle threads: for how long NumPy's look for work before they sleep, in processes of our own.

OpenBLAS's threads start when NumPy is imported, and look for work for a tenth of a second, also
when there is none. That takes a processor from all that a start does beside them: where others
work as well, imports took half as long again. Two milliseconds are more than lie between products
that follow each other, none of which became slower.
"""

from __future__ import annotations

import os

VARIABLE = "OPENBLAS_THREAD_TIMEOUT"
TWO_MS = "22"  # 2 to the power of so many cycles


def let_sleep() -> None:
    """Say so for the NumPy that this process imports from here on, unless somebody has said it."""
    os.environ.setdefault(VARIABLE, TWO_MS)
