"""Kept strips: elements that several stages of a strip need, left by the first for the others.

    part with a strip --kept_in_strips--> element: the dimensions of its columns

What is expensive to compute or to gather is kept, and what is read from memory in rows so far apart
that a cache cannot hold them together: lines whose addresses differ by a power of two share a set.
Few bytes lie on the stack, more in the thread's scratch memory, all of them in its core's cache.
"""

from __future__ import annotations

from collections.abc import Collection
from math import gcd, prod

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.kept import Kept
from hlo.backend.kernels.part import Part, covers
from hlo.backend.kernels.thread_memory import thread_memory
from hlo.backend.lanes.access import Memory
from hlo.backend.loops.expression import Leaf, Path
from hlo.backend.loops.folds import UNROLLED
from hlo.backend.loops.trace import Read, reduced_index, trace
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction

_LEFT = Leaf(dt.F32, 0)  # stands for what an earlier stage has left


class KeptStrip(Kept):
    """An element kept for a batch of columns: [folded dimensions][width].

    sizes, folded: the folded dimensions; shift: of the vectors' positions.
    """

    def __init__(
        self, row: Memory, sizes: tuple[int, ...], folded: tuple[int, ...], shift: int, width: int
    ) -> None:
        super().__init__(row)
        self.sizes = sizes
        self.folded = folded
        self.shift = shift
        self.width = width

    def place(self, index: Index) -> Expr:
        """Vectors of a batch differ by constants: these, and the lane, are the place in a row."""
        (across,) = [e for e in index if e.lanes > 1]
        lane = Variable("0", 0, across.lanes - 1, 0, across.lanes, Value("0", "i64"))
        place = affine.linear([index[d] for d in self.folded], self.sizes)
        return place * self.width + Expr({lane: 1}, (across.constant - self.shift) % self.width)


def kept_in_strips(part: Part) -> dict[Instruction, tuple[tuple[int, ...], int]]:
    """What is kept of a part whose lane loop is chosen, with the dimensions along its columns and
    how far its columns are from the part's."""
    found: dict[Instruction, tuple[tuple[int, ...], int]] = {}
    folded = prod(part.extents[part.lane_loop + 1 :])
    if folded <= UNROLLED:
        return found
    for instruction, indices in (part.trace.heavy_at | _read_apart(part)).items():
        inner = _folded_dims(part, indices, instruction.shape.dims)
        if inner is None or instruction.shape.dtype.is_complex:
            continue
        if prod(instruction.shape.dims[d] for d in inner) == folded:
            (across,) = [e for e in indices[0] if e.depends_on(part.variables[part.lane_loop])]
            found[instruction] = inner, across.constant
    return found


def strips_of(elemental: Elemental, part: Part) -> dict[Instruction, KeptStrip]:
    """Memory for what is kept, as much as a cache holds."""
    found: dict[Instruction, KeptStrip] = {}
    folded, width = prod(part.extents[part.lane_loop + 1 :]), part.lanes * part.copies
    wanted = kept_in_strips(part)
    places, size_bytes = _places(elemental, part, wanted, folded * width)
    for instruction in places:
        part.remarks.append(f"strip: {instruction.name} kept, of {size_bytes} bytes in all")
    base = thread_memory(elemental, size_bytes) if places else Value("null", "ptr")
    for instruction, offset in places.items():
        inner, shift = wanted[instruction]
        sizes = tuple(instruction.shape.dims[d] for d in inner)
        with elemental.nest.at(0):
            start = elemental.nest.w.address(base, elemental.nest.w.int(offset), "i8")
        memory = Memory(start, _kept_type(instruction), folded * width)
        found[instruction] = KeptStrip(memory, sizes, inner, shift, width)
    return found


