"""Decisions that a text carries: what a pass chose for an instruction, for whoever compiles it.

    backend_config={"hlo":{"block":[1,128]}}, or {"hlo":{"loop_order":[0,2,1]}}, beside keys of
    others, which mean nothing here

A decision is read from the text, not taken again; whoever reads one checks it against what it is
about, and takes it anew, as the pass would, where it is absent or does not fit.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from hlo.ir.instruction import Attributes, Instruction
from hlo.ir.shape import Shape

COLUMNS, ROWS = "columns", "rows"
GRANULE = 64  # Bounds are multiples of so many elements, or where the dimension ends.


class Seen(Struct, frozen=True):
    """Of scores under a mask: which dimension is their rows, which their columns, and of some rows
    after the others, (first row, behind the last one, first column, behind the last one), between
    which columns their elements count for something.
    """

    row: int
    column: int
    spans: tuple[tuple[int, int, int, int], ...]


class Decisions(Struct, frozen=True, omit_defaults=True):
    """What passes chose for an instruction, as its text carries it.

    block: a block's sizes in the leading dimensions of a fusion's results (blocks/size.py).
    lead: of a loop that runs by blocks, the sizes of those dimensions, which are its state's.
    loop_order: a result's dimensions, the outermost loop's first (loop_order.py).
    is_overwritten: of memory without values, that the program fills all of it before it reads any.
    zeros: of a dot's factors: a factor's number, two of its dimensions, and the least and the most
    of (index in the second) - (index in the first) at which elements are not zero. The run looks.
    seen: of scores under a mask, what nobody who reads the text may change: that all that is made
    of other columns comes to nothing, as mask skipping has proved, and guards have found out.
    bounded: of a member of a block, the dimension of which it has what the block's rows see alone
    (-1: of all of them it has all). sums: what a reduce or dot adds up there: COLUMNS, a bounded
    dimension; ROWS, another one, to what has been added up before. underflows: of a block's
    parameter, that it is likely to have subnormal elements (underflow.py).
    """

    block: tuple[int, ...] = ()
    lead: tuple[int, ...] = ()
    loop_order: tuple[int, ...] = ()
    is_overwritten: bool = False
    zeros: tuple[tuple[int, int, int, int, int], ...] = ()
    seen: Seen | None = None
    bounded: int = -1
    sums: str = ""
    underflows: bool = False


class _Config(Struct, frozen=True):
    """What of a backend_config is read."""

    hlo: Decisions = Decisions()


def config_of(decisions: Decisions) -> str:
    """The backend_config of an instruction that has none yet."""
    return msgspec.json.encode(_Config(decisions)).decode()


def decisions_of(instruction: Instruction) -> Decisions:
    """What an instruction's text says; nothing where it is of another form."""
    text = instruction.get("backend_config", "")
    if not isinstance(text, str) or '"hlo"' not in text:
        return Decisions()
    try:
        return msgspec.json.decode(text, type=_Config).hlo
    except (msgspec.DecodeError, RecursionError, UnicodeError):
        return Decisions()


def without_zeros(dot: Instruction) -> Attributes:
    """A dot's attributes for one of other factors, of which nothing is said."""
    kept = dict(dot.attributes)
    if decisions_of(dot).zeros:
        del kept["backend_config"]
    return kept


def with_zeros_of(dot: Instruction, factors: Sequence[Shape]) -> Attributes:
    """A dot's attributes for a part of it: what is said of factors that are cut there is left out.

    factors: their shapes in the part.
    """
    attributes = dot.attributes
    said = decisions_of(dot).zeros if dot.opcode == "dot" else ()
    if not said:
        return attributes
    for side, *dims, _, _ in said:
        pairs = [(o.shape.dims, part.dims) for o, part in zip(dot.operands, factors, strict=True)]
        is_known = side in (0, 1) and all(0 <= d < len(pairs[side][0]) for d in dims)
        if not is_known or any(pairs[side][0][d] != pairs[side][1][d] for d in dims):
            return without_zeros(dot)
    return attributes
