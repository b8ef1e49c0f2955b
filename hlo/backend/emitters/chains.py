"""Chains: elementwise ops of floats that rest on one of 8 or 16 bits and on constants.

    chain_of(elemental, root) -> the ops from a source to the root, where looking the root's code
    up by the source's (code_tables.py) is less work than computing it

A source is a value through which every way from the root to what is not constant leads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from hlo.backend.emitters.constants import is_uniform
from hlo.backend.emitters.exactness import EXACT
from hlo.backend.emitters.floats import FUNCTIONS
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal

if TYPE_CHECKING:
    from hlo.backend.codegen.elemental import Elemental

LEAST_ELEMENTS = 1 << 12  # for fewer a table is not worth its memory
LEAST_COST = 24  # in vector instructions
MOST_MEMBERS = 64

_COSTS = dict.fromkeys(FUNCTIONS, 24) | {"logistic": 40, "divide": 16, "sqrt": 20, "rsqrt": 20}
_ROUNDING = {"bf16": 4, "f16": 2}
_SMALL_ROUNDING = 16  # of 8 bits

Node = tuple[Instruction, tuple[int, ...]]  # a value: an instruction, which element of a tuple


class Chain(Struct, frozen=True):
    """members: the ops between source and root, operands first, the root the last."""

    source: Node
    root: Instruction
    members: tuple[Instruction, ...]


def chain_of(elemental: Elemental, root: Instruction) -> Chain | None:
    """The longest chain to the root that is worth a table."""
    dtype = root.shape.dtype
    if not (dtype is dt.F32 or has_codes(dtype)) or root.shape.size < LEAST_ELEMENTS:
        return None
    if root.opcode == "convert" and has_codes(root.operands[0].shape.dtype):
        return None  # a shift or little more: the operand's table is half as long
    if not any(has_codes(m.dtype) for m in elemental.memory.values()):
        return None
    order, sources = _explored(elemental, root)
    source = next(iter(sources[root, ()]), (root, ()))
    if source == (root, ()):
        return None
    members = _between(elemental, source, root, order)
    if sum(map(_cost, members)) < LEAST_COST:
        return None
    return Chain(source, root, members)


def has_codes(dtype: DType) -> bool:
    """Whether a table may have an entry for every number of the type."""
    return dtype.is_float and dtype.bits in (8, 16)


def uniform(elemental: Elemental, node: Node) -> Literal | None:
    """The constant whose elements all are the value."""
    instruction, path = node
    while instruction.opcode in ("broadcast", "reshape"):
        instruction, path = elemental.source(instruction.operands[0], ())
    if instruction.opcode != "constant" or path:
        return None
    literal = instruction["literal"]
    assert isinstance(literal, Literal)
    return literal if not literal.is_elided and is_uniform(literal) else None


def _explored(
    elemental: Elemental, root: Instruction
) -> tuple[list[Instruction], dict[Node, tuple[Node, ...]]]:
    """Ops that the root rests on, operands first, and the sources of each, the deepest first."""
    order: list[Instruction] = []
    sources: dict[Node, tuple[Node, ...]] = {}
    stack: list[tuple[Node, bool]] = [((root, ()), False)]
    while stack:
        node, is_ready = stack.pop()
        if node in sources:
            continue
        top = node[0]
        if not is_ready and top is not root and _ends(elemental, node, root, len(order)):
            is_code = has_codes(top.shape.dtype) and top.shape.dims == root.shape.dims
            sources[node] = (node,) if is_code else ()
            continue
        below = [elemental.source(o, ()) for o in top.operands]
        if not is_ready:
            stack.append((node, True))
            stack += [(n, False) for n in below if n not in sources]
            continue
        sources[node] = _common(elemental, below, sources)
        if has_codes(top.shape.dtype):
            sources[node] += (node,)
        order.append(top)
    return order, sources


def _ends(elemental: Elemental, node: Node, root: Instruction, count: int) -> bool:
    """Whether no chain goes through a value: it is there, or made in another way, or too wide."""
    instruction, path = node
    if path or node in elemental.memory or instruction in elemental.saved:
        return True
    if instruction.shape.dims != root.shape.dims or count >= MOST_MEMBERS:
        return True
    return not (elemental.is_op(instruction) and _is_narrow(instruction.shape.dtype))


def _is_narrow(dtype: DType) -> bool:
    return not dtype.is_complex and dtype.bits <= 32


def _common(
    elemental: Elemental, below: list[Node], sources: dict[Node, tuple[Node, ...]]
) -> tuple[Node, ...]:
    """What the sources of all operands have in common, but for constants."""
    lists = [sources[n] for n in below if uniform(elemental, n) is None]
    if not lists:
        return ()
    first, *others = lists
    return tuple(n for n in first if all(n in other for other in others))


def _between(
    elemental: Elemental, source: Node, root: Instruction, order: list[Instruction]
) -> tuple[Instruction, ...]:
    """The ops that are met on the way from the root to the source."""
    met = {root}
    stack = [root]
    ops = frozenset(order)
    while stack:
        for operand in stack.pop().operands:
            node = elemental.source(operand, ())
            if node != source and node[0] in ops and node[0] not in met:
                met.add(node[0])
                stack.append(node[0])
    return tuple(op for op in order if op in met)


def _cost(instruction: Instruction) -> int:
    """Vector instructions for sixteen elements, about."""
    dtype, rounding = instruction.shape.dtype, 0
    if instruction.opcode not in EXACT and has_codes(dtype):
        rounding = _ROUNDING.get(dtype.name, _SMALL_ROUNDING)
    return _COSTS.get(instruction.opcode, 1) + rounding
