"""Options: how a program is compiled ahead of time, checked."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.backend.ahead.generation import FORTRAN
from hlo.backend.entry import own_threads_ir
from hlo.backend.entry.c_call_ir import CALLBACK, NONE, PTHREADS
from hlo.backend.isa import processor
from hlo.errors import HloError, checked_count
from hlo.machine import NAMED, Machine, of_triple

MOST_THREADS = 8  # that loops are planned for where nobody says
LEAST = "x86-64"  # what may run before it is known which of several machines this is
EMBEDDED, SEPARATE = "embedded", "separate"  # weights: in the object, or an input of each call
SPEED, SIZE = "speed", "size"
_CHOICES = {
    "threads": (NONE, PTHREADS, CALLBACK),
    "lapack": (NONE, FORTRAN),
    "weights": (EMBEDDED, SEPARATE),
    "optimize": (SPEED, SIZE),
}


class Options(Struct, frozen=True):
    """What a caller chooses of a program that is compiled ahead of time.

    passes, mode: as of a compilation. threads: who runs parallel loops; max_threads: for how
    many they are planned. lapack: who defines its routines: nobody, or whoever links, under the
    names that compilers of Fortran give them. weights: where all constants are.
    is_freestanding: nothing is left to the C library, memcpy and memset neither. is_cancellable: a
    word of the caller's ends calls. optimize: what code is to be, fast or little.
    """

    passes: str = "default"
    mode: str = "strict"
    threads: str = NONE
    max_threads: int = MOST_THREADS
    lapack: str = NONE
    weights: str = EMBEDDED
    is_freestanding: bool = False
    is_cancellable: bool = False
    optimize: str = SPEED

    @property
    def planned_threads(self) -> int:
        """That loops are planned for."""
        return 1 if self.threads == NONE else self.max_threads

    @property
    def facts(self) -> tuple[str, ...]:
        """What code depends on."""
        threads = str(self.planned_threads)
        flags = str((self.is_freestanding, self.is_cancellable))
        chosen = (self.threads, threads, self.lapack, self.weights, self.optimize)
        return (self.passes, self.mode, *chosen, flags)

    @property
    def is_small(self) -> bool:
        """Whether little code is worth more than fast code."""
        return self.optimize == SIZE

    def check(self, machines: Sequence[Machine]) -> None:
        """HloError for a choice that there is not, or an architecture that is not described."""
        machine = machines[0]
        of_triple(machine.triple)
        if len(machines) > 1:
            _check_several(machines)
        for name, known in _CHOICES.items():
            if (value := getattr(self, name)) not in known:
                message = f"compile_ahead: {name} is {value!r}, expected one of {known}"
                raise HloError("arguments", message)
        if self.is_freestanding and self.is_cancellable:
            message = "freestanding and cancellable, expected one of them: threads know by "
            raise HloError("unsupported", f"{message}variables of their own what they work for")
        checked_count("compile_ahead: max_threads", self.max_threads)
        if self.threads == PTHREADS and not own_threads_ir.is_known(machine.system):
            raise HloError(
                "unsupported",
                f"threads=pthreads on {machine.triple}, expected one of the systems "
                f"{', '.join(own_threads_ir.SYSTEMS)}",
                help="threads=callback leaves them to the caller",
            )


def least_first(machines: Sequence[Machine]) -> list[Machine]:
    """Machines so that what extends another is behind it."""
    return sorted(machines, key=lambda m: (len(m.features), m.name))


def _check_several(machines: Sequence[Machine]) -> None:
    """HloError for machines between which an object cannot choose."""
    for machine in machines:
        if machine.architecture != NAMED[LEAST].architecture:
            message = f"several machines: {machine.name} is {machine.architecture}, expected "
            raise HloError("machine", f"{message}x86_64: others have an object for each")
        if missing := sorted(processor.unknown(machine.features)):
            message = f"several machines: {machine.name} has {', '.join(missing)}, expected "
            raise HloError("machine", f"{message}features that cpuid is asked for")
        if machine.triple != machines[0].triple:
            message = f"several machines: {machine.name} is of {machine.triple}, expected "
            raise HloError("machine", f"{message}{machines[0].triple}, as {machines[0].name}")
    names = [machine.name for machine in machines]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise HloError("machine", f"several machines: {twice[0]} is there twice, expected once")
