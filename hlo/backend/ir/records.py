"""Records: the instructions and labels of LLVM functions as data, each printed as one line.

    Instruction(name, type, opcode, operands, rest)  --str-->  "  %v3 = fadd float %v1, %v2"

name: of the result with its %; "" of what has none. type: the result's, "void" of what has none.
opcode: with its flags ("add nsw", "fcmp olt"). operands: values, and of branches blocks, which are
values of the type label. rest: what follows the operands ("", ", align 4"). location: the debug
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
    """Prints as `opcode T a, T b, ...`: store, select, ret, what works on lanes."""

    name: str
    type: str
    opcode: str
    operands: tuple[Value, ...]
    rest: str = ""
    location: str = ""

    @property
    def value(self) -> Value:
        """The result."""
        return Value(self.name, self.type)

    @property
    def head(self) -> str:
        """The line up to its opcode."""
        return f"  {self.name} = {self.opcode}" if self.name else f"  {self.opcode}"

    def __str__(self) -> str:
        head, between = self.head, " "
        for value in self.operands:
            head = f"{head}{between}{value.type} {value.text}"
            between = ", "
        return f"{head}{self.rest}{self.location}"


Line = Label | Instruction


class Branch(Instruction):
    """`br label %a` or `br i1 c, label %a, label %b`."""

    @property
    def labels(self) -> list[str]:
        """The blocks that it leads to."""
        return [block.text[1:] for block in self.operands[-2:] if block.type == "label"]


class Switch(Branch):
    """`switch T a, label %otherwise [ T 1, label %b .. ]`: the operands in this order."""

    @property
    def labels(self) -> list[str]:
        """The blocks that it leads to."""
        return [block.text[1:] for block in self.operands[1::2]]

    def __str__(self) -> str:
        value, otherwise, *cases = self.operands
        pairs = zip(cases[::2], cases[1::2], strict=True)
        rows = " ".join([f"{case.typed}, {target.typed}" for case, target in pairs])
        return f"{self.head} {value.typed}, {otherwise.typed} [ {rows} ]{self.rest}{self.location}"


class Arithmetic(Instruction):
    """Of operands of one type: `opcode T a, b`."""

    def __str__(self) -> str:
        a, *others = self.operands
        if others:  # most of a kernel's lines
            line = f"  {self.name} = {self.opcode} {a.type} {a.text}, {others[0].text}"
            return f"{line}{self.rest}{self.location}"
        return f"  {self.name} = {self.opcode} {a.type} {a.text}{self.rest}{self.location}"


class Cast(Instruction):
    """`opcode T a to R`."""

    def __str__(self) -> str:
        (a,) = self.operands
        line = f"  {self.name} = {self.opcode} {a.type} {a.text} to {self.type}"
        return f"{line}{self.rest}{self.location}"


class Load(Instruction):
    """`load R, ptr a`."""

    def __str__(self) -> str:
        (address,) = self.operands
        line = f"  {self.name} = {self.opcode} {self.type}, {address.type} {address.text}"
        return f"{line}{self.rest}{self.location}"


class Alloca(Instruction):
    """`alloca M`: memory of that type."""

    memory: str = ""

    def __str__(self) -> str:
        return f"{self.head} {self.memory}{self.rest}{self.location}"


class GetElementPtr(Instruction):
    """`getelementptr E, ptr base, T index`: E is the type that the index counts."""

    element: str = ""

    def __str__(self) -> str:
        base, index = self.operands
        line = f"  {self.name} = {self.opcode} {self.element}, {base.type} {base.text}"
        return f"{line}, {index.type} {index.text}{self.rest}{self.location}"


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

    def __str__(self) -> str:
        pairs = zip(self.operands, self.blocks, strict=True)
        if self.is_tight:
            ends = ", ".join([f"[{value.text}, %{block}]" for value, block in pairs])
        else:
            ends = ", ".join([f"[ {value.text}, %{block} ]" for value, block in pairs])
        return f"  {self.name} = phi {self.type} {ends}{self.rest}{self.location}"


class Call(Instruction):
    """`call R @symbol(T a, ..)`. form: the function's type, where its result's is not enough.
    attributes: of each argument, "" of most; () of all without one.
    """

    symbol: str = ""
    form: str = ""
    attributes: tuple[str, ...] = ()

    def __str__(self) -> str:
        called = f"{self.form or self.type} @{self.symbol}({self.arguments()})"
        return f"{self.head} {called}{self.rest}{self.location}"

    def arguments(self) -> str:
        """As the parentheses hold them."""
        if not self.attributes:
            return ", ".join([f"{o.type} {o.text}" for o in self.operands])
        pairs = zip(self.operands, self.attributes, strict=True)
        return ", ".join(f"{o.type} {a} {o.text}" if a else o.typed for o, a in pairs)


class CallAddress(Instruction):
    """`call R %f(T a, ..)`: of the function at an address, the first operand."""

    def __str__(self) -> str:
        function, *others = self.operands
        arguments = ", ".join([o.typed for o in others])
        return f"{self.head} {self.type} {function.text}({arguments}){self.rest}{self.location}"


def block(label: str) -> Value:
    """A block as an operand."""
    return Value(f"%{label}", "label")


def branch(label: str) -> Branch:
    """To a block."""
    return Branch("", "void", "br", (block(label),))


def branch_if(condition: Value, then: str, otherwise: str, *, is_rare: bool = False) -> Branch:
    """To one of two blocks. is_rare: the first hardly ever, so that LLVM, which computes what is
    little of both before the branch, leaves it there.
    """
    rest = ', !prof !{!"branch_weights", i32 1, i32 2000}' if is_rare else ""
    return Branch("", "void", "br", (condition, block(then), block(otherwise)), rest)


def is_terminator(record: Line) -> bool:
    """Whether it ends a block."""
    if isinstance(record, Branch):
        return True
    return isinstance(record, Instruction) and record.opcode in ("ret", "ret void")


def names_of(records: Iterable[Line]) -> list[str]:
    """The values and blocks that they mention, their results among them, with their %; as often
    as they do.
    """
    found = [o.text for record in records for o in record.operands if o.text[0] == "%"]
    for record in records:
        if record.name:
            found.append(record.name)
            if isinstance(record, Phi):
                found += [f"%{label}" for label in record.blocks]
    return found


def symbols_of(records: Iterable[Line]) -> list[str]:
    """The symbols that they name, in the order in which they are printed."""
    found = []
    for record in records:
        if isinstance(record, Call) and record.symbol:
            found.append(record.symbol)
        for operand in record.operands:
            if operand.text[0] == "@":
                found.append(operand.text[1:])
    return found


def renamed(record: Line, names: Mapping[str, str]) -> Line:
    """The record with other symbols; itself where it names none of them."""
    if isinstance(record, Label) or names.keys().isdisjoint(symbols_of((record,))):
        return record
    operands = tuple(
        Value(f"@{names.get(o.text[1:], o.text[1:])}", o.type) if o.text.startswith("@") else o
        for o in record.operands
    )
    if isinstance(record, Call):
        return replace(record, operands=operands, symbol=names.get(record.symbol, record.symbol))
    return replace(record, operands=operands)
