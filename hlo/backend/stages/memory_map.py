"""Memory map: every buffer of a program, when it is in use, and what is live at the peak.

    Compilation --memory_map--> MemoryMap: one row a buffer; its text is a table, to_json() its data

Times are moments of the buffer plan: an instruction that runs (a loop's start and end, too) is one.
Buffers of the arena that are not in use at the same time share bytes; values share a buffer where
an instruction works in place.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct, to_builtins

from hlo.backend.compilation import Compilation
from hlo.backend.planning.allocations import Allocation, AllocationKind, BufferPlan
from hlo.backend.planning.memory import peak
from hlo.ir.instruction import Instruction
from hlo.machine import aligned

BAR = 32  # characters of a lifetime's picture
WIDEST_SHAPE = 40  # characters of a shape in the table
SHOWN = 4  # names and buffers that a row of the table lists


class Buffer(Struct, frozen=True):
    """One buffer. offset: in the arena, None elsewhere; start, end: first and last moment of use.

    holds: the instructions whose values stand in it, in order; shares: the arena's buffers that
    have bytes of it at other times.
    """

    number: int
    region: str
    offset: int | None
    size_bytes: int
    start: int
    end: int
    instruction: str
    shape: str
    opcode: str
    line: str
    holds: tuple[str, ...]
    shares: tuple[int, ...]

    @property
    def place(self) -> str:
        return self.region if self.offset is None else f"+{self.offset}"


class MemoryMap(Struct, frozen=True):
    """Sizes in bytes. scratch_bytes: of all threads; peak_moment: when most of the arena is in
    use; peak_instruction: what runs then; live: the buffers of the arena in use, largest first.
    """

    argument_bytes: int
    result_bytes: int
    constant_bytes: int
    arena_bytes: int
    scratch_bytes: int
    peak_bytes: int
    peak_moment: int
    peak_instruction: str
    moments: int
    live: tuple[int, ...]
    buffers: tuple[Buffer, ...]

    @property
    def total_bytes(self) -> int:
        """All that a run needs."""
        inputs = self.argument_bytes + self.result_bytes + self.constant_bytes
        return inputs + self.arena_bytes + self.scratch_bytes

    def to_json(self) -> dict[str, object]:
        """The map as plain data."""
        return {**to_builtins(self), "total_bytes": self.total_bytes}

    def __str__(self) -> str:
        by_number = {b.number: b for b in self.buffers}
        rows = [
            f"arguments {self.argument_bytes:>14,} bytes",
            f"results   {self.result_bytes:>14,} bytes",
            f"constants {self.constant_bytes:>14,} bytes",
            f"arena     {self.arena_bytes:>14,} bytes, {self.peak_bytes:,} in use at the peak",
            f"scratch   {self.scratch_bytes:>14,} bytes, of all threads",
            f"total     {self.total_bytes:>14,} bytes",
            "",
            f"live at the peak, moment {self.peak_moment} of {self.moments}"
            f" ({self.peak_instruction or 'copies'}):",
            *(self._live_row(by_number[n]) for n in self.live),
            "",
            f"{'buffer':>7} {'place':>12} {'bytes':>14} {'live':>11}  {'':<{BAR}}  made by",
            *(self._row(b) for b in self.buffers),
        ]
        return "\n".join(rows) + "\n"

    def _live_row(self, b: Buffer) -> str:
        share = 100 * b.size_bytes / max(self.peak_bytes, 1)
        return f"  {b.size_bytes:>14,} {share:5.1f} %  b{b.number}  {_made_by(b)}"

    def _row(self, b: Buffer) -> str:
        parts = [_made_by(b)]
        if others := [name for name in b.holds if name != b.instruction]:
            parts.append("also " + _listed(others))
        if b.shares:
            parts.append("shares with " + _listed([f"b{n}" for n in b.shares]))
        live = f"[{b.start}, {b.end}]"
        bar = lifetime_bar(b.start, b.end, self.moments)
        text = f"b{b.number:<6} {b.place:>12} {b.size_bytes:>14,} {live:>11}  {bar}"
        return f"{text}  {'; '.join(parts)}"


def _made_by(b: Buffer) -> str:
    if not b.instruction:
        return "copy of loop state"
    shape = b.shape if len(b.shape) <= WIDEST_SHAPE else b.shape[: WIDEST_SHAPE - 3] + "..."
    return f"{b.instruction} = {shape} {b.opcode}  {b.line}".rstrip()


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more


def lifetime_bar(start: int, end: int, moments: int) -> str:
    """A picture of the moments in use, among all of them."""
    first = start * BAR // max(moments, 1)
    last = min(BAR - 1, end * BAR // max(moments, 1))
    return "." * first + "#" * (last - first + 1) + "." * (BAR - 1 - last)


def memory_map(compilation: Compilation) -> MemoryMap:
    """The memory of a program. O(buffers^2) at worst, in the arena."""
    program = compilation.program
    plan = program.plan
    arena = [c for c in plan.allocations if c.kind is AllocationKind.ARENA and c.size]
    moment, peak_bytes = peak(arena)
    running = plan.moments[moment]
    buffers = tuple(_buffers(plan))
    in_arena = [b for b in buffers if b.offset is not None]
    held = [b for b in in_arena if b.start <= moment <= b.end]
    return MemoryMap(
        argument_bytes=sum(c.size for c in plan.allocations if c.kind in ARGUMENTS),
        result_bytes=sum(c.size for c in plan.allocations if c.kind is AllocationKind.RESULT),
        constant_bytes=sum(array.nbytes for array in compilation.link_table.constants),
        arena_bytes=plan.arena_bytes,
        scratch_bytes=program.working_bytes,
        peak_bytes=peak_bytes,
        peak_moment=moment,
        peak_instruction="" if running is None else f"{running.name} {running.opcode}",
        moments=len(plan.moments),
        live=tuple(b.number for b in sorted(held, key=lambda b: (-b.size_bytes, b.start))),
        buffers=buffers,
    )


ARGUMENTS = (AllocationKind.ARGUMENT, AllocationKind.DONATED)


def _buffers(plan: BufferPlan) -> Iterable[Buffer]:
    """Rows for the allocations that are used: arguments, results and constants, then the
    arena's."""
    used = [n for n, c in enumerate(plan.allocations) if c.size]
    outside = [n for n in used if plan.allocations[n].kind is not AllocationKind.ARENA]
    inside = [n for n in used if plan.allocations[n].kind is AllocationKind.ARENA]
    inside.sort(key=lambda n: (plan.allocations[n].offset, plan.allocations[n].start))
    shared = sharing(plan.allocations, inside)
    for number in outside:
        yield _buffer(number, plan.allocations[number], ())
    for number in inside:
        yield _buffer(number, plan.allocations[number], tuple(shared[number]))


