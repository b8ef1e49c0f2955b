"""Decays: elements of a loop's state that factors make ever smaller: of filters, of diffusion.

    state' = 0.9 state + input          state' = state + 0.2 (its neighbours - 4 state)

Each is followed through the body. Where it returns as a multiple of itself and in no other way, it
decays unless something feeds it, as what is the same in each trip does; where it returns as itself,
moved multiples of it spread. Powers of it are something else.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import prod

from msgspec import Struct

from hlo.analysis.flow import Callers, Value, is_body, onward, origin
from hlo.analysis.fusibility import is_scalar_constant, is_zero
from hlo.analysis.reducers import reducer_of
from hlo.analysis.while_loops.loop_state import element_index, unchanged_elements
from hlo.ir.computation import Computation
from hlo.ir.graph import body_of
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.contraction import DotDimensions
from hlo.ops.effects import with_callees
from hlo.ops.table import INDEX_MAPS, Trait, opcodes

Path = tuple[int, ...]
_MOVED, _KEEPS_TINY = opcodes(INDEX_MAPS), opcodes(Trait.KEEPS_TINY)
_MOST_STATES = 48  # Of a loop, which is followed for each of its values.


class _Sources(Struct, frozen=True):
    """What of a body depends on states that are floats; on any that changes, so that it is another
    one in each trip. has_products: of matrices by matrices.
    """

    states: set[Value]
    trip: set[Value]
    has_products: bool


class _Ways(Struct, frozen=True):
    """Sets of states, as bits: those that a value is a sum of, moved ones, multiples, moved
    multiples.
    """

    same: int = 0
    moved: int = 0
    times: int = 0
    spread: int = 0

    def __or__(self, other: _Ways) -> _Ways:
        return _Ways(
            self.same | other.same, self.moved | other.moved, self.times | other.times,
            self.spread | other.spread,
        )  # fmt: skip

    @property
    def multiplied(self) -> _Ways:
        return _Ways(times=self.same | self.times, spread=self.moved | self.spread)

    @property
    def shifted(self) -> _Ways:
        return _Ways(moved=self.same | self.moved, spread=self.times | self.spread)

    @property
    def all(self) -> int:
        return self.same | self.moved | self.times | self.spread


def decaying(loop: Instruction, callers: Callers) -> Iterator[Value]:
    """The values of a while's body that are made of states which decay."""
    body = body_of(loop)
    (parameter,) = body.parameters
    leaves: list[tuple[Path, Shape]] = [((), parameter.shape)]
    if parameter.shape.is_tuple:
        leaves = [((n,), e) for n, e in enumerate(parameter.shape.elements) if e.is_array]
    kept = _kept(body)
    changed = [path for path, _ in leaves if (parameter, path) not in kept]
    floats = [path for path, shape in leaves if path in changed and shape.dtype.is_float]
    if not 0 < len(floats) <= _MOST_STATES:
        return
    of = _Sources(
        _computed_from(body, floats, callers),
        _computed_from(body, changed, callers),
        any(_multiplies_matrices(m) for m in _members(body)),
    )
    ways = _followed(body, floats, callers, of)
    ends = [ways.get((body.root, path), _Ways()) for path in floats]
    found = _decaying(ends)
    yield from (value for value, way in ways.items() if way.all & found)


def _kept(body: Computation) -> set[Value]:
    """The elements of the state that a trip hands on as they are."""
    (parameter,) = body.parameters
    return {(parameter, (element_index(e),)) for e in unchanged_elements(body)}


def _computed_from(body: Computation, paths: Sequence[Path], callers: Callers) -> set[Value]:
    """What of the body depends on elements of the state."""
    (parameter,) = body.parameters
    waiting: list[Value] = [(parameter, path) for path in paths]
    found = set(waiting)
    while waiting:
        value = waiting.pop()
        new = [to for to, _ in _inside(value, body, callers) if to not in found]
        found.update(new)
        waiting += new
    return found


def _inside(
    value: Value, body: Computation, callers: Callers
) -> Iterator[tuple[Value, Instruction | None]]:
    """Where a value goes in a body: not out of it, nor into loops there, which are followed for
    themselves.
    """
    instruction, _ = value
    if instruction is body.root:
        return
    for to, op in onward(value, callers):
        if to[0].opcode != "parameter" or not is_body(to[0].computation):
            yield to, op


