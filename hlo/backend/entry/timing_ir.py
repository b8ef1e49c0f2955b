"""Timing as LLVM IR: what an entry counts, or writes down, of the steps that it runs.

    Counters: cycles and calls of each step, summed in the table's counters
    Timeline: when the parts of each step ran, and on which thread

    void @hlo_timed_N(ptr row, i64 begin, i64 end)   step N's kernel on some units, and its event
    void @hlo_event(i64 N, i64 began, i64 ended)     one event more, of the thread that calls

The memory of events is the profiler's, whose address stands in the code: kernels on workers are
handed nothing but their rows. So that module is never kept. Threads are told apart by where their
stacks are: a kernel's caller is as deep in its stack each time, give or take a few routines.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import numpy as np

from hlo.backend.entry import table_ir
from hlo.backend.ir.interface import Field, prototype
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word
from hlo.backend.planning.program import CopyStep, HostStep, KernelStep, Step
from hlo.backend.planning.slots import SLOT_COUNTERS

TimedStep = KernelStep | CopyStep | HostStep

_CYCLES = prototype("i64", "llvm.readcyclecounter")
_EVENT = prototype("void", "hlo_event", "i64", "i64", "i64")
_FRAME = prototype("ptr", "llvm.frameaddress.p0", "i32")
_COUNT = Field(0)
STACKS_APART = 1 << 18  # Bytes; less than any thread's stack, more than calls go down.


class Timing(Protocol):
    """What an entry tells of its steps, as it writes them. has_regions: whether it runs regions as
    it does untimed, not kernel by kernel.
    """

    has_regions: bool

    def begin(self, p: Procedure, step: Step) -> Word | None:
        """Before a step."""

    def end(self, p: Procedure, frame: Word, step: Step, began: Word | None) -> None:
        """Behind it."""

    def kernel(self, step: KernelStep, symbol: str) -> str:
        """What to call instead of the kernel of this symbol."""


class Counters:
    """Counts of each of `steps`, in this order."""

    has_regions = False

    def __init__(self) -> None:
        self.steps: list[TimedStep] = []

    def begin(self, p: Procedure, step: Step) -> Word | None:
        """The cycle counter, where the step is counted."""
        return p.call(_CYCLES) if isinstance(step, TimedStep) else None

    def end(self, p: Procedure, frame: Word, step: Step, began: Word | None) -> None:
        """Add the step's cycles and one call."""
        if began is None or not isinstance(step, TimedStep):
            return
        ended, counters = p.call(_CYCLES), table_ir.slot(frame, SLOT_COUNTERS).get("ptr")
        spent, row = ended - began, counters.item("i8", 16 * len(self.steps))
        self.steps.append(step)
        row.put(row.get("i64") + spent)
        calls = row.item("i8", 8)
        calls.put(calls.get("i64") + 1)

    def kernel(self, step: KernelStep, symbol: str) -> str:
        """The kernel itself."""
        del step
        return symbol


class Timeline:
    """The steps of a program in the order of their numbers, and memory for `most` of their events:
    rows of step, stack, cycles at the begin and at the end; the first row counts them.
    """

    has_regions = True

    def __init__(self, most: int) -> None:
        self.steps: list[TimedStep] = []
        self.memory = np.zeros((1 + most, 4), np.int64)
        self.unit = Unit()
        self.unit.define(_EVENT, self._event)

    def begin(self, p: Procedure, step: Step) -> Word | None:
        """The cycle counter before a step that is no kernel: those have events of their own."""
        return p.call(_CYCLES) if isinstance(step, CopyStep | HostStep) else None

    def end(self, p: Procedure, frame: Word, step: Step, began: Word | None) -> None:
        """The event of such a step."""
        del frame
        if began is not None and isinstance(step, CopyStep | HostStep):
            p.call(_EVENT, self._number(step), began, p.call(_CYCLES))

    def kernel(self, step: KernelStep, symbol: str) -> str:
        """The kernel with an event around it."""
        timed = f"hlo_timed_{len(self.steps)}"
        head = prototype("void", timed, "ptr", "i64", "i64")
        self.unit.define(head, partial(_timed, self._number(step), symbol))
        return timed

    def module(self) -> IrModule:
        """The functions that the other modules call."""
        return IrModule(self.unit.text(), tuple(self.unit.functions), is_glue=True)

    def clear(self) -> None:
        """Forget the events."""
        self.memory[:] = 0

    def events(self) -> np.ndarray:
        """Rows of step, thread (0: the caller's), cycles at the begin and at the end; by begin."""
        kept = self.memory[1 : 1 + int(self.memory[0, 0])].copy()
        kept[:, 1] = _threads(kept[:, 1])
        return kept[np.argsort(kept[:, 2], kind="stable")]

    @property
    def dropped(self) -> int:
        """Events for which there was no memory."""
        return max(0, int(self.memory[0, 0]) - len(self.memory) + 1)

    def _number(self, step: TimedStep) -> int:
        self.steps.append(step)
        return len(self.steps) - 1

    def _event(self, p: Procedure, step: Word, began: Word, ended: Word) -> None:
        memory = p.word(self.memory.ctypes.data).to("ptr")
        number = memory.update("add", _COUNT, 1, "monotonic")
        with p.when(number.below(len(self.memory) - 1)):
            row = memory.item("[4 x i64]", number + 1)
            stack = p.call(_FRAME, 0).to("i64")
            for place, value in enumerate((step, stack, began, ended)):
                row.put(value, place)
        p.ret()


def _timed(number: int, symbol: str, p: Procedure, row: Word, begin: Word, end: Word) -> None:
    began = p.call(_CYCLES)
    p.call(prototype("void", symbol, "ptr", "i64", "i64"), row, begin, end)
    p.call(_EVENT, number, began, p.call(_CYCLES))
    p.ret()


def _threads(stacks: np.ndarray) -> np.ndarray:
    """Numbers of threads; 0 for the one of the first event, which is the caller's where a step
    runs whole, and the others by their first events.
    """
    places = np.unique(stacks)
    groups = np.cumsum(np.diff(places, prepend=places[:1]) > STACKS_APART)
    found = groups[np.searchsorted(places, stacks)]
    order = {int(g): n for n, g in enumerate(dict.fromkeys(found.tolist()))}
    return np.array([order[int(g)] for g in found], np.int64)
