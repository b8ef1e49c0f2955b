"""Target: what kernels are compiled for: a machine, and how."""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.isa.generic import Isa
from hlo.backend.isa.select import isa_of
from hlo.ir.dtype import DType
from hlo.machine import Machine


class Target(Struct, frozen=True):
    """mode: "strict" or "fast", HLO's numerics modes. marks: lines of IR say which instruction they
    come from.
    """

    machine: Machine
    mode: str = "strict"
    marks: bool = False

    @property
    def vector_bytes(self) -> int:
        return self.machine.vector_bytes

    @property
    def isa(self) -> Isa:
        """What the machine's instructions can do."""
        return isa_of(self.machine)

    def lanes(self, dtype: DType) -> int:
        """Elements of one full vector of the type (machine.py)."""
        return self.machine.lanes(dtype)
