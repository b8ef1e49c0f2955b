"""Table: the rows of a frame, each as wide as an address of the machine that runs the code.

    frame --slot--> the place of a row;  --threads--> how many run parallel loops

Code counts rows, never bytes: how wide one is comes from the target's data layout alone.
"""

from __future__ import annotations

from hlo.backend.ir.words import Word
from hlo.backend.planning.slots import SLOT_THREADS


def slot(frame: Word, number: Word | int) -> Word:
    """The place of a row."""
    return frame.item("ptr", number)


def threads(frame: Word) -> Word:
    """How many threads run parallel loops."""
    return frame.get("ptr", SLOT_THREADS).to("i64")


def put_threads(frame: Word, count: Word) -> None:
    """Say how many."""
    frame.put(count.to("ptr"), SLOT_THREADS)
