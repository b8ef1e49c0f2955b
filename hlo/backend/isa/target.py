"""Target: what kernels are compiled for: a machine, and how."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct, field
from msgspec.structs import replace

from hlo.backend.ir.kernel import Kernel
from hlo.backend.isa.generic import Isa
from hlo.backend.isa.select import isa_of
from hlo.ir.dtype import DType
from hlo.machine import Machine


class Listener(Protocol):
    """Who wants to see the loops of the kernels that are made: loops/opened.py's Schedules."""

    def enter(self, text: str, schedule: Any, record: Any = None) -> None:
        """The schedule of the kernel with a text, and what its emission opened."""

    def enter_same(self, text: str, other: str) -> None:
        """The schedule of a kernel that is another one's."""


class Made(Struct, eq=False):
    """Kernels by what they are for, which all blocks of a program share; `numbers`: what says that
    instructions are alike (analysis/fingerprint.py), whoever asks first makes it.
    """

    kernels: dict[object, Any] = field(default_factory=dict)
    numbers: Any = None


class Target(Struct, frozen=True):
    """A machine, and how code is made for it.

    mode: "strict" or "fast", HLO's numerics modes.
    debug_locations: lines of IR say which instruction they come from.
    schedules: takes those of the kernels that are made, where somebody asks for them.
    fills: whether what loads the code fills its tables (ir/table_filling.py).
    is_small: whether little code is worth more than fast code, where results do not depend on it.
    runs_once: whether a run of the program runs it once at the most.
    seeks_lapack: whether LAPACK's routines have to be found in this process; else whoever links the
    code has them all.
    is_alone: whether one thread runs all of it: what only several make fast is left out, where
    results do not depend on it.
    is_bounded: whether what instructions say of bounded dimensions is so: of a block's alone.
    on_doubles: whether products of narrower floats are made of doubles, none of which is subnormal.
    made: the kernels of the program so far.
    """

    machine: Machine
    mode: str = "strict"
    debug_locations: bool = False
    schedules: Listener | None = None
    fills: bool = True
    is_small: bool = False
    runs_once: bool = False
    seeks_lapack: bool = True
    is_alone: bool = False
    is_bounded: bool = False
    on_doubles: bool = False
    made: Made | None = None

    @property
    def vector_bytes(self) -> int:
        return self.machine.vector_bytes

    @property
    def isa(self) -> Isa:
        """What the machine's instructions can do."""
        return isa_of(self.machine)

    @property
    def waits_for_subnormals(self) -> bool:
        """Whether the mode keeps subnormal numbers, and the machine takes an assist for them."""
        return bool(self.machine.cycles.assist) and self.mode == "strict"

    @property
    def of_library(self) -> Target:
        """The same for functions that no program decides: without what is of one program. What is
        remembered of it serves all programs, and keeps none of them.
        """
        return replace(
            self, schedules=None, made=None, runs_once=False, is_alone=False, is_bounded=False,
            on_doubles=False,
        )  # fmt: skip

    def shown(self, kernel: Kernel, schedule: Callable[[], Any]) -> Kernel:
        """A kernel of that schedule, which is made where somebody asks."""
        if self.schedules is not None:
            self.schedules.enter(kernel.text, schedule())
        return kernel

    def lanes(self, dtype: DType) -> int:
        """Elements of one full vector of the type (machine.py)."""
        return self.machine.lanes(dtype)
