"""Idle threads: for how long NumPy's look for work before they sleep.

OpenBLAS's threads start when NumPy is imported, and look for work for a tenth of a second, also
when there is none. That takes a processor from all that a start does beside them: where others
work as well, imports took half as long again. Two milliseconds are more than lie between products
that follow each other, none of which became slower.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "OPENBLAS_THREAD_TIMEOUT"
TWO_MS = "22"  # 2 to the power of so many cycles


def let_sleep() -> bool:
    """Say so for the NumPy that this process imports from here on; whether nobody had said it."""
    is_new = VARIABLE not in os.environ
    if is_new:
        os.environ[VARIABLE] = TWO_MS
    return is_new


def import_numpy() -> None:
    """NumPy, whose threads sleep when they are idle; other processes' are left alone."""
    is_new = "numpy" not in sys.modules and let_sleep()
    try:
        import numpy  # noqa: F401  # whoever imports it first says how long
    finally:
        if is_new:
            os.environ.pop(VARIABLE, None)
