"""Named: records whose results have names that are chosen by hand, as hand-written functions do.

n.load("source", "ptr", slot, 8)   =>   %source = load ptr, ptr %slot, align 8
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.ir.records import Arithmetic, Call, Cast, GetElementPtr, Instruction, Load
from hlo.backend.ir.values import Value
from hlo.backend.ir.writer import Writer


class Named(Struct, frozen=True):
    """Writes into w. Nothing is shared; each name is used once."""

    w: Writer

    def binary(self, name: str, opcode: str, a: Value, b: Value) -> Value:
        return self.w.append(Arithmetic(f"%{name}", a.type, opcode, (a, b)))

    def unary(self, name: str, opcode: str, a: Value) -> Value:
        return self.w.append(Arithmetic(f"%{name}", a.type, opcode, (a,)))

    def cast(self, name: str, opcode: str, a: Value, type: str) -> Value:
        return self.w.append(Cast(f"%{name}", type, opcode, (a,)))

    def compare(self, name: str, opcode: str, a: Value, b: Value) -> Value:
        return self.w.append(Arithmetic(f"%{name}", "i1", opcode, (a, b)))

    def address(self, name: str, base: Value, index: Value, element: str) -> Value:
        """base + index elements, which may lie outside what base points to."""
        operands = (base, index)
        return self.w.append(
            GetElementPtr(f"%{name}", "ptr", "getelementptr", operands, element=element)
        )

    def load(self, name: str, type: str, address: Value, align: int = 0) -> Value:
        """align: in bytes; 0: the type's own."""
        rest = f", align {align}" if align else ""
        return self.w.append(Load(f"%{name}", type, "load", (address,), rest))

    def select(self, name: str, condition: Value, a: Value, b: Value) -> Value:
        return self.w.append(Instruction(f"%{name}", a.type, "select", (condition, a, b)))

    def call(self, name: str, type: str, symbol: str, *operands: Value) -> Value:
        return self.w.append(Call(f"%{name}", type, "call", operands, symbol=symbol))
