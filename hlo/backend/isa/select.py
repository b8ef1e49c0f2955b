"""Select: which instruction set answers for a machine."""

from __future__ import annotations

from functools import lru_cache

from hlo.backend.isa.arm32 import Arm32
from hlo.backend.isa.avx2 import Avx2
from hlo.backend.isa.avx512 import Avx512
from hlo.backend.isa.generic import Isa
from hlo.backend.isa.neon import Neon
from hlo.backend.isa.riscv import RiscV
from hlo.backend.isa.sse import Sse
from hlo.backend.isa.wasm import Wasm
from hlo.machine import Machine

_OTHERS: dict[str, type[Isa]] = {"aarch64": Neon, "arm": Arm32, "riscv64": RiscV, "wasm32": Wasm}


@lru_cache(maxsize=64)
def isa_of(machine: Machine) -> Isa:
    """What a machine's instructions can do."""
    if machine.architecture != "x86_64":
        return _OTHERS.get(machine.architecture, Isa)(machine)
    if any(feature.startswith("avx512") for feature in machine.features):
        return Avx512(machine)
    return Avx2(machine) if machine.features & {"avx2", "fma", "f16c"} else Sse(machine)


def base_of(architecture: str) -> Isa:
    """What the instructions of every processor of an architecture can do."""
    return isa_of(Machine(name=architecture, triple=architecture, features=frozenset()))