def _places(
    elemental: Elemental, part: Part, wanted: Collection[Instruction], size: int
) -> tuple[dict[Instruction, int], int]:
    """Where each begins, in bytes, and how many they are: two may share a place."""
    asked = _asked(elemental, part, wanted) if len(wanted) > 1 else {}
    held: dict[int, list[Instruction]] = {}  # by where they begin
    total, most = 0, part.machine.second_cache.bytes // 2
    for instruction in wanted:
        dtype = _kept_type(instruction)
        size_bytes = -(-size * dtype.item_bytes // 64) * 64
        free = (
            place
            for place, others in held.items()
            if not part.trace.conditions
            and all(
                _kept_type(o) is dtype and _take_turns(asked[o], asked[instruction]) for o in others
            )
        )
        place = next(free, total)
        if place < total or total + size_bytes <= most:
            held.setdefault(place, []).append(instruction)
            total = max(total, place + size_bytes)
    return {i: place for place, held_there in held.items() for i in held_there}, total


Asked = dict[int, set[Index]]  # the stages in which an element is asked for, and where


def _take_turns(a: Asked, b: Asked) -> bool:
    """Whether one value may be left where the other one lay: that is last asked for where it is
    made, at the same place."""
    first, second = sorted((a, b), key=lambda asked: min(asked, default=0))
    last, begin = max(first, default=-1), min(second, default=-1)
    is_same = last == begin and first[last] == second[begin] and len(first[last]) == 1
    return last < begin or (is_same and max(second) > last)


def _asked(
    elemental: Elemental, part: Part, wanted: Collection[Instruction]
) -> dict[Instruction, Asked]:
    """What each stage asks for while what earlier stages left is there."""
    found: dict[Instruction, Asked] = {i: {} for i in wanted}
    index = part.index([affine.of(v) for v in part.variables])
    stages: list[list[tuple[Instruction, Index, Path]]] = []
    for reduce, at in reversed(part.trace.reductions):
        inner, _ = reduced_index(reduce, at)
        stages.append([(o, inner, ()) for o in reduce.operands[: len(reduce.operands) // 2]])
    stages.append([(o.source, index, o.path) for o in part.outputs])
    folds = [reduce for reduce, _ in reversed(part.trace.reductions)]
    expression = elemental.expression
    own = expression.leaves
    expression.leaves = dict(own)
    for stage, roots in enumerate(stages):
        traced = trace(expression, roots)
        met = [(r.source, r.index) for r in traced.reads]
        met += [(i, at) for i, all_at in traced.heavy_at.items() for at in all_at]
        for instruction, at in met:
            if instruction in found:
                found[instruction].setdefault(stage, set()).add(at)
                expression.leaves.setdefault((instruction, ()), _LEFT)
        for k in range(len(folds[stage].operands) // 2 if stage < len(folds) else 0):
            expression.leaves[folds[stage], (k,) if folds[stage].shape.is_tuple else ()] = _LEFT
    expression.leaves = own
    return found


def _kept_type(instruction: Instruction) -> DType:
    """What lanes are: neither packed nor spread again."""
    dtype = instruction.shape.dtype
    return dt.F32 if dtype.is_narrow_float else dtype


def _read_apart(part: Part) -> dict[Instruction, list[Index]]:
    """The operands whose elements lie apart for neighbouring lanes, or in rows that a cache cannot
    hold together, with the indices of reads."""
    if part.trace.conditions:
        return {}
    lane = part.variables[part.lane_loop]
    apart: set[Instruction] = set()
    for read in part.trace.reads:
        step = read.position.coefficient(lane) or 0
        if step > 1 or (step == 1 and _collides(part, read)):
            apart.add(read.source)
    found: dict[Instruction, list[Index]] = {}
    for read in part.trace.reads:
        if read.source in apart and read.source.shape.is_array:
            found.setdefault(read.source, []).append(read.index)
    return found


def _collides(part: Part, read: Read) -> bool:
    """Whether more rows of a column than a set has room for, beside those of other arrays, lie in
    one set of the second-level cache.
    """
    folded = {*read.folded, *part.variables[part.lane_loop + 1 :]}
    steps = [(k, a) for a, k in read.position.terms.items() if a in folded]
    rows = prod(a.high - a.low + 1 for _, a in steps)
    step_bytes = gcd(*(k for k, _ in steps)) * read.dtype.item_bytes
    cache = part.machine.second_cache
    return rows > cache.ways // 2 * (cache.way_bytes // gcd(step_bytes, cache.way_bytes))


def _folded_dims(part: Part, indices: list[Index], dims: tuple[int, ...]) -> tuple[int, ...] | None:
    """The dimensions in which the stages' indices differ, if lanes are one other dimension."""
    if len(indices) < 2:
        return None
    inner = [d for d in range(len(indices[0])) if any(i[d] != indices[0][d] for i in indices)]
    lane = part.variables[part.lane_loop]
    for index in indices:
        across = [d for d, e in enumerate(index) if e.depends_on(lane)]
        if len(across) != 1 or across[0] in inner or index[across[0]].coefficient(lane) != 1:
            return None
        sizes = [dims[d] for d in inner]
        if not covers(affine.linear([index[d] for d in inner], sizes), prod(sizes)):
            return None  # a stage that leaves, or wants, other elements than the others
    return tuple(inner)
