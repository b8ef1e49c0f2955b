"""Probing: compiled code that notes which instruction's result first has a NaN, and in which run.

    Compilation, kinds --Probes--> events in the order of the run --captured--> operands and results

The kernels are those of the unprobed program; behind those of each instruction stands a probe of
its result (kernels/probe.py). A second program copies what the instructions read and wrote in the
runs that were found: kernels may work in place, so operands are gone afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.leaves import leaves_of
from hlo.backend.compilation import Compilation, Compiled
from hlo.backend.ir.kernel import Kernel, KernelCall, KernelSequence
from hlo.backend.kernels.probe import (
    KINDS,
    RECORD_WORDS,
    WORD_BYTES,
    Word,
    copying,
    is_probed,
    probe,
)
from hlo.backend.planning.implementations import Implementation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import ALIGNMENT, aligned
from hlo.process.once import cached_property, lock

SPARSE = 4  # a result so many times larger than what its kernels move is not looked at each time
MOST_CAPTURED = 1 << 30  # bytes


class Event(Struct, frozen=True, eq=False):
    """The first run, counted from 0, in which an instruction's result has a kind."""

    instruction: Instruction
    kind: str
    run: int
    clock: int


class Captured(Struct, frozen=True, eq=False):
    """What an instruction read and wrote in the run of an event."""

    event: Event
    operands: tuple[object, ...]
    result: object


class Probes:
    """The probed program of a compilation. unprobed: instructions with a float result that have no
    probe: of other types, or run by the reference.
    """

    def __init__(self, compilation: Compilation, kinds: Sequence[str]) -> None:
        self.compilation = compilation
        self.kinds = tuple(kinds)
        self.lock = lock()
        made = compilation.implementations
        self.instructions = tuple(made)
        self.numbers = {
            instruction: number
            for number, (instruction, found) in enumerate(made.items())
            if isinstance(found, KernelSequence) and _probed_leaves(instruction)
        }
        self.unprobed = tuple(
            i
            for i in made
            if i not in self.numbers
            and any(s.dtype.is_float for s in leaves_of(i.shape) if s.is_array)
        )
        self.records = np.zeros((len(made) + 1, RECORD_WORDS), np.int64)  # the last is the clock's
        self.executable = self._built(
            {i: self._with_probe(i, made[i]) for i in self.numbers}, compilation
        )

    def run(self, *arguments: object) -> tuple[object, list[Event]]:
        """The result, and what was found, in the order of the run.

        Large results of which each run writes a part are looked at seldom, and where anything was
        found again, in each run.
        """
        result, found = self._run(arguments, sparse=True)
        if found and self.is_sparse.any():
            result, found = self._run(arguments, sparse=False)
        return result, found

    def captured(self, events: Sequence[Event], arguments: Sequence[object]) -> list[Captured]:
        """What the events' instructions read and wrote then, as far as memory allows, in the
        events' order. A program has one event of an instruction, so there are as many as kinds.
        """
        found: dict[Event, Captured] = {}
        waiting, room = list(events), MOST_CAPTURED
        while waiting:
            chosen: dict[Instruction, Event] = {}
            for event in waiting:
                size = sum(_sizes(event.instruction))
                if event.instruction not in chosen and size <= room:
                    chosen[event.instruction] = event
                    room -= size
            if not chosen:
                break
            found |= self._copied(chosen, arguments)
            waiting = [event for event in waiting if event not in found]
        return [found[event] for event in events if event in found]

    def _copied(
        self, chosen: dict[Instruction, Event], arguments: Sequence[object]
    ) -> dict[Event, Captured]:
        """Of one event for each instruction."""
        memory = {i: np.zeros(sum(_sizes(i)) + ALIGNMENT, np.uint8) for i in chosen}
        made = self.compilation.implementations
        self._forget(sparse=False)
        program = self._built(
            {i: self._with_copies(e, made[i], memory[i]) for i, e in chosen.items()},
            self.compilation,
        )
        program(*arguments)
        return {event: _read(event, memory[i]) for i, event in chosen.items()}

    # -- programs ------------------------------------------------------------------------------

    def _built(
        self, changed: dict[Instruction, KernelSequence], compilation: Compilation
    ) -> Compiled:
        """The program with some instructions' kernels changed."""
        other = compilation.with_target(compilation.target)
        other.cache = False
        merged: dict[Instruction, Implementation] = {**compilation.implementations, **changed}
        vars(other).update(implementations=merged, padded=compilation.padded)
        return other.executable

    def _address(self, instruction: Instruction) -> int:
        return self.records.ctypes.data + self.numbers[instruction] * RECORD_WORDS * WORD_BYTES

    def _with_probe(self, instruction: Instruction, found: Implementation) -> KernelSequence:
        assert isinstance(found, KernelSequence), "only kernels are probed"
        first = len(_operands(instruction))
        chosen = _probed_leaves(instruction)
        leaves = leaves_of(instruction.shape)
        kernel = probe(
            self._address(instruction),
            self.records.ctypes.data + (len(self.records) - 1) * RECORD_WORDS * WORD_BYTES,
            self.kinds,
            [leaves[n] for n in chosen],
            self.compilation.target.vector_bytes,
        )
        return _followed(found, kernel, tuple(first + n for n in chosen))

    def _with_copies(
        self, event: Event, found: Implementation, memory: np.ndarray
    ) -> KernelSequence:
        """The kernels between a copy of what they read and one of what they wrote, and a probe that
        counts.
        """
        instruction = event.instruction
        sizes, count = _sizes(instruction), len(_operands(instruction))
        record, start = self._address(instruction), _aligned(memory)
        before = copying(record, event.run, sizes[:count], start, before=True)
        after = copying(record, event.run, sizes[count:], start + sum(sizes[:count]), before=False)
        probed = self._with_probe(instruction, found)
        whole = _followed(probed, after, tuple(range(count, len(sizes))))
        return replace(whole, calls=(KernelCall(before, tuple(range(count))), *whole.calls))

    # -- records -------------------------------------------------------------------------------

    @cached_property
    def is_sparse(self) -> np.ndarray:
        """Of each record, whether its result is mostly what it was before."""
        made = self.compilation.implementations
        found = np.zeros(len(self.records), np.bool_)
        for instruction, number in self.numbers.items():
            sequence = made[instruction]
            assert isinstance(sequence, KernelSequence), "only kernels are probed"
            moved = sum(call.kernel.bytes_moved for call in sequence.calls)
            found[number] = instruction.shape.size_bytes > SPARSE * max(moved, 1)
        return found

    def _forget(self, *, sparse: bool) -> None:
        self.records[:] = 0
        if sparse:
            self.records[:, Word.SPARSE] = self.is_sparse

    def _run(self, arguments: Sequence[object], *, sparse: bool) -> tuple[object, list[Event]]:
        self._forget(sparse=sparse)
        result = self.executable(*arguments)
        rows, kinds = np.nonzero(self.records[:-1, Word.FIRST : Word.FIRST + len(KINDS)])
        events = [
            Event(
                self.instructions[row],
                KINDS[k],
                int(self.records[row, Word.FIRST + k]) - 1,
                int(self.records[row, Word.WHEN + k]),
            )
            for row, k in zip(rows.tolist(), kinds.tolist(), strict=True)
        ]
        return result, sorted(events, key=lambda event: event.clock)


