"""Target: what kernels are compiled for: a machine, and how."""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.kernel import Kernel
from hlo.backend.loops.opened import Schedules
from hlo.backend.loops.schedule import Plan
from hlo.ir.dtype import DType
from hlo.machine import Machine


class Target(Struct, frozen=True):
    """mode: "strict" or "fast", HLO's numerics modes. marks: lines of IR say which instruction they
    come from. schedules: takes those of the kernels that are made, where somebody asks for them.
    """

    machine: Machine
    mode: str = "strict"
    marks: bool = False
    schedules: Schedules | None = None

    @property
    def vector_bytes(self) -> int:
        return self.machine.vector_bytes

    def shown(self, kernel: Kernel, *lines: str) -> Kernel:
        """A kernel whose plan these lines say, where somebody asks."""
        if self.schedules is not None:
            self.schedules.enter(kernel.text, Plan(lines))
        return kernel

    def has(self, feature: str) -> bool:
        return self.machine.has(feature)

    def lanes(self, dtype: DType) -> int:
        """Elements of one full vector of the type (machine.py)."""
        return self.machine.lanes(dtype)
