"""Concatenate parting: what is computed of large scores with a few columns beside them.

    c = concatenate(s, few);  m = reduce-max(c);  e = exp(c - m);  t = reduce-add(e);  slice(e / t)
        -->  m = max(reduce-max(s), reduce-max(few)), e = exp(s - m), ..

Softmax with a sink (a learned score that takes weight and gives none) writes its scores beside
others, in rows of one column more. Arithmetic of each element is done on the parts instead,
reductions along the rows are made of those of the parts, and slices are one of them, so that the
long part is what other passes know. Gradients pad with the few columns' zeros: a pad is parted too.
Sums are reassociated. O(instructions) for each large concatenate.
"""

from __future__ import annotations

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.large_values import LEAST_SCORES_BYTES
from hlo.analysis.reducers import reducer_of
from hlo.attributes.padding import PaddingDim
from hlo.attributes.slices import SliceDim
from hlo.ir.computation import Computation
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.making import make, number_of, spread
from hlo.ops.movement import IotaAttributes
from hlo.ops.table import OPS
from hlo.passes.fusion.fusion import called_by_ops
from hlo.passes.liveness import awaited, wrapped_operations
from hlo.passes.patterns.matching import ints, is_plain, literal_of

MOST_MEMBERS = 128
LEAST_RATIO = 16  # Of the long part's columns to the others.


def part_concatenates(module: Module) -> bool:
    """Compute of long rows with a few columns beside them as of two arrays."""
    changed = False
    left = called_by_ops(module) | wrapped_operations(module)
    for computation in tuple(module.computations):
        if computation in left:
            continue
        for one in computation.instructions:
            if one in computation and is_long_concatenate(one):
                changed |= _Parting(computation, one).apply()
    return changed


def is_long_concatenate(instruction: Instruction) -> bool:
    """Whether a few columns are written beside many."""
    if instruction.opcode != "concatenate" or len(instruction.operands) != 2:
        return False
    long, few = instruction.operands
    along = ints(instruction, "dimensions")[0]
    return (
        instruction.shape.size_bytes >= LEAST_SCORES_BYTES
        and is_plain(instruction.shape)
        and along == instruction.shape.rank - 1
        and long.shape.dims[along] >= LEAST_RATIO * few.shape.dims[along] > 0
    )


class _Unfit(Exception):
    """A value has no parts."""


