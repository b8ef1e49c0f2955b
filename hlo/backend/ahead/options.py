"""Options: how a program is compiled ahead of time, checked."""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ahead.generation import FORTRAN
from hlo.backend.entry import own_threads_ir
from hlo.backend.entry.c_call_ir import CALLBACK, NONE, PTHREADS
from hlo.errors import HloError
from hlo.machine import Machine, of_triple

MOST_THREADS = 8  # that loops are planned for where nobody says
EMBEDDED, SEPARATE = "embedded", "separate"  # weights: in the object, or an input of each call
_CHOICES = {
    "threads": (NONE, PTHREADS, CALLBACK),
    "lapack": (NONE, FORTRAN),
    "weights": (EMBEDDED, SEPARATE),
}


class Options(Struct, frozen=True):
    """passes, mode: as of a compilation. threads: who runs parallel loops; max_threads: for how
    many they are planned. lapack: who defines its routines: nobody, or whoever links, under the
    names that compilers of Fortran give them. weights: where all constants are.
    is_freestanding: nothing is left to the C library, memcpy and memset neither.
    """

    passes: str = "default"
    mode: str = "strict"
    threads: str = NONE
    max_threads: int = MOST_THREADS
    lapack: str = NONE
    weights: str = EMBEDDED
    is_freestanding: bool = False

    @property
    def planned_threads(self) -> int:
        """That loops are planned for."""
        return 1 if self.threads == NONE else self.max_threads

    @property
    def facts(self) -> tuple[str, ...]:
        """What code depends on."""
        threads = str(self.planned_threads)
        library = str(self.is_freestanding)
        return (self.passes, self.mode, self.threads, threads, self.lapack, self.weights, library)

    def check(self, machine: Machine) -> None:
        """HloError for a choice that there is not, or an architecture that is not described."""
        of_triple(machine.triple)
        for name, known in _CHOICES.items():
            if (value := getattr(self, name)) not in known:
                message = f"compile_ahead: {name} is {value!r}, expected one of {known}"
                raise HloError("arguments", message)
        if self.max_threads < 1:
            message = f"compile_ahead: max_threads is {self.max_threads}, expected at least 1"
            raise HloError("arguments", message)
        if self.threads == PTHREADS and not own_threads_ir.is_known(machine.system):
            raise HloError(
                "unsupported",
                f"threads=pthreads on {machine.triple}, expected one of the systems "
                f"{', '.join(own_threads_ir.SYSTEMS)}",
                help="threads=callback leaves them to the caller",
            )
