"""Words: integers, addresses and truth values with C's operators, for functions written by hand.

    Word in a writer: a + b, a << 2, a < b, p.load(FIELD), p.get("ptr", i), flag.select(a, b)

Nothing is shared and nothing folded: a line of Python is the instructions that it says, in order.
Comparisons with operators are signed, those with names are not.
"""

from __future__ import annotations

from hlo.backend.ir.interface import Field
from hlo.backend.ir.records import Arithmetic, Cast, GetElementPtr, Instruction, Load
from hlo.backend.ir.values import Value
from hlo.backend.ir.writer import Writer

POINTER_BITS = 64


class Word(Value, frozen=True, eq=False):
    """A value, and the writer of the function that it is in."""

    w: Writer

    def _made(
        self, kind: type[Instruction], type: str, opcode: str, *operands: Value, rest: str = ""
    ) -> Word:
        """The result of one more instruction."""
        w = self.w
        name = w.fresh()
        w.records.append(kind(name, type, opcode, operands, rest))
        return Word(name, type, w)

    def _as(self, other: Value | int) -> Value:
        return other if isinstance(other, Value) else Value(str(other), self.type)

    def binary(self, opcode: str, other: Value | int) -> Word:
        """An instruction on two values of one type."""
        return self._made(Arithmetic, self.type, opcode, self, self._as(other))

    def compare(self, opcode: str, other: Value | int) -> Word:
        """Whether it is so: an i1."""
        return self._made(Arithmetic, "i1", opcode, self, self._as(other))

    # -- arithmetic --------------------------------------------------------------------------

    def __add__(self, other: Value | int) -> Word:
        return self.binary("add", other)

    def __sub__(self, other: Value | int) -> Word:
        return self.binary("sub", other)

    def __rsub__(self, other: int) -> Word:
        return self._made(Arithmetic, self.type, "sub", self._as(other), self)

    def __mul__(self, other: Value | int) -> Word:
        return self.binary("mul", other)

    def __floordiv__(self, other: Value | int) -> Word:
        """Unsigned."""
        return self.binary("udiv", other)

    def __and__(self, other: Value | int) -> Word:
        return self.binary("and", other)

    def __or__(self, other: Value | int) -> Word:
        return self.binary("or", other)

    def __invert__(self) -> Word:
        """Of an i1: not."""
        return self.binary("xor", Value("true", "i1"))

    def __lshift__(self, other: Value | int) -> Word:
        return self.binary("shl", other)

    def __rlshift__(self, other: int) -> Word:
        return self._made(Arithmetic, self.type, "shl", self._as(other), self)

    def __rshift__(self, other: Value | int) -> Word:
        """Zeros come in."""
        return self.binary("lshr", other)

    # -- comparisons -------------------------------------------------------------------------

    def eq(self, other: Value | int) -> Word:
        return self.compare("icmp eq", other)

    def ne(self, other: Value | int) -> Word:
        return self.compare("icmp ne", other)

    def __lt__(self, other: Value | int) -> Word:
        return self.compare("icmp slt", other)

    def __le__(self, other: Value | int) -> Word:
        return self.compare("icmp sle", other)

    def __gt__(self, other: Value | int) -> Word:
        return self.compare("icmp sgt", other)

    def __ge__(self, other: Value | int) -> Word:
        return self.compare("icmp sge", other)

    def below(self, other: Value | int) -> Word:
        """<, unsigned."""
        return self.compare("icmp ult", other)

    def at_most(self, other: Value | int) -> Word:
        """<=, unsigned."""
        return self.compare("icmp ule", other)

    def above(self, other: Value | int) -> Word:
        """>, unsigned."""
        return self.compare("icmp ugt", other)

    def at_least(self, other: Value | int) -> Word:
        """>=, unsigned."""
        return self.compare("icmp uge", other)

    def select(self, then: Value, otherwise: Value) -> Word:
        """One of two, by this i1."""
        return self._made(Instruction, then.type, "select", self, then, otherwise)

    # -- types -------------------------------------------------------------------------------

    def cast(self, opcode: str, type: str) -> Word:
        """A conversion by its name."""
        return self._made(Cast, type, opcode, self)

    def to(self, type: str) -> Word:
        """The same bits in a narrower type, or in a wider one behind zeros; of addresses too."""
        if "ptr" in (self.type, type):
            return self.cast("ptrtoint" if self.type == "ptr" else "inttoptr", type)
        return self.cast("trunc" if int(self.type[1:]) > int(type[1:]) else "zext", type)

    # -- memory behind an address ------------------------------------------------------------

    def item(self, type: str, index: Value | int) -> Word:
        """The address of an element of an array that begins here."""
        w, number = self.w, index if isinstance(index, Value) else Value(str(index), "i64")
        name = w.fresh()
        operands = (self, number)
        w.records.append(GetElementPtr(name, "ptr", "getelementptr", operands, element=type))
        return Word(name, "ptr", w)

    def get(self, type: str, index: Value | int = 0) -> Word:
        """An element of an array that begins here."""
        place = self if index == 0 else self.item(type, index)
        return self._made(Load, type, "load", place)

    def put(self, value: Value, index: Value | int = 0) -> None:
        """Store an element of such an array."""
        place = self if index == 0 else self.item(value.type, index)
        self.w.emit("store", value, place)

    def at(self, field: Field) -> Word:
        """The address of a field of what begins here."""
        if field.place is not None:
            return self.item("i8", field.place)
        return self.item("i8", field.offset) if field.offset else self

    def load(self, field: Field, order: str = "") -> Word:
        """A field. order: of what threads share, LLVM's name of an order of memory accesses."""
        opcode, rest = _ordered("load", field, order)
        return self._made(Load, field.type, opcode, self.at(field), rest=rest)

    def store(self, field: Field, value: Value | int, order: str = "") -> None:
        """Write a field."""
        opcode, rest = _ordered("store", field, order)
        stored = value if isinstance(value, Value) else Value(str(value), field.type)
        self.w.emit(opcode, stored, self.at(field), rest=rest)

    def update(self, opcode: str, field: Field, value: Value | int, order: str) -> Word:
        """Change a field in one step by "add" or "sub"; gives what it was."""
        changed = value if isinstance(value, Value) else Value(str(value), field.type)
        operands = (self.at(field), changed)
        return self._made(
            Instruction, field.type, f"atomicrmw {opcode}", *operands, rest=f" {order}"
        )

    def swap(self, field: Field, expected: Value | int, wanted: Value | int) -> Word:
        """Compare and swap: the wanted value where the expected one is. Whether it was: what
        others wrote before is seen then.
        """
        old, new = (
            v if isinstance(v, Value) else Value(str(v), field.type) for v in (expected, wanted)
        )
        type, order = f"{{ {field.type}, i1 }}", " acq_rel monotonic"
        pair = self._made(Instruction, type, "cmpxchg", self.at(field), old, new, rest=order)
        return self._made(Instruction, "i1", "extractvalue", pair, rest=", 1")


def _ordered(opcode: str, field: Field, order: str) -> tuple[str, str]:
    """An access's opcode, and what follows its operands."""
    if not order:
        return opcode, ""
    bits = POINTER_BITS if field.type == "ptr" else int(field.type[1:])
    return f"{opcode} atomic", f" {order}, align {bits // 8}"