class _Parting:
    """What hangs on a concatenate along the last dimension, element by element, to its ends:
    reductions along the rows, and slices.
    """

    def __init__(self, computation: Computation, concatenate: Instruction) -> None:
        self._computation, self._seed = computation, concatenate
        self._columns = tuple(o.shape.dims[-1] for o in concatenate.operands)
        self._whole: dict[Instruction, None] = {}
        self._ends: dict[Instruction, None] = {}
        self._parts: dict[Instruction, tuple[Instruction, Instruction]] = {}

    def apply(self) -> bool:
        """False, and nothing done, where a value has no parts."""
        computation = self._computation
        before = set(computation.instructions)
        try:
            self._find()
            for one in post_order(computation):
                if one in self._whole:
                    self._parts[one] = self._parted(one)
            made = {end: self._end(end) for end in self._ends}
        except _Unfit:
            for one in reversed([i for i in computation.instructions if i not in before]):
                computation.remove(one)
            return False
        for end, value in made.items():
            computation.replace_uses(end, value)
            computation.remove(end)
        for one in reversed(post_order(computation)):
            if one in self._whole and not one.users and one is not computation.root:
                computation.remove(one)
        computation.reorder(post_order(computation))
        return True

    def _find(self) -> None:
        """All that is computed of the concatenate element by element, the ends, and what else this
        is computed of."""
        kept = set(awaited(self._computation))
        waiting = [self._seed]
        while waiting:
            one = waiting.pop()
            if one in self._whole:
                continue
            _need(one not in kept and one is not self._computation.root)
            self._enter(one)
            for user in one.users:
                if self._is_end(user, one):
                    _need(user is not self._computation.root and user not in kept)
                    _need(is_plain(user.shape))
                    self._ends[user] = None
                else:
                    _need(is_elementwise(user) and user.shape.is_array)
                    waiting.append(user)
        waiting = [o for one in self._whole if one is not self._seed for o in one.operands]
        while waiting:
            one = waiting.pop()
            if one.shape.dims and one not in self._whole:
                self._enter(one)
                waiting += one.operands if is_elementwise(one) else ()

    def _enter(self, one: Instruction) -> None:
        _need(len(self._whole) < MOST_MEMBERS and "control-predecessors" not in one.attributes)
        self._whole[one] = None

    def _is_end(self, user: Instruction, value: Instruction) -> bool:
        last = value.shape.rank - 1
        if user.opcode == "slice":
            return True
        if user.opcode != "reduce" or len(user.operands) != 2 or user.operands[0] is not value:
            return False
        return last in ints(user, "dimensions")

    def _parted(self, one: Instruction) -> tuple[Instruction, Instruction]:
        if one is self._seed or self._is_alike(one):
            return one.operands[0], one.operands[1]
        first, second = self._columns
        if is_elementwise(one):
            made = [
                self._computation.new(
                    one.opcode, self._cut(one, n),
                    [self._parts[o][n] if o.shape.dims else o for o in one.operands],
                    one.attributes, like=one, name=one.name,
                )
                for n in range(2)
            ]  # fmt: skip
            return made[0], made[1]
        if one.opcode == "broadcast" and one.shape.rank - 1 not in ints(one, "dimensions"):
            long, few = (
                make(one, "broadcast", one.operands[0], shape=self._cut(one, n),
                     dimensions=ints(one, "dimensions"))
                for n in range(2)
            )  # fmt: skip
            return long, few
        if one.opcode == "iota":
            return self._iota(one)
        if one.opcode == "pad":
            padding = one["padding"]
            assert isinstance(padding, tuple), "PADDING"
            nothing = PaddingDim(0, 0, 0)
            is_few = padding[-1] == PaddingDim(0, second, 0)
            _need(is_few and all(p == nothing for p in padding[:-1]))
            _need(one.operands[0].shape.dims[-1] == first)
            return one.operands[0], spread(one, one.operands[1], self._cut(one, 1))
        return self._slice(one, 0, first), self._slice(one, first, first + second)

    def _is_alike(self, one: Instruction) -> bool:
        """Whether it is a concatenate that is parted at the same column."""
        widths = tuple(o.shape.dims[-1:] for o in one.operands)
        return (
            one.opcode == "concatenate"
            and ints(one, "dimensions") == (one.shape.rank - 1,)
            and widths == tuple((n,) for n in self._columns)
        )

    def _iota(self, iota: Instruction) -> tuple[Instruction, Instruction]:
        along = IotaAttributes.of(iota.attributes).iota_dimension
        long, few = (
            make(iota, "iota", shape=self._cut(iota, n), iota_dimension=along) for n in range(2)
        )
        if along != iota.shape.rank - 1:
            return long, few
        dtype = iota.shape.dtype
        _need(dtype.is_integral and dtype.bits >= 32)
        begun = spread(iota, number_of(iota, self._columns[0], dtype), few.shape)
        return long, make(iota, "add", few, begun)

    def _cut(self, one: Instruction, number: int) -> Shape:
        dims = (*one.shape.dims[:-1], self._columns[number])
        return one.shape.with_dims(dims)

    def _slice(self, one: Instruction, start: int, end: int) -> Instruction:
        _need(one.shape.is_array and not one.shape.is_dynamic)
        ranges = (*(SliceDim(0, n, 1) for n in one.shape.dims[:-1]), SliceDim(start, end, 1))
        return make(one, "slice", one, slice=ranges)

    def _end(self, end: Instruction) -> Instruction:
        long, few = self._parts[end.operands[0]]
        if end.opcode == "slice":
            return self._sliced(end, long, few)
        opcodes = reducer_of(end).opcodes
        _need(len(opcodes) == 1 and _is_identity(end, opcodes[0]))
        dims = ints(end, "dimensions")
        parts = [
            make(end, "reduce", part, end.operands[1], dimensions=dims, to_apply=end["to_apply"])
            if part is long or self._columns[1] > 1 or len(dims) > 1
            else make(end, "reshape", part, shape=end.shape)
            for part in (long, few)
        ]
        return make(end, opcodes[0], *parts)

    def _sliced(self, end: Instruction, long: Instruction, few: Instruction) -> Instruction:
        ranges = end["slice"]
        assert isinstance(ranges, tuple), "SLICE"
        first, last = self._columns[0], ranges[-1]
        _need(last.stride == 1 and (last.limit <= first or last.start >= first))
        part, begun = (long, 0) if last.limit <= first else (few, first)
        ranges = (*ranges[:-1], SliceDim(last.start - begun, last.limit - begun, 1))
        if all((r.start, r.limit) == (0, n) for r, n in zip(ranges, part.shape.dims, strict=True)):
            return part
        return make(end, "slice", part, slice=ranges)


def _is_identity(reduce: Instruction, opcode: str) -> bool:
    """Whether a reduction begins with what changes nothing, which two of them may begin with, or
    one: a sum from 0 or -0 on is -0 only where all terms and the 0 are.
    """
    literal = literal_of(reduce.operands[1])
    identity = OPS[opcode].identity
    if not isinstance(literal, Literal) or identity is None:
        return False
    wanted = identity(reduce.shape.dtype)
    return bool(literal.array == wanted)


def _need(holds: object) -> None:
    if not holds:
        raise _Unfit
