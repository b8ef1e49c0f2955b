"""Phases: a long chain of elementwise ops as several short loops over one block of elements.

    part --phases_of--> [values kept after phase 0], [after phase 1], ..  (empty: one loop does)

A processor looks some hundred instructions ahead. While one element's chain (a logarithm, then a
division, then an error function) is longer than that, it waits for results instead of working on
the next element, however many units it has: 150 cycles a vector where the arithmetic takes 60.
Each phase is a loop of its own over the block, whose iterations do not depend on each other; what a
later phase needs is kept in a row on the stack, in the first level of cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.analysis.op_costs import HEAVY
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.kernels.kept import Kept
from hlo.backend.kernels.part import Part
from hlo.backend.kernels.thread_memory import thread_memory
from hlo.backend.lanes.access import Memory
from hlo.backend.loops.expression import Expression, is_elementwise
from hlo.indexing.affine import Expr, Index, linear, of
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.machine import Cycles, Machine

_PHASE = 110  # cycles of a chain that one phase may have
_MOST_KEPT = 6  # rows
_CHEAP = 3  # ops that are done again rather than kept
_HEAVY = 10  # as many as a function costs
_FEWEST = 8  # vectors
_IN_PLACE = frozenset({"tuple", "copy", "opt-barrier"})  # users at the same index

# Cycles of the chains that functions are written as.
_LATENCY = {
    "exponential": 45, "exponential-minus-one": 55, "log": 75, "log-plus-one": 95, "logistic": 65,
    "tanh": 55, "erf": 55, "sqrt": 19, "rsqrt": 45, "divide": 14, "power": 150, "sine": 90,
    "cosine": 90, "tan": 110, "cbrt": 100, "atan2": 110, "remainder": 60, "sinh": 90, "cosh": 90,
    "asin": 90, "acos": 90, "asinh": 120, "acosh": 120, "atanh": 120,
}  # fmt: skip


class KeptRow(Kept):
    """A value that one phase leaves for later ones; `start` is the block's first position."""

    def __init__(self, row: Memory, dims: tuple[int, ...]) -> None:
        super().__init__(row)
        self.dims = dims
        self.start: Expr | None = None

    def place(self, index: Index) -> Expr:
        assert self.start is not None, "the block is known"
        return linear(index, self.dims) - self.start


Phases = tuple[tuple[Instruction, ...], ...]


def block_of(machine: Machine) -> int:
    """Elements that the phases take in turn, so that rows stay in the first cache."""
    return max(256, machine.first_cache.bytes // 16 // 256 * 256)


def phases_of(expression: Expression, part: Part) -> Phases:
    """The values to keep after each phase but the last."""
    if not _may_split(part):
        return ()
    roots = [expression.source(o.source, o.path)[0] for o in part.outputs]
    order = list(_members(expression, part, roots))
    done: dict[Instruction, int] = {}
    cycles = part.machine.cycles
    for member in order:
        operands = _operands(expression, member)
        before = max((done.get(o, cycles.load_latency) for o in operands), default=0)
        done[member] = before + _latency(member, cycles)
    total = max(done.values(), default=0)
    if total < cycles.window:
        return ()
    count = -(-total // _PHASE)
    phase = {m: min(d * count // (total + 1), count - 1) for m, d in done.items()}
    found = _kept(expression, order, phase, count)
    if found:
        part.remarks.append(f"phases: {count}, a chain of {total} cycles, {cycles.window} are long")
    return found


def _may_split(part: Part) -> bool:
    if part.trace.reductions or part.outer or part.tile is not None or not part.in_lanes:
        return False
    if any(o.source.shape.is_tuple or o.dims != o.source.shape.dims for o in part.outputs):
        return False
    place = linear(part.index([of(v) for v in part.variables]), part.outputs[0].dims)
    return part.extents[-1] >= _FEWEST * part.lanes and place.coefficient(part.variables[-1]) == 1


def _latency(member: Instruction, cycles: Cycles) -> int:
    if not member.operands[0].shape.dtype.is_float:
        return 1
    return _LATENCY.get(member.opcode, cycles.latency)


def _operands(expression: Expression, member: Instruction) -> list[Instruction]:
    return [expression.source(o, ())[0] for o in member.operands]


def _members(
    expression: Expression, part: Part, roots: Sequence[Instruction]
) -> Iterator[Instruction]:
    """The elementwise ops of the part's dimensions, operands first."""
    stack = [(root, False) for root in roots]
    seen: set[Instruction] = set()
    while stack:
        top, is_ready = stack.pop()
        if is_ready:
            yield top
            continue
        if top in seen or (top, ()) in expression.leaves or not is_elementwise(top):
            continue
        if top.shape.dims != part.outputs[0].dims or top.shape.dtype.is_complex:
            continue
        seen.add(top)
        stack.append((top, True))
        stack += [(o, False) for o in _operands(expression, top)]


def _kept(
    expression: Expression, order: list[Instruction], phase: dict[Instruction, int], count: int
) -> Phases:
    """What is asked for in a later phase and is not quickly done again."""
    last: dict[Instruction, int] = {}  # the latest phase that asks
    work: dict[Instruction, int] = {}  # to do it again
    for member in order:
        work[member] = _HEAVY if member.opcode in HEAVY else 1
        for o in _operands(expression, member):
            if o in phase and (phase[o] == phase[member] or work[o] <= _CHEAP):
                work[member] = min(work[member] + work[o], _HEAVY)
    for member in reversed(order):
        asked = max(last.get(member, 0), phase[member])
        for operand in _operands(expression, member):
            if operand in phase:
                # What is done again asks for its own operands then.
                at = asked if work[member] <= _CHEAP else phase[member]
                last[operand] = max(last.get(operand, 0), at)
    kept = [m for m in order if last.get(m, 0) > phase[m] and work[m] > _CHEAP]
    if not kept or len(kept) > _MOST_KEPT or _is_moved(kept):
        return ()
    return tuple(tuple(m for m in kept if phase[m] == k) for k in range(count - 1))


def _is_moved(kept: Sequence[Instruction]) -> bool:
    """Whether elements may be asked for at other places than those of a phase's own lanes."""
    stack, seen = list(kept), set(kept)
    while stack:
        for user in stack.pop().users:
            if not is_elementwise(user) and user.opcode not in _IN_PLACE:
                return True
            if user not in seen:
                seen.add(user)
                stack.append(user)
    return False


def rows_of(elemental: Elemental, part: Part, phases: Phases) -> dict[Instruction, KeptRow]:
    """A row of the thread's own memory for each value that is kept."""
    found = {}
    for member in (m for kept in phases for m in kept):
        size = min(block_of(part.machine), part.extents[-1])
        dtype = dt.F32 if member.shape.dtype.is_narrow_float else member.shape.dtype
        base = thread_memory(elemental, (size + part.lanes) * dtype.item_bytes)
        found[member] = KeptRow(Memory(base, dtype, size), member.shape.dims)
    return found


def begin_rows(elemental: Elemental, start: Expr) -> None:
    """The rows hold the elements from here on."""
    for row in elemental.saved.values():
        if isinstance(row, KeptRow):
            row.start = start
