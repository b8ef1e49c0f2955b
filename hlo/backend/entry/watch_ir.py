"""Watching: where a program that can be stopped asks whether it has to, as LLVM IR.

Between steps, after every POLL_US of estimated work and after those of unknown length; at the back
edges of loops, after as many trips as are POLL_NS of work; between pieces of a long step's units,
PIECE_US each. What asks is run_ir's; inside of units: polling.py.
"""

from __future__ import annotations

from hlo.backend.entry.layouts import Frame
from hlo.backend.entry.process import PIECES, POLL_STEP
from hlo.backend.ir.control import Join
from hlo.backend.ir.procedure import Procedure
from hlo.backend.ir.words import Word
from hlo.backend.planning.program import CallStep, KernelStep, LoopStep

POLL_US = 50.0  # Work between two questions in a list of steps.
PIECE_US = 250.0  # Work in a piece of a step's units.
PACKING_SHARE = 1000  # A piece computes so many times as long as it packs before.
# The longest piece of kernels that pack: the loops of longer ones ask themselves.
LONGEST_PIECE_US = 20_000.0
SHORT_LOOP_US = 100.0  # A loop of known length that takes no longer asks nothing.
# The call between steps, declared so that LLVM keeps what loops have in registers.
POLLS = f"{POLL_STEP.declaration} nounwind memory(argmem: readwrite, inaccessiblemem: readwrite)"


def is_known(loop: LoopStep) -> bool:
    """Whether the text says how often a loop runs."""
    from hlo.analysis.while_loops.loop_state import counter

    return counter(loop.instruction) is not None


def is_short(loop: LoopStep) -> bool:
    """Whether a loop ends so soon that nobody has to stop it."""
    if any(isinstance(s, LoopStep) and not is_short(s) for s in (*loop.condition, *loop.body)):
        return False
    return is_known(loop) and loop.us <= SHORT_LOOP_US


def piece(step: KernelStep) -> int:
    """Units of a step that run without a question."""
    return piece_of(step.units, step.us, step.packing_us)


def piece_of(units: int, us: float, packing_us: float) -> int:
    """The same of what takes so long, and packs so long before."""
    wanted = max(PIECE_US, min(PACKING_SHARE * packing_us, LONGEST_PIECE_US))
    return units if us < 2 * wanted else max(1, int(units * wanted / us))


def ask(p: Procedure, frame: Word) -> None:
    """Leave the function with the reason, if the run has to stop."""
    why = p.call(POLL_STEP, frame)
    with p.when(why.ne(0)):
        p.ret(why)


def ask_seldom(p: Procedure, frame: Word, us: float, onward: Join) -> None:
    """What ends a trip of so long: on, or a question where the work left in the frame is used up,
    which leads to the lines that follow.
    """
    spend(frame.at(Frame.fuel), max(1, round(1000 * us)), onward)
    ask(p, frame)


def ask_after_call(p: Procedure, frame: Word, step: CallStep) -> None:
    """Behind a routine's call: routines call each other so often that only the sum tells."""
    onward = p.join()
    ask_seldom(p, frame, step.us, onward)
    onward.here()


def spend(place: Word, cost: int, onward: Join) -> None:
    """Take a trip's cost from what is left at a place and go on, or, where all is used up, to the
    lines that follow.
    """
    left = place.get("i64").binary("sub nsw", cost)
    place.put(left)
    onward.go_unless(left < 0)


def in_pieces(p: Procedure, frame: Word, kernel: Word, row: Word, units: int, size: int) -> None:
    """Run a step's units in pieces on this thread."""
    p.call(PIECES, kernel, row, 0, units, size, frame, 1)
