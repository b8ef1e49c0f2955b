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

from hlo.backend.ir.records import Line, renamed, symbols_of
from hlo.backend.ir.straightening import straightened
from hlo.backend.ir.values import Value

_T = TypeVar("_T")
# The parameters of every kernel.
PARAMETERS = (Value("%buffers", "ptr"), Value("%begin", "i64"), Value("%end", "i64"))
BUFFERS, BEGIN, END = PARAMETERS
# Those of a bounded kernel, which runs all its units: between which columns.
BOUNDED_PARAMETERS = (BUFFERS, Value("%low", "i64"), Value("%high", "i64"))
_, LOW, HIGH = BOUNDED_PARAMETERS


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
    """records: of the body, one a line. symbol: KERNEL of what is renamed where it is placed in a
    module. attributes: such as "nounwind"; linkage: "internal" or none. ends_line: whether the text
    ends with a line's end.
    """

    records: Sequence[Line]
    parameters: tuple[Value, ...] = PARAMETERS
    result: str = "void"
    symbol: str = "KERNEL"
    attributes: str = ""
    linkage: str = ""
    ends_line: bool = True

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
