"""Byte orders that LLVM's middle-end does not look into.

    text of a module --hidden--> the same, the constant orders of its permutations loaded

Where it sees the order of a permutation of bytes, it writes a shuffle, for which code
generation then finds two or three instructions (LLVM 22, InstCombine).
"""

from __future__ import annotations

import re

from hlo.backend.isa.avx512 import BYTE_PERMUTATION

_PERMUTED = re.escape(f"call <64 x i8> @{BYTE_PERMUTATION}(")
_LINE = re.compile(rf"^  (%\S+) = ({_PERMUTED}[^,]*, <64 x i8>) (<[^>]*>)", re.MULTILINE)
_ORDER = "externally_initialized constant <64 x i8>"  # of whose bytes no pass is certain


def hidden(text: str) -> str:
    """The module's text with its constant orders behind loads."""
    orders: dict[str, str] = {}

    def loaded(found: re.Match[str]) -> str:
        value, call, order = found.groups()
        symbol = orders.setdefault(order, f"@hlo.order.{len(orders)}")
        place = f"{value}.order"
        return f"  {place} = load <64 x i8>, ptr {symbol}, align 64\n  {value} = {call} {place}"

    changed = _LINE.sub(loaded, text)
    heads = [f"{s} = internal {_ORDER} {order}, align 64" for order, s in orders.items()]
    return "\n".join([*heads, changed])