def _followed(
    body: Computation, paths: Sequence[Path], callers: Callers, of: _Sources
) -> dict[Value, _Ways]:
    """What of the body is made of which states."""
    (parameter,) = body.parameters
    ways: dict[Value, _Ways] = {}
    waiting: list[tuple[Value, _Ways]] = [
        ((parameter, path), _Ways(same=1 << n)) for n, path in enumerate(paths)
    ]
    while waiting:
        value, way = waiting.pop()
        known = ways.get(value)
        joined = way if known is None else known | way
        if joined == known:
            continue
        ways[value] = joined
        for to, op in _inside(value, body, callers):
            made = joined if op is None else _through(op, value[0], joined, of)
            if made is not None:
                waiting.append((to, made))
    return ways


def _through(op: Instruction, operand: Instruction, way: _Ways, of: _Sources) -> _Ways | None:
    """What an op makes of it; None where its result is something else."""
    operands = op.operands
    others = [o for o in operands if o is not operand] or [operand]
    match op.opcode:
        case "multiply" | "dot" | "convolution":
            if (others[0], ()) in of.states and not _is_gate(others[0]):
                return None  # a power of it
            return way.multiplied if op.opcode != "convolution" else way.multiplied.shifted
        case "divide" if operand is operands[0]:
            return way.multiplied
        case "add" | "subtract" if (others[0], ()) in of.trip or is_zero(others[0]):
            return way
        case "select" if operand in operands[1:]:
            return way
        case "reduce" if operand is operands[0] and reducer_of(op).opcodes == ("add",):
            return way
        case "concatenate" | "dynamic-slice" | "gather" | "pad" | "reverse" | "slice":
            return way.shifted  # to the places of others
        case "negate" | "abs" | "convert":
            return way
        case opcode if opcode in _MOVED or (opcode in _KEEPS_TINY and not of.has_products):
            return way
    return None


def _is_gate(factor: Instruction) -> bool:
    """Whether it is a logistic function, or one less that: what it is of does not make it small."""
    factor = origin(factor)
    if factor.opcode == "subtract" and _is_number(factor.operands[0]):
        factor = origin(factor.operands[1])
    return factor.opcode == "logistic" or (
        factor.opcode == "divide" and _is_number(factor.operands[0])
    )


def _is_number(value: Instruction) -> bool:
    return is_scalar_constant(value.operands[0] if value.opcode == "broadcast" else value)


def _members(body: Computation) -> Iterator[Instruction]:
    """What a body holds, in fusions and branches too; loops in it are followed for themselves."""
    for instruction in body.instructions:
        if instruction.opcode != "while":
            yield from with_callees(instruction)


def _multiplies_matrices(dot: Instruction) -> bool:
    """Whether it has several rows and columns: subnormal numbers in such factors are looked for
    at some cost, and states that go through functions hardly have some.
    """
    if dot.opcode != "dot":
        return False
    lhs, rhs = (o.shape for o in dot.operands)
    attributes = DotDimensions.of(dot.attributes)
    depth = prod(lhs.dims[d] for d in attributes.lhs_contracting_dims)
    return dot.shape.size * depth not in (lhs.size, rhs.size)


def _decaying(ends: list[_Ways]) -> int:
    """The states, as bits. ends: what the body makes of each."""
    count = range(len(ends))
    found = 0
    same = _reached([end.same | end.moved for end in ends])
    every = _reached([end.all for end in ends])
    for state in count:
        # Those on a way from the state to itself.
        ring = [n for n in count if n == state or (every[state] >> n & 1 and every[n] >> state & 1)]
        members = sum(1 << n for n in ring)
        times = any((ends[n].times | ends[n].spread) & members for n in ring)
        spread = any(ends[n].spread & members for n in ring)
        if (times and not same[state] >> state & 1) or spread:
            found |= 1 << state
    return found


def _reached(of: list[int]) -> list[int]:
    """For each state those that it is made of, over any number of trips."""
    reached = list(of)
    for n in range(len(of)):
        for m in range(len(of)):
            if reached[m] >> n & 1:
                reached[m] |= reached[n]
    return reached
