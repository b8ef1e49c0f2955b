"""Block operands: what fusions of large values read in another order than blocks are cut in.

    fusion(x, ..), calls={ transpose(reshape(parameter(0))) .. }
        --in_order--> fusion(transpose(reshape(x)), ..), calls={ parameter(0) .. }
    fusion(x), calls={ f(dot(parameter(0), ..)) } --in_order--> fusion(transpose(x)) of other dims
    reshape(f(iota[n])) inside a fusion --in_order--> f(the sum of iotas, times how far each counts)
    those that no block took --as_they_were--> with their own computations

Values of rows that a program keeps in another order (token before head), biases of all heads where
scores are of groups of heads: blocks are contiguous parts of what they read, so such moves stand
before the fusion. They move the same elements there. Reshapes cost nothing as instructions of their
own, whatever they move; transposes are moved where they are little beside the fusion's values.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct, field

from hlo.analysis.blocks.blocking import number
from hlo.analysis.decisions import without_zeros
from hlo.analysis.fusibility import is_elementwise
from hlo.ir.computation import Computation
from hlo.ir.graph import callees, clone_computation, post_order
from hlo.ir.instruction import Attributes, Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make, number_of, spread
from hlo.passes.patterns.matching import ints, is_plain
from hlo.passes.simplify.dce import drop_unread

MOST_COUNTED = 256  # Instructions between a count of all elements and its reshape.
KINDS = ("kLoop", "kInput", "kOutput")
Dims = tuple[int, ...]
# Of a dot's operand, by its number and shape: in which order blocks read it; None: as it is.
Order = Callable[[Instruction, int], Dims | None]


class Operands(Struct, frozen=True, eq=False):
    """Moves of operands that were taken out of fusions.

    own: fusions that got other operands, with the numbers of these, how many moves stand before
    each, and the attributes that they had. made: what moves operands, by what is moved and how.
    """

    own: dict[Instruction, tuple[dict[int, int], Attributes]] = field(default_factory=dict)
    made: dict[tuple[Instruction, object], Instruction] = field(default_factory=dict)


def in_order(module: Module, fusion: Instruction, order: Order, most: int, known: Operands) -> None:
    """Take moves of operands out of a fusion, or put them before it for a dot inside. order: of a
    dot's operand; most: bytes that may be moved. O(instructions of the fusion).
    """
    (callee,) = fusion.called_computations()
    chains = {p: chain for p in callee.parameters if (chain := _moves_of(p, most))}
    turned = {
        (dot, n): dims
        for dot in callee.instructions
        if dot.opcode == "dot"
        for n, operand in enumerate(dot.operands)
        if operand.opcode == "parameter" and len(operand.users) == 1
        if dot.operands[1 - n] is not operand and (dims := order(dot, n)) is not None
    }
    counts = {one: found for one in callee.instructions if (found := _counts_of(one))}
    if not chains and not turned and not counts:
        return
    moves = {number(p): len(_outside(chain)) for p, chain in chains.items()}
    moves |= {number(dot.operands[n]): 1 for dot, n in turned}
    known.own[fusion] = (moves, fusion.attributes)
    copy = _own_computation(module, fusion, callee)
    twins = dict(zip(callee.instructions, copy.instructions, strict=True))
    for parameter, chain in chains.items():
        _take_out(fusion, number(parameter), [twins[one] for one in chain], known)
    for (dot, n), dims in turned.items():
        turn(twins[dot], n, dims)
        place = number(dot.operands[n])
        moved = transposed(fusion.operands[place], dims, known)
        _give(fusion, place, moved)
        twins[dot.operands[n]].shape = moved.shape
    for one, found in counts.items():
        copy.replace_uses(twins[one], _counted_apart(twins[one], [twins[f] for f in found]))
        for dead in (twins[one], *(twins[f] for f in reversed(found))):
            if not dead.users:
                copy.remove(dead)
    if counts:
        copy.reorder(post_order(copy))


def as_they_were(module: Module, computation: Computation, known: Operands) -> None:
    """Fusions that are still there get their own computations back; of those that became members of
    blocks nobody reads these any more. A move that undoes the one before it is none.
    """
    called = {c for f in known.own for c in f.called_computations()}
    for fusion, (moves, attributes) in known.own.items():
        if fusion in computation:
            for place, count in moves.items():
                value = fusion.operands[place]
                for _ in range(count):
                    (value,) = value.operands
                computation.set_operand(fusion, place, value)
            computation.set_attributes(fusion, attributes)
    for made in reversed(known.made.values()):
        if made in computation:
            if (undone := _undone_by(made)) is not None:
                computation.replace_uses(made, undone)
            drop_unread(made)
    given = {c for _, attributes in known.own.values() for c in _callees(attributes)}
    reached = {c for one in module.computations for c in callees(one)} if given else set()
    for one in module.computations[:]:
        if one in called | given and one not in reached:
            module.computations.remove(one)


def _undone_by(made: Instruction) -> Instruction | None:
    """What a transpose of a transpose is, where the one undoes the other."""
    (value,) = made.operands
    if made.opcode != "transpose" or value.opcode != "transpose":
        return None
    before, order = ints(value, "dimensions"), ints(made, "dimensions")
    is_undone = [before[d] for d in order] == sorted(before)
    return value.operands[0] if is_undone and value.operands[0].shape == made.shape else None


def transposed(value: Instruction, dims: Dims, known: Operands) -> Instruction:
    """transpose(value), once for all that read it so."""
    if (value, dims) not in known.made:
        assert value.computation is not None, "in a computation"
        shape = value.shape.with_dims(value.shape.dims[d] for d in dims)
        known.made[value, dims] = value.computation.new(
            "transpose", shape, [value], {"dimensions": dims}, like=value
        )
    return known.made[value, dims]


def turn(dot: Instruction, number: int, dims: Dims) -> None:
    """A dot's attributes for an operand whose dimensions come in another order."""
    side = ("lhs", "rhs")[number]
    attributes = dict(without_zeros(dot))
    for name in (f"{side}_contracting_dims", f"{side}_batch_dims"):
        if name in attributes:
            attributes[name] = tuple(dims.index(d) for d in ints(dot, name))
    assert dot.computation is not None, "in a computation"
    dot.computation.set_attributes(dot, attributes)


