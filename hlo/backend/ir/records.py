"""Records: the instructions and labels of LLVM functions as data, each printed as one line.

    Instruction(name, type, opcode, operands, rest)  --str-->  "  %v3 = fadd float %v1, %v2"

name: of the result with its %; "" of what has none. type: the result's, "void" of what has none.
opcode: with its flags ("add nsw", "fcmp olt"). operands: values, and of branches blocks, which are
values of the type label. rest: what follows the operands ("", ", align 4"). mark: the debug
location, as it ends the line. A class per printed form; what its form has beside the operands are
its fields. Records are not changed once they are written, but for phis, which are given what comes
from a loop's end when that is known.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import ClassVar

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.values import Value


class Label(Struct, gc=False):
    """The beginning of a block."""

    label: str
    name: ClassVar[str] = ""
    operands: ClassVar[tuple[Value, ...]] = ()

    def __str__(self) -> str:
        return f"{self.label}:"


class Instruction(Struct, gc=False):
    """Prints as `opcode T a, T b, ...`: store, select, ret, br, what works on lanes."""

    name: str
    type: str
    opcode: str
    operands: tuple[Value, ...]
    rest: str = ""
    mark: str = ""

    @property
    def value(self) -> Value:
        """The result."""
        return Value(self.name, self.type)

    def __str__(self) -> str:
        body = self.body()
        if self.name:
            return f"  {self.name} = {body}{self.rest}{self.mark}"
        return f"  {body}{self.rest}{self.mark}"

    def body(self) -> str:
        """The line without its result and what ends it."""
        if not self.operands:
            return self.opcode
        return f"{self.opcode} {_listed(self.operands)}"


Line = Label | Instruction


class Arithmetic(Instruction):
    """Of operands of one type: `opcode T a, b`."""

    def body(self) -> str:
        if len(self.operands) == 2:  # most of a kernel's lines
            a, b = self.operands
            return f"{self.opcode} {a.type} {a.text}, {b.text}"
        (a,) = self.operands
        return f"{self.opcode} {a.type} {a.text}"


class Cast(Instruction):
    """`opcode T a to R`."""

    def body(self) -> str:
        (a,) = self.operands
        return f"{self.opcode} {a.type} {a.text} to {self.type}"


class Load(Instruction):
    """`load R, ptr a`."""

    def body(self) -> str:
        (address,) = self.operands
        return f"{self.opcode} {self.type}, {address.type} {address.text}"


class Alloca(Instruction):
    """`alloca M`: memory of that type."""

    memory: str = ""

    def body(self) -> str:
        return f"{self.opcode} {self.memory}"


class GetElementPtr(Instruction):
    """`getelementptr E, ptr base, T index`: E is the type that the index counts."""

    element: str = ""

    def body(self) -> str:
        base, index = self.operands
        return f"{self.opcode} {self.element}, {base.type} {base.text}, {index.type} {index.text}"


class Phi(Instruction):
    """`phi T [ a, %block ], ...`. blocks: where each operand comes from. is_tight: whether the
    brackets enclose no blanks.
    """

    blocks: tuple[str, ...] = ()
    is_tight: bool = False

    def add_incoming(self, value: Value, block: str) -> None:
        """The value that comes from one more block."""
        self.operands = (*self.operands, value)
        self.blocks = (*self.blocks, block)

    def body(self) -> str:
        pairs = zip(self.operands, self.blocks, strict=True)
        if self.is_tight:
            ends = ", ".join([f"[{value.text}, %{block}]" for value, block in pairs])
        else:
            ends = ", ".join([f"[ {value.text}, %{block} ]" for value, block in pairs])
        return f"phi {self.type} {ends}"


class Call(Instruction):
    """`call R @symbol(T a, ..)`. form: the function's type, where its result's is not enough.
    attributes: of each argument, "" of most; () of all without one.
    """

    symbol: str = ""
    form: str = ""
    attributes: tuple[str, ...] = ()

    def body(self) -> str:
        return f"call {self.form or self.type} @{self.symbol}({self.arguments()})"

    def arguments(self) -> str:
        """As the parentheses hold them."""
        if not self.attributes:
            return _listed(self.operands)
        pairs = zip(self.operands, self.attributes, strict=True)
        return ", ".join(f"{o.type} {a} {o.text}" if a else o.typed for o, a in pairs)


def block(label: str) -> Value:
    """A block as an operand."""
    return Value(f"%{label}", "label")


def labels_of(record: Line) -> list[str]:
    """The labels of the blocks that a branch leads to."""
    return [o.text[1:] for o in record.operands if o.type == "label"]


def is_terminator(record: Line) -> bool:
    """Whether it ends a block."""
    return isinstance(record, Instruction) and record.opcode in ("br", "ret", "ret void")


def names_of(record: Line) -> list[str]:
    """The values and blocks that it mentions, its result among them, with their %."""
    names = [o.text for o in record.operands if o.text.startswith("%")]
    if isinstance(record, Phi):
        names += [f"%{label}" for label in record.blocks]
    if record.name:
        names.append(record.name)
    return names


def symbols_of(record: Line) -> list[str]:
    """The symbols that it names, in the order in which they are printed."""
    found = [record.symbol] if isinstance(record, Call) and record.symbol else []
    return found + [o.text[1:] for o in record.operands if o.text.startswith("@")]


def renamed(record: Line, names: Mapping[str, str]) -> Line:
    """The record with other symbols; itself where it names none of them."""
    if isinstance(record, Label) or names.keys().isdisjoint(symbols_of(record)):
        return record
    operands = tuple(
        Value(f"@{names.get(o.text[1:], o.text[1:])}", o.type) if o.text.startswith("@") else o
        for o in record.operands
    )
    if isinstance(record, Call):
        return replace(record, operands=operands, symbol=names.get(record.symbol, record.symbol))
    return replace(record, operands=operands)


def _listed(values: Iterable[Value]) -> str:
    """The values with their types."""
    return ", ".join([f"{value.type} {value.text}" for value in values])
