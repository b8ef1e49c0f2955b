"""Pass lookup: passes about ops that many programs lack, imported when one is asked for.

room, name --named_pass--> the function of that name, in the file of that name in that room

What ops each needs is in the catalogue, which knows their names without them: a pass whose file and
function are called as it is stands there alone, under its room.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

Pass = Callable[..., bool]


def named_pass(room: str, name: str) -> Pass:
    """The pass of a name: `while-loop-unroller` of the room while_loops is
    hlo/passes/while_loops/while_loop_unroller.py's `while_loop_unroller`.
    """
    function = name.replace("-", "_")
    found: Pass = getattr(import_module(f"hlo.passes.{room}.{function}"), function)
    return found
