"""Early modules: kernels of a program whose code is begun while the others are planned.

    kernels, as they are made --enter--> IrModules, each when the next is full --begin--> somebody

LLVM leaves Python's lock to others, so that planning hides what it takes. Which kernels a module
has follows from their order alone. What loops repeat is no part of it: they may take kernels in;
nor are kernels that the middle-end sees, that read tables which are to be filled, that run seldom,
or take so little of a run that they may be plain code (planning/brevity.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.entry.kernel_modules import kernel_module, library_module, plain_code
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.grouping import GLUE, KERNELS, MOST_CUT, Cost
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.kernel import Kernel, KernelSequence
from hlo.backend.ir.shared_functions import shared
from hlo.backend.ir.table_filling import has_tables
from hlo.backend.planning.brevity import may_be_brief
from hlo.backend.planning.splitting import kernel_us, packing_us
from hlo.backend.planning.steps import WATCH_US
from hlo.ir.instruction import Instruction
from hlo.machine import Machine

if TYPE_CHECKING:
    from hlo.backend.entry.polling import Known

# Microseconds of kernels that are a module: shorter ones have more around them, and LLVM waits for
# Python's lock behind each; of longer ones the last is awaited for longer. What fills the last one
# is shared out evenly in the end: begun by itself, it made a short program take 1.2 of the time.
MODULE_US = 12_000


class Begun(Struct, frozen=True, eq=False):
    """Modules of kernels whose code is being made already.

    modules: those that are there; names: of all that they define; lines: of their kernels.
    known: what kernels became that may have to stop.
    """

    modules: tuple[IrModule, ...] = ()
    names: frozenset[str] = frozenset()
    lines: int = 0
    known: Known | None = None


NONE_BEGUN = Begun()


class EarlyModules:
    """A program's, so far. begin: hears of each as soon as it is there."""

    def __init__(self, machine: Machine, made_for: Machine | None = None) -> None:
        """made_for: whose code the modules are; None: the host's."""
        self.begin: Callable[[IrModule], None] | None = None
        self._machine = machine
        self._made_for = made_for
        self._seen: set[str] = set()
        self._us_of: dict[int, float] = {}
        self._run_us = 0.0
        self._known: Known = {}
        self._open: dict[Cost, dict[str, Kernel]] = {KERNELS: {}, GLUE: {}}
        self._us = {KERNELS: 0, GLUE: 0}
        self._full: tuple[dict[str, Kernel], Cost] | None = None
        self._modules: list[IrModule] = []
        self._names: set[str] = set()
        self._lines = 0

    @property
    def begun(self) -> Begun:
        """What is there, when no kernel comes any more."""
        return Begun(tuple(self._modules), frozenset(self._names), self._lines, self._known)

    def enter(self, instruction: Instruction, made: KernelSequence) -> None:
        """The kernels of an instruction that no loop repeats."""
        us = self._us_of.get(id(made))  # which lives as long as what is planned with it
        if us is None:
            us = self._us_of[id(made)] = sum(
                self._enter(call.kernel, instruction) for call in made.calls if call.when is None
            )
        self._run_us += us

    def _enter(self, kernel: Kernel, instruction: Instruction) -> float:
        """A kernel, unless it has to wait; the time of its run."""
        us = kernel_us(kernel, instruction, self._machine)
        waits = kernel.needs_middle_end or has_tables(kernel)
        if not (waits or may_be_brief(kernel, us, self._run_us)):
            final = self._final(kernel, us)
            for function in (*final.functions, final):
                self._add(symbol(function), function)
        return us

    def _final(self, kernel: Kernel, us: float) -> Kernel:
        """The kernel with its questions: a program that it is in can be stopped if it is long."""
        if us < WATCH_US and not kernel.is_open:
            return kernel
        from hlo.backend.entry.polling import polled, work_of  # few programs have such

        work = work_of(kernel.units, us, packing_us(kernel, self._machine.rates))
        return polled(kernel, work, self._known)

    def _add(self, name: str, kernel: Kernel) -> None:
        if name in self._seen:
            return
        self._seen.add(name)
        cost = GLUE if plain_code({name: kernel}, frozenset()) else KERNELS
        self._open[cost][name] = kernel
        self._us[cost] += cost.of_kernel(kernel)
        if self._us[cost] >= MODULE_US:
            before, self._full = self._full, (self._open[cost], cost)
            self._open[cost], self._us[cost] = {}, 0
            if before is not None:
                self._close(*before)

    def _close(self, group: dict[str, Kernel], cost: Cost) -> None:
        """A module of kernels, and of functions that they share with later ones."""
        is_glue = cost is GLUE
        self._lines += sum(k.length for k in group.values())
        if not is_glue:
            group = {n: k for n, k in shared(group).items() if n not in self._names}
        self._names |= group.keys()
        library = {} if is_glue else {n: k for n, k in group.items() if k.is_library}
        rest = {n: k for n, k in group.items() if n not in library}
        if not is_glue and any(k.length > MOST_CUT for k in rest.values()):
            from hlo.backend.ir.outlining import outline  # for long kernels

            pieces = outline(rest, MOST_CUT, MOST_CUT)
            rest = {n: k for n, k in pieces.items() if n in rest or n not in self._names}
            self._names |= rest.keys()
        made = [library_module(item) for item in library.items()]
        if rest:
            made.append(kernel_module(rest, is_glue=is_glue))
        for module in made:
            own = replace(module, machine=self._made_for) if self._made_for else module
            self._modules.append(own)
            if self.begin is not None:
                self.begin(own)
