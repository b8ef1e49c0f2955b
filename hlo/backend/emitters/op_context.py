"""Op context: what an elementwise op is applied to, for emitters that look at more than numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from hlo.backend.emitters.lanes import opened
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.lanes.types import Lanes
from hlo.backend.math.term import Term
from hlo.ir.dtype import DType
from hlo.ops.attributes import Attributes


class OpContext(Struct, frozen=True):
    """What an op is applied to: lanes of its operands, their types, the result's, attributes."""

    w: Writer
    target: Target
    operands: Sequence[Lanes]
    types: Sequence[DType]
    result: DType
    attrs: Attributes

    def term(self, number: int) -> Term:
        """An operand that is no complex number."""
        lanes = self.operands[number]
        assert isinstance(lanes, Value), "one vector"
        return Term(self.w, self.target, lanes)

    def opened(self, number: int, dtype: DType) -> Term:
        """An operand as lanes to compute with."""
        return opened(self.term(number), dtype)


Special = Callable[[OpContext], Lanes]
