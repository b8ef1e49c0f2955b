"""Byte orders that LLVM's middle-end does not look into.

    functions of a module --hidden--> the same, the constant orders of its permutations loaded

Where it sees the order of a permutation of bytes, it writes a shuffle instead of the one
instruction, and code generation then takes two or three for it (LLVM 22, InstCombine).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from msgspec.structs import replace

from hlo.backend.ir.definitions import Definitions
from hlo.backend.ir.functions import Data, Definition, Function
from hlo.backend.ir.records import Call, Line, Load
from hlo.backend.ir.values import Value
from hlo.backend.isa.avx512 import BYTE_PERMUTATION

D = TypeVar("D", bound=Definition)
# A constant of whose bytes no pass is certain.
_ORDER = "externally_initialized constant <64 x i8>"


def hide(module: Definitions) -> list[Data]:
    """Puts the constant orders of a module behind loads; the data that these read."""
    orders: dict[Value, str] = {}
    for symbol, definition in module.by_symbol.items():
        module.by_symbol[symbol] = _hidden(definition, orders)
    module.functions[:] = [_hidden(function, orders) for function in module.functions]
    return [
        Data(symbol, f"@{symbol} = internal {_ORDER} {order}, align 64")
        for order, symbol in orders.items()
    ]


def _hidden(definition: D, orders: dict[Value, str]) -> D:
    if not isinstance(definition, Function) or BYTE_PERMUTATION not in definition.symbols:
        return definition
    records = [x for record in definition.records for x in _loaded(record, orders)]
    return replace(definition, records=records)


def _loaded(record: Line, orders: dict[Value, str]) -> Iterator[Line]:
    """A permutation behind the load of its order; what is none as it is."""
    if isinstance(record, Call) and record.symbol == BYTE_PERMUTATION:
        bytes, order = record.operands
        if order.is_constant:
            symbol = orders.setdefault(order, f"hlo.order.{len(orders)}")
            place = Value(f"{record.name}.order", order.type)
            source = Value(f"@{symbol}", "ptr")
            yield Load(place.text, place.type, "load", (source,), ", align 64")
            record = replace(record, operands=(bytes, place))
    yield record
