"""Select: which instruction set answers for a machine."""

from __future__ import annotations

from functools import lru_cache

from hlo.backend.isa.avx2 import Avx2
from hlo.backend.isa.avx512 import Avx512
from hlo.backend.isa.generic import Isa
from hlo.backend.isa.sse import Sse
from hlo.machine import Machine


@lru_cache(maxsize=64)
def isa_of(machine: Machine) -> Isa:
    """What a machine's instructions can do."""
    if machine.architecture != "x86_64":
        return _other(machine.architecture)(machine)
    if any(feature.startswith("avx512") for feature in machine.features):
        return Avx512(machine)
    return Avx2(machine) if machine.features & {"avx2", "fma", "f16c"} else Sse(machine)


def _other(architecture: str) -> type[Isa]:
    """Of an architecture that is not x86-64; imported when code is first made for it."""
    match architecture:
        case "aarch64":
            from hlo.backend.isa.neon import Neon

            return Neon
        case "arm":
            from hlo.backend.isa.arm32 import Arm32

            return Arm32
        case "riscv64":
            from hlo.backend.isa.riscv import RiscV

            return RiscV
        case "wasm32":
            from hlo.backend.isa.wasm import Wasm

            return Wasm
        case _:
            return Isa


def base_of(architecture: str) -> Isa:
    """What the instructions of every processor of an architecture can do."""
    return isa_of(Machine(name=architecture, triple=architecture, features=frozenset()))
