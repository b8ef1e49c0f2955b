"""Functions: what kernels are made of, as records under a head, or as text that no pass changes.

    Function(result, parameters, records)  --text-->  "define float @KERNEL(float %x) {...}"
    Opaque(symbol, text)                   a function or data that prints itself

Texts are made once. Equal functions are those whose texts are equal.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property

from msgspec import Struct

from hlo.backend.ir.records import Line
from hlo.backend.ir.values import Value

PARAMETERS = (Value("%buffers", "ptr"), Value("%begin", "i64"), Value("%end", "i64"))  # a kernel's


class Opaque(Struct, frozen=True):
    """A function or data as text. symbol: what it defines."""

    symbol: str
    text: str

    @property
    def length(self) -> int:
        """Ends of lines in the text."""
        return self.text.count("\n")

    def __repr__(self) -> str:
        return repr(self.text)


class Function(Struct, eq=False, dict=True):
    """records: of the body, one a line. symbol: KERNEL of what is renamed where it is placed in a
    module. attributes: such as "nounwind"; linkage: "internal" or none. ends_line: whether the text
    ends with the end of a line.
    """

    parameters: tuple[Value, ...]
    records: Sequence[Line]
    result: str = "void"
    symbol: str = "KERNEL"
    attributes: str = ""
    linkage: str = ""
    ends_line: bool = True

    @cached_property
    def text(self) -> str:
        """The definition."""
        ending = "}\n" if self.ends_line else "}"
        return "\n".join([self.head, *map(str, self.records), ending])

    @property
    def head(self) -> str:
        """The first line."""
        words = ["define", self.linkage, self.result, f"@{self.symbol}({self._listed()})"]
        return " ".join(filter(None, (*words, self.attributes, "{")))

    def _listed(self) -> str:
        return ", ".join([p.typed for p in self.parameters])

    @property
    def length(self) -> int:
        """Ends of lines in the text, which need not be printed for that."""
        return len(self.records) + 1 + self.ends_line

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Function | Opaque) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return repr(self.text)


Definition = Function | Opaque
