"""Chains: elementwise ops of floats that rest on one of 8 or 16 bits and on constants.

    chain_of(expression, root) -> the ops from a source to the root, where looking the root's code
    up by the source's (emitters/lookup_tables.py) is less work than computing it

A source is a value through which every path from the root to what is not constant leads.
"""

from __future__ import annotations

from hlo.analysis.fusibility import is_elementwise
from hlo.backend.isa.target import Target
from hlo.backend.loops.expression import Chain, Expression, Node
from hlo.backend.loops.schedule import Table
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ops.table import OPS, Trait, has_trait, opcodes

LEAST_ELEMENTS = 1 << 12  # For fewer elements a table is not worth its memory.
# The least cost of a chain that is looked up, in vector instructions, is what looking up codes of a
# few exponents takes (`Cycles.lookup`). Codes that are spread over a whole table of 16 bits, which
# the nearest cache does not hold, take so many more, where computing is not slow itself: subnormal
# numbers, as many of bf16's codes are, make arithmetic wait.
SPREAD_COST = 9
MOST_MEMBERS = 64
LANES = 16  # Elements that are looked up at once.
_IN_HALVES = opcodes(Trait.IN_HALVES)

_ROUNDING = {"bf16": 4, "f16": 2}
_SMALL_ROUNDING = 16  # Vector instructions of rounding to a float of 8 bits or fewer.


def chain_to(expression: Expression, root: Instruction) -> Chain | None:
    """The chain to an op's result where it is looked up: where the machine gathers quickly and the
    target fills tables (ir/table_filling.py); else None.
    """
    if root not in expression.chains:
        target = expression.target
        is_quick = target.fills and target.isa.quick_gather(LANES)
        expression.chains[root] = chain_of(expression, root) if is_quick else None
    return expression.chains[root]


def table_of(expression: Expression, chain: Chain) -> Table:
    """The table of a chain, as a schedule shows it: an entry for every code of its source."""
    source = chain.source[0]
    name = expression.name(*chain.source)
    return Table(chain.root.name, name, 1 << source.shape.dtype.bits, chain.root.shape.dtype.name)


def is_op(instruction: Instruction) -> bool:
    """Whether lanes of the operands give lanes of the result."""
    return instruction.opcode != "bitcast-convert" and is_elementwise(instruction)


def is_in_halves(opcode: str, dtype: DType, target: Target) -> bool:
    """Whether the machine computes the op on f16."""
    return dtype is dt.F16 and opcode in _IN_HALVES and target.isa.computes_halves


def chain_of(expression: Expression, root: Instruction) -> Chain | None:
    """The longest chain to the root that is worth a table."""
    dtype = root.shape.dtype
    if not (dtype is dt.F32 or has_codes(dtype)) or root.shape.size < LEAST_ELEMENTS:
        return None
    if root.opcode == "convert" and has_codes(root.operands[0].shape.dtype):
        return None  # a shift or little more: the operand's table is half as long
    if not any(has_codes(m.dtype) for m in expression.leaves.values()):
        return None
    order, sources = _explored(expression, root)
    source = next(iter(sources[root, ()]), (root, ()))
    if source == (root, ()):
        return None
    members = _between(expression, source, root, order)
    target = expression.target
    cost = sum(_cost(member, target) for member in members)
    if cost < _least_cost(source[0].shape.dtype, members, target):
        return None
    return Chain(source, root, members)


def has_codes(dtype: DType) -> bool:
    """Whether a table may have an entry for every number of the type."""
    return dtype.is_float and dtype.bits in (8, 16)


def uniform(expression: Expression, node: Node) -> Literal | None:
    """The constant whose elements all are the value."""
    instruction, path = node
    while instruction.opcode in ("broadcast", "reshape"):
        instruction, path = expression.source(instruction.operands[0], ())
    if instruction.opcode != "constant" or path:
        return None
    literal = instruction["literal"]
    assert isinstance(literal, Literal)
    return literal if not literal.is_elided and literal.is_uniform else None


def _explored(
    expression: Expression, root: Instruction
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
        if not is_ready and top is not root and _ends(expression, node, root, len(order)):
            is_code = has_codes(top.shape.dtype) and top.shape.dims == root.shape.dims
            sources[node] = (node,) if is_code else ()
            continue
        below = [expression.source(o, ()) for o in top.operands]
        if not is_ready:
            stack.append((node, True))
            stack += [(n, False) for n in below if n not in sources]
            continue
        sources[node] = _common(expression, below, sources)
        if has_codes(top.shape.dtype):
            sources[node] += (node,)
        order.append(top)
    return order, sources


def _ends(expression: Expression, node: Node, root: Instruction, count: int) -> bool:
    """Whether no chain goes through a value: it is in memory, no elementwise op makes it, or its
    type is too wide.
    """
    instruction, path = node
    if path or node in expression.leaves:
        return True
    if instruction.shape.dims != root.shape.dims or count >= MOST_MEMBERS:
        return True
    return not (is_op(instruction) and _is_narrow(instruction.shape.dtype))


def _is_narrow(dtype: DType) -> bool:
    return not dtype.is_complex and dtype.bits <= 32


def _common(
    expression: Expression, below: list[Node], sources: dict[Node, tuple[Node, ...]]
) -> tuple[Node, ...]:
    """What the sources of all operands have in common, but for constants."""
    lists = [sources[n] for n in below if uniform(expression, n) is None]
    if not lists:
        return ()
    first, *others = lists
    return tuple(n for n in first if all(n in other for other in others))


def _between(
    expression: Expression, source: Node, root: Instruction, order: list[Instruction]
) -> tuple[Instruction, ...]:
    """The ops that are met on the way from the root to the source."""
    met = {root}
    stack = [root]
    ops = frozenset(order)
    while stack:
        for operand in stack.pop().operands:
            node = expression.source(operand, ())
            if node != source and node[0] in ops and node[0] not in met:
                met.add(node[0])
                stack.append(node[0])
    return tuple(op for op in order if op in met)


def _least_cost(source: DType, members: tuple[Instruction, ...], target: Target) -> int:
    """The least cost of a chain that is no slower as a table, for codes of such a source."""
    waits = target.mode == "strict" and not all(
        has_trait(m, Trait.STEADY | Trait.EXACT) for m in members
    )
    is_spread = source.bits > 8 and not (source is dt.BF16 and waits)
    return target.machine.cycles.lookup + (SPREAD_COST if is_spread else 0)


def _cost(instruction: Instruction, target: Target) -> int:
    """About how many vector instructions sixteen elements take."""
    dtype, rounding = instruction.shape.dtype, 0
    if is_in_halves(instruction.opcode, dtype, target):
        return 1
    if has_codes(dtype) and not has_trait(instruction, Trait.EXACT):
        rounding = _ROUNDING.get(dtype.name, _SMALL_ROUNDING)
    return OPS[instruction.opcode].cost.operations + rounding