def _followed(found: KernelSequence, kernel: Kernel, buffers: tuple[int, ...]) -> KernelSequence:
    return replace(found, calls=(*found.calls, KernelCall(kernel, buffers)))


def _operands(instruction: Instruction) -> list[Shape]:
    return [leaf for o in instruction.operands for leaf in leaves_of(o.shape)]


def _sizes(instruction: Instruction) -> list[int]:
    """Bytes of operand leaves, then of result leaves."""
    leaves = [*_operands(instruction), *leaves_of(instruction.shape)]
    return [leaf.size_bytes if leaf.is_array else 0 for leaf in leaves]


def _probed_leaves(instruction: Instruction) -> list[int]:
    leaves = leaves_of(instruction.shape)
    return [n for n, s in enumerate(leaves) if s.is_array and s.size and is_probed(s.dtype)]


def _aligned(memory: np.ndarray) -> int:
    return aligned(int(memory.ctypes.data))


def _read(event: Event, memory: np.ndarray) -> Captured:
    """The leaves out of the memory, as values."""
    at = _aligned(memory) - int(memory.ctypes.data)

    def value(shape: Shape) -> object:
        nonlocal at
        if shape.is_tuple:
            return tuple(value(e) for e in shape.elements)
        if not shape.is_array:
            return None
        size, dtype = shape.size_bytes, shape.dtype.numpy
        assert dtype is not None, "an array shape has a NumPy type"
        found = np.frombuffer(memory[at : at + size].tobytes(), dtype).reshape(shape.dims)
        at += size
        return found

    operands = tuple(value(o.shape) for o in event.instruction.operands)
    return Captured(event, operands, value(event.instruction.shape))