def _moves_of(parameter: Instruction, most: int) -> list[Instruction]:
    """The moves that alone read a parameter, one after the other; none where no block is cut
    otherwise for them, or they are too much.
    """
    chain: list[Instruction] = []
    one = parameter
    root = parameter.computation.root if parameter.computation else None
    while len(one.users) == 1 and one is not root:
        (user,) = one.users
        if user.opcode not in ("reshape", "transpose") or user.shape.is_dynamic:
            break
        chain.append(user)
        one = user
    if one is root or root in one.users or not is_plain(parameter.shape):
        return []  # layouts of results count
    if root is not None and _is_in_columns(one, root):
        return []
    turns = any(c.opcode == "transpose" for c in chain)
    if turns and parameter.shape.size_bytes > most:
        return []
    regroups = [n for n in parameter.shape.dims if n != 1] != [n for n in one.shape.dims if n != 1]
    return chain if turns or regroups else []


def _is_in_columns(value: Instruction, root: Instruction) -> bool:
    """Whether a value is repeated along all dimensions of the result but the last, which no block
    cuts: all blocks read all of it, however it lies.
    """
    result = next(root.shape.leaves())
    last = max(result.rank - 1, 0)
    return all(
        user.opcode == "broadcast"
        and user.shape.dims[: result.rank] == result.dims
        and all(d >= last for d in ints(user, "dimensions"))
        for user in value.users
    )


def _counts_of(reshape: Instruction) -> list[Instruction]:
    """What a reshape is made from, operands first, if that counts all elements, as random numbers
    do, in one dimension, and is else arithmetic with numbers; none otherwise.
    """
    if (
        reshape.opcode != "reshape"
        or not is_plain(reshape.shape)
        or sum(n != 1 for n in reshape.shape.dims) < 2
    ):
        return []
    found: dict[Instruction, None] = {}
    waiting = [reshape.operands[0]]
    while waiting:
        one = waiting.pop()
        found.pop(one, None)
        found[one] = None  # behind all that read it so far
        is_spread = one.opcode == "broadcast" and not one.operands[0].shape.dims
        if one.shape.rank != 1 or len(found) > MOST_COUNTED:
            return []
        if is_elementwise(one):
            waiting += [o for o in one.operands if o.shape.dims]
        elif not is_spread and not (one.opcode == "iota" and _is_count(one)):
            return []
    return list(reversed(found)) if any(one.opcode == "iota" for one in found) else []