def sharing(allocations: Sequence[Allocation], by_offset: Sequence[int]) -> dict[int, list[int]]:
    """Per allocation of the arena the others that overlap it, in the order of their offsets."""
    found: dict[int, list[int]] = {n: [] for n in by_offset}
    open_allocations: list[int] = []
    for number in by_offset:
        start = allocations[number].offset
        open_allocations = [
            n
            for n in open_allocations
            if allocations[n].offset + aligned(allocations[n].size) > start
        ]
        for other in open_allocations:
            found[other].append(number)
            found[number].append(other)
        open_allocations.append(number)
    return found


def _buffer(number: int, allocation: Allocation, shares: tuple[int, ...]) -> Buffer:
    instruction = allocation.instruction
    result = allocation.kind is AllocationKind.RESULT
    if result and allocation.held:  # the entry's root says less than what is computed into it
        instruction = allocation.held[-1]
    region = allocation.kind.value
    if allocation.kind is not AllocationKind.ARENA:
        region += f" {allocation.index}"
    return Buffer(
        number,
        region,
        allocation.offset if allocation.kind is AllocationKind.ARENA else None,
        allocation.size,
        allocation.start,
        allocation.end,
        *_origin(instruction),
        holds=tuple(dict.fromkeys(i.name for i in allocation.held)),
        shares=shares,
    )


def _origin(instruction: Instruction | None) -> tuple[str, str, str, str]:
    """Name, shape, opcode and text line of what made a buffer."""
    if instruction is None:
        return "", "", "", ""
    span = instruction.span
    line = "" if span is None else f"{span.source.name}:{span.line}"
    return instruction.name, str(instruction.shape), instruction.opcode, line
