"""Team: who runs a program's parallel loops.

parallel work of a program (planning/steps.py) --> Team --> its entry, the pool (entry/pool_ir.py)
"""

from __future__ import annotations

from enum import Enum


class Team(Enum):
    """The caller alone; or with workers that are still awake from an earlier program; or with all,
    who are woken when the program begins.
    """

    ALONE = "one thread"
    AWAKE = "takes threads that are awake"
    WOKEN = "wakes the pool"
