"""Watching: where a program that can be stopped asks whether it has to, as LLVM IR.

Between steps, after every POLL_US of estimated work; at the back edges of loops, after as many
trips as are POLL_NS of work; between pieces of a long step's units, PIECE_US each. What asks is
run_ir's; inside of units: polling.py.
"""

from __future__ import annotations

from hlo.analysis.loop_state import counter
from hlo.backend.entry.run_ir import PIECES, POLL_STEP
from hlo.backend.planning.program import CallStep, KernelStep, LoopStep
from hlo.backend.planning.slots import SLOT_FUEL

POLL_US = 50.0  # of work between two questions in a list of steps
PIECE_US = 250.0  # of work in a piece of a step's units
PACKING_SHARE = 1000  # times what a piece packs first that it computes
LONGEST_PIECE_US = 20_000.0  # of those that pack: the loops of longer ones ask themselves
SHORT_LOOP_US = 100.0  # a loop of known length that is no longer asks nothing
# It touches nothing that a loop keeps in registers.
POLLS = (
    f"i32 @{POLL_STEP.symbol}(ptr) nounwind memory(argmem: readwrite, inaccessiblemem: readwrite)"
)


def is_known(loop: LoopStep) -> bool:
    """Whether the text says how often a loop runs."""
    return counter(loop.instruction) is not None


def is_short(loop: LoopStep) -> bool:
    """Whether a loop ends so soon that nobody has to stop it."""
    if any(isinstance(s, LoopStep) and not is_short(s) for s in (*loop.condition, *loop.body)):
        return False
    return is_known(loop) and loop.us <= SHORT_LOOP_US


def piece(step: KernelStep) -> int:
    """Units of a step that run without a question."""
    wanted = max(PIECE_US, min(PACKING_SHARE * step.packing_us, LONGEST_PIECE_US))
    return step.units if step.us < 2 * wanted else max(1, int(step.units * wanted / step.us))


def asking(n: str) -> list[str]:
    """Lines that leave the function with the reason, if the run has to stop."""
    return [
        f"  %why{n} = call i32 @{POLL_STEP.symbol}(ptr %frame)",
        f"  %stops{n} = icmp ne i32 %why{n}, 0",
        f"  br i1 %stops{n}, label %stop{n}, label %on{n}",
        f"stop{n}:",
        f"  ret i32 %why{n}",
        f"on{n}:",
    ]


def back_edge(n: str, target: str, us: float) -> list[str]:
    """Lines that end a trip of so long: a question where the work left in the frame is used up."""
    at = f"%fuel.at{n}"
    head = f"  {at} = getelementptr i8, ptr %frame, i64 {8 * SLOT_FUEL}"
    return [head, *spending(n, at, max(1, round(1000 * us)), target), *asking(n)]


def after_call(n: str, step: CallStep) -> list[str]:
    """Lines behind a routine's call: routines call each other so often that only the sum tells."""
    return back_edge(n, f"on{n}", step.us)


def spending(n: str, place: str, cost: int, target: str) -> list[str]:
    """Lines that take a trip's cost from what is left at a place and go on at the target, or, where
    all is used up, at the lines that follow.
    """
    return [
        f"  %fuel{n} = load i64, ptr {place}",
        f"  %left{n} = sub nsw i64 %fuel{n}, {cost}",
        f"  store i64 %left{n}, ptr {place}",
        f"  %spent{n} = icmp slt i64 %left{n}, 0",
        f"  br i1 %spent{n}, label %ask{n}, label %{target}",
        f"ask{n}:",
    ]


def in_pieces(symbol: str, row: str, units: int, size: int) -> str:
    """The line that runs a step's units in pieces on this thread."""
    return (
        f"  call void @{PIECES.symbol}(ptr @{symbol}, ptr {row}, i64 0, i64 {units}, i64 {size}, "
        "ptr %frame, i64 1)"
    )
