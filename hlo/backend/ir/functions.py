"""Functions and data: what kernels are made of, and what they need beside them.

    Function(parameters, records)   --text-->  "define float @KERNEL(float %x) {...}"
    Data(symbol, text)              a global variable

Texts are made once. Equal ones are those whose texts are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.records import Branch, Label, Line, Phi, Switch, renamed, symbols_of
from hlo.backend.ir.values import Value

_T = TypeVar("_T")
# The parameters of every kernel.
PARAMETERS = (Value("%buffers", "ptr"), Value("%begin", "i64"), Value("%end", "i64"))
BUFFERS, BEGIN, END = PARAMETERS
# Those of a bounded kernel, which runs all its units: between which columns.
BOUNDED_PARAMETERS = (BUFFERS, Value("%low", "i64"), Value("%high", "i64"))
_, LOW, HIGH = BOUNDED_PARAMETERS

_CONTROL = frozenset({Label, Phi, Branch, Switch})  # looked up by class: lines are many


class Data(Struct, frozen=True):
    """A global variable: `@symbol = ...`."""

    symbol: str
    text: str

    @property
    def symbols(self) -> list[str]:
        """Those that it names: its own."""
        return [self.symbol]

    def named(self, symbol: str) -> Data:
        """The same under another symbol."""
        return Data(symbol, f"@{symbol}{self.text.removeprefix(f'@{self.symbol}')}")

    def renamed(self, names: Mapping[str, str]) -> Data:
        """The same: it names no function."""
        return self

    def __repr__(self) -> str:
        return repr(self.text)


class Function(Struct, eq=False, dict=True, kw_only=True):
    """A function of LLVM IR as records.

    records: of the body, one a line. symbol: KERNEL of what is renamed where it is placed in a
    module. attributes: such as "nounwind"; linkage: "internal" or none. ends_line: whether the text
    ends with a line's end. is_library: whether its symbol says all of it, on one machine: kernels
    of all programs have the same.
    """

    records: Sequence[Line]
    parameters: tuple[Value, ...] = PARAMETERS
    result: str = "void"
    symbol: str = "KERNEL"
    attributes: str = ""
    linkage: str = ""
    ends_line: bool = True
    is_library: bool = False

    @property
    def text(self) -> str:
        """The definition."""
        return self._made("_text", self._printed)

    def _made(self, key: str, make: Callable[[], _T]) -> _T:
        """A value that is made when it is asked for: the same, whichever thread is the first."""
        if key not in self.__dict__:
            self.__dict__[key] = make()
        made: _T = self.__dict__[key]
        return made

    def _printed(self) -> str:
        parameters = ", ".join([p.typed for p in self.parameters])
        words = ("define", self.linkage, self.result, f"@{self.symbol}({parameters})")
        head = " ".join(filter(None, (*words, self.attributes, "{")))
        lines = map(str, straightened(self.records))
        return "\n".join([head, *lines, "}\n" if self.ends_line else "}"])

    def named(self, symbol: str) -> Function:
        """The same under another symbol; what is printed already is not printed again."""
        made = replace(self, symbol=symbol)
        if (text := self.__dict__.get("_text")) is not None:
            made.__dict__["_text"] = text.replace(f"@{self.symbol}(", f"@{symbol}(", 1)
        return made

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return repr(self.text)

    @property
    def length(self) -> int:
        """Records, and lines around them: about those of the text, which need not be printed."""
        return len(self.records) + 1 + self.ends_line

    @property
    def symbols(self) -> list[str]:
        """Those that it names, its own first."""
        return self._made("_symbols", self._named)

    def _named(self) -> list[str]:
        return [self.symbol, *symbols_of(self.records)]

    def renamed(self, names: Mapping[str, str]) -> Function:
        """The same with other symbols in its body."""
        if names.keys().isdisjoint(self.symbols):
            return self
        return replace(self, records=[renamed(record, names) for record in self.records])


Definition = Function | Data


def straightened(records: Sequence[Line]) -> Sequence[Line]:
    """The records, without blocks that follow the only branch to them, which says nothing else.

    Loops are written with blocks that cutting and questions look for (outlining.py, polling.py),
    so it is done when a function is printed. LLVM looks at each block in most of its passes:
    without these it takes 2 to 4 % less time, and its code is the same.
    """
    if not isinstance(records[0], Label):
        return records  # its first block has no name that a phi could say
    control = [n for n, record in enumerate(records) if record.__class__ in _CONTROL]
    entered: dict[str, int] = {}
    for number in control:
        record = records[number]
        if isinstance(record, Branch):
            for label in record.labels:
                entered[label] = entered.get(label, 0) + 1
    here, inside, joints = "", dict[str, str](), list[int]()
    for number in control:
        record = records[number]
        if not isinstance(record, Label):
            continue
        if entered.get(record.label) == 1 and _is_straight(records, number):
            inside[record.label] = here
            joints.append(number)
        else:
            here = record.label
    return _joined(records, control, joints, inside) if joints else records


def _is_straight(records: Sequence[Line], number: int) -> bool:
    """Whether the record before a label goes there alone, and no phi stands behind it."""
    before, label = records[number - 1], records[number]
    if not isinstance(before, Branch) or len(before.operands) != 1:
        return False
    assert isinstance(label, Label), "it is asked for labels"
    is_last = number + 1 == len(records)
    return before.labels == [label.label] and (is_last or not isinstance(records[number + 1], Phi))


def _joined(
    records: Sequence[Line], control: list[int], joints: list[int], inside: dict[str, str]
) -> list[Line]:
    """The records without the labels at `joints` and the branches before them."""
    made = list(records)
    for number in control:
        record = made[number]
        if isinstance(record, Phi):
            made[number] = _with_blocks(record, inside)
    for number in reversed(joints):
        del made[number - 1 : number + 1]
    return made


def _with_blocks(phi: Phi, inside: dict[str, str]) -> Phi:
    """The phi, which names the blocks that its own are a part of now."""
    if inside.keys().isdisjoint(phi.blocks):
        return phi
    return replace(phi, blocks=tuple([inside.get(b, b) for b in phi.blocks]))