def _is_count(iota: Instruction) -> bool:
    """Whether it is the same modulo two to the power of its width, of whole bytes."""
    dtype = iota.shape.dtype
    return dtype.is_integral and dtype.bits >= 8 and iota.shape.size > 0


def _counted_apart(reshape: Instruction, found: list[Instruction]) -> Instruction:
    """The same in the dimensions of the reshape."""
    made: dict[Instruction, Instruction] = {}
    for one in found:
        shape = reshape.shape.without_layout().with_dtype(one.shape.dtype)
        if one.opcode == "iota":
            made[one] = _iotas(reshape, shape)
        elif one.opcode == "broadcast":
            made[one] = spread(reshape, one.operands[0], shape)
        else:
            assert reshape.computation is not None, "in a fusion"
            operands = [made.get(o, o) for o in one.operands]
            made[one] = reshape.computation.new(
                one.opcode, shape, operands, one.attributes, like=one
            )
    return made[found[-1]]


def _iotas(reshape: Instruction, shape: Shape) -> Instruction:
    """iota of the last dimension + size of the last * iota of the one before + .."""
    total, stride = None, 1
    for d in reversed(range(shape.rank)):
        if shape.dims[d] != 1:
            term = make(reshape, "iota", shape=shape, iota_dimension=d)
            if stride > 1:
                wrapped = int(np.array(stride, np.int64).astype(shape.dtype.numpy))
                times = spread(reshape, number_of(reshape, wrapped, shape.dtype), shape)
                term = make(reshape, "multiply", term, times)
            total = term if total is None else make(reshape, "add", total, term)
            stride *= shape.dims[d]
    assert total is not None, "a dimension is longer"
    return total


def _outside(chain: list[Instruction]) -> list[Instruction]:
    """The moves of a chain that stand before the fusion: of reshapes alone the last."""
    return chain if any(move.opcode == "transpose" for move in chain) else chain[-1:]


def _own_computation(module: Module, fusion: Instruction, callee: Computation) -> Computation:
    """A copy of what a fusion calls, which it calls from now on."""
    copy = clone_computation(callee)
    module.adopt(copy)
    module.computations.remove(copy)  # callees stand before their callers
    module.computations.insert(module.computations.index(callee), copy)
    assert fusion.computation is not None, "in a computation"
    fusion.computation.set_attributes(fusion, {**fusion.attributes, "calls": copy})
    return copy


def _take_out(fusion: Instruction, place: int, chain: list[Instruction], known: Operands) -> None:
    """The fusion's parameter becomes what the chain made of it; the chain stands before it."""
    computation, value, last = fusion.computation, fusion.operands[place], chain[-1]
    parameter, body = chain[0].operands[0], last.computation
    assert computation is not None, "in a computation"
    assert body is not None, "in a fusion"
    for move in _outside(chain):
        shape = move.shape.without_layout()  # inside of a fusion layouts say nothing
        key = (move.opcode, shape, move.attributes.get("dimensions"))
        if (value, key) not in known.made:
            known.made[value, key] = computation.new(
                move.opcode, shape, [value], move.attributes, like=fusion
            )
        value = known.made[value, key]
    _give(fusion, place, value)
    body.replace_uses(last, parameter)
    for move in reversed(chain):
        body.remove(move)
    parameter.shape = value.shape


def _give(fusion: Instruction, place: int, value: Instruction) -> None:
    assert fusion.computation is not None, "in a computation"
    fusion.computation.set_operand(fusion, place, value)


def _callees(attributes: Attributes) -> list[Computation]:
    found = attributes.get("calls")
    return [found] if isinstance(found, Computation) else []
