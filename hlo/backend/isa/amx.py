"""AMX: eight registers of tiles, and products of them.

    configure; zero, load, multiply ..; store; release        of one thread, by its own leave

A tile is up to 16 rows of 64 bytes. A product takes one of rows and one of columns, whose elements
lie in groups that fill 32 bits, and adds to a tile of 16 x 16 sums. Linux grants the registers to a
process on request; each kernel asks again (0.2 us), since its object may come from a cache. It asks
by an instruction, so that objects need nothing of the C library for it.

TDPBF16PS reads subnormal numbers as zero. TDPFP16PS does not, and gives none: a product of two f16
is a multiple of 2^-48, and so is a sum of these (Intel's manual, volume 2, both instructions).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable

from msgspec import Struct

from hlo.backend.ir.records import Call
from hlo.backend.ir.values import listed
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.assembly import InlineAssembly
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.machine import Machine
from hlo.process.tile_permission import PERMISSION_CALL

REGISTERS, ROWS, ROW_BYTES = 8, 16, 64
# The system call's convention (System V ABI for x86-64, A.2.1): its number and result in rax, two
# operands in rdi and rsi; rcx and r11 are lost.
SYSTEM_CALL = "={rax},{rax},{rdi},{rsi},~{rcx},~{r11},~{memory},~{dirflag},~{fpsr},~{flags}"
_SIGNS = {dt.S8: "s", dt.U8: "u"}
_HALVES = {dt.BF16: ("bf16", "amx-bf16"), dt.F16: ("fp16", "amx-fp16")}

_X86 = "llvm.x86."
_FILLED = tuple(f"{_X86}{name}" for name in ("tdp", "tileload", "tilezero"))
_STORED = f"{_X86}tilestored"


class TileProduct(Struct, frozen=True):
    """An instruction that multiplies tiles and adds the products up.

    instruction: its name; lhs, rhs: what it multiplies, as many bits each; sums: LLVM's type of
    one of them. asks: whether the system, Linux, wants to be asked for tiles.
    """

    instruction: str
    lhs: DType
    rhs: DType
    sums: str
    asks: bool

    @property
    def group(self) -> int:
        """Elements in 32 bits."""
        return 32 // self.lhs.bits

    def configure(self, w: Writer) -> None:
        """Permission, then all tiles as large as they get."""
        if self.asks:
            operands = tuple(map(w.int, PERMISSION_CALL))
            asked = InlineAssembly(w.fresh(), "i64", "call", operands, code=("syscall",),
                                   constraints=SYSTEM_CALL)  # fmt: skip
            w.append(asked)
        row_bytes, rows = [ROW_BYTES, 0] * REGISTERS, [ROWS] * REGISTERS
        sizes = [1, 0] + [0] * 14 + row_bytes + [0] * 16 + rows + [0] * 8  # palette 1
        words = [int.from_bytes(bytes(sizes[i : i + 4]), "little") for i in range(0, 64, 4)]
        table = w.alloca("[64 x i8]", 64)
        w.store(listed("i32", tuple(words)), table, 64)
        self._write(w, "ldtilecfg", table)

    def release(self, w: Writer) -> None:
        """The registers are of no more use."""
        self._write(w, "tilerelease")

    def zero(self, w: Writer, tile: int) -> None:
        """A tile of zeros."""
        self._write(w, "tilezero", w.int(tile, "i8"))

    def load(self, w: Writer, tile: int, address: Value, row: int) -> None:
        """A tile from memory whose rows lie `row` bytes apart."""
        self._write(w, "tileloadd64", w.int(tile, "i8"), address, w.int(row))

    def store(self, w: Writer, tile: int, address: Value, row: int) -> None:
        """A tile to memory whose rows lie `row` bytes apart."""
        self._write(w, "tilestored64", w.int(tile, "i8"), address, w.int(row))

    def multiply(self, w: Writer, sums: int, rows: int, columns: int) -> None:
        """The product of two tiles added to a third."""
        self._write(w, self.instruction, *(w.int(tile, "i8") for tile in (sums, rows, columns)))

    @staticmethod
    def _write(w: Writer, name: str, *operands: Value) -> None:
        types = ["i8 immarg" if o.type == "i8" else o.type for o in operands]
        w.declare("void", f"{_X86}{name}", types)
        w.call(f"{_X86}{name}", *operands)


def tile_product(machine: Machine, lhs: DType, rhs: DType) -> TileProduct | None:
    """The product of tiles of these types."""
    features, asks = machine.features, machine.system == "linux"
    for element, (name, needed) in _HALVES.items():
        if lhs is rhs is element and needed in features:
            return TileProduct(f"tdp{name}ps", lhs, rhs, "float", asks)
    if lhs in _SIGNS and rhs in _SIGNS and "amx-int8" in features:
        return TileProduct(f"tdpb{_SIGNS[lhs]}{_SIGNS[rhs]}d", lhs, rhs, "i32", asks)
    return None


# -- of a function's records ---------------------------------------------------------------------


def configuration(calls: Iterable[Call]) -> list[Call]:
    """That which makes the tiles ready, if there is one."""
    found = (call for call in calls if call.symbol == f"{_X86}ldtilecfg")
    return list(itertools.islice(found, 1))


def released() -> Call:
    """The call after which the registers are of no more use."""
    return Call("", "void", "call", (), symbol=f"{_X86}tilerelease")


def holds_tiles(calls: Iterable[Call]) -> bool:
    """Whether they fill tiles that they do not store."""
    called = [call.symbol for call in calls]
    is_stored = any(symbol.startswith(_STORED) for symbol in called)
    return not is_stored and any(symbol.startswith(_FILLED) for symbol in called)
