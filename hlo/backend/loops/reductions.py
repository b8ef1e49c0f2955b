"""Reductions: how a reduce or a reduce-window is made: which loops, which order, what accumulates.

    expression, reduction, the indices that it is asked for at --reduction_form, window_forms-->
    Reduction

Asked for at an index that lanes share, a reduce runs over lanes itself (several vectors of partial
results); asked for in lanes, each lane reduces for itself: written out, with rows turned in
registers where these are short, or in loops. A reducer that is not known to be associative and
commutative is applied in row-major order. Long sums are made in blocks, so that their error grows
with the square root of the length. What it all follows from is what the expression reads, known
before any code is written; emitters/reduction.py and emitters/windows.py write what was decided
here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from math import prod

from msgspec import Struct

from hlo.analysis.decisions import COLUMNS, GRANULE, decisions_of
from hlo.analysis.fusibility import MOVEMENT
from hlo.analysis.reducers import Reducer, reducer_of
from hlo.backend.loops.costs import BRIEF_OPERATIONS
from hlo.backend.loops.expression import Expression
from hlo.backend.loops.schedule import Axis, Join, Reduction, Role, Source, Tail, Tree, axis_name
from hlo.backend.loops.trace import Read, trace
from hlo.backend.loops.vectors import covering
from hlo.indexing import affine, spaces
from hlo.indexing.affine import Expr, Index, Variable, rests_on_values, stride
from hlo.indexing.queries import result_dims
from hlo.indexing.reductions import reduction_dims, window_of
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.table import OPS

BLOCK = 256  # Elements that one accumulator takes before it is added to the total.
FEW = 16  # Terms of a blocked sum that are added one after the other.
BLOCKS = 8  # Blocks of a blocked sum that are added one after the other.
UNROLLED = 8  # Reductions up to this length are written without a loop.
SHORT = 16  # The same where each lane reduces a row of its own.
SHORT_PICKED = 24  # The same where its reducer picks elements (arg-max).
FEWEST_TURNED = 4
# Ops and elements of the rows that a lane reduces without a loop: ten logarithms of a sum, seven
# terms of an entropy take a quarter to a tenth of the time of a row after the other.
MOST_ROW_OPS, MOST_ROW_READS = 320, 24
LITTLE_CODE = 96  # Ops that are no longer than a loop around them.
# Vectors of partial results that hide the latency of a cheap reducer, and of another one.
_CHEAP_UNROLL, _UNROLL = 4, 2
_MOST_ACCUMULATORS = 8  # Vectors of partial results that 16 registers hold beside what is read.
_FEW_OPERATIONS = 4  # of a term of a reduction over lanes
LEAST_ROUNDS = 4  # Of a loop of which only those run that a mask leaves something of.
_MOST_SEARCHED = 32  # Instructions after a reduction that are looked at.
_UNROLLED_WINDOW = 32  # Windows up to this size are written without a loop.
_UNROLLED_LONG_WINDOW = 4  # The same where the reducer is long code.


def reduced_arrays(reduction: Instruction) -> tuple[Instruction, ...]:
    """What is reduced, side by side."""
    return reduction.operands[: len(reduction.operands) // 2]


def kinds_of(reduction: Instruction) -> list[DType]:
    """The types of the arrays that are reduced together, which are those of their initial
    values."""
    return [z.shape.dtype for z in reduction.operands[len(reduction.operands) // 2 :]]


# -- reduce ----------------------------------------------------------------------------------


def reduction_form(
    expression: Expression,
    reduce: Instruction,
    indices: Sequence[Index],
    lanes: int,
    saved: Collection[Instruction] = (),
) -> Reduction:
    """How a reduce is made at indices that it is asked for together: one loop for all of them.

    lanes: of a full vector; those of the indices say whether it is asked for in lanes. saved: what
    stages keep in memory. Over no elements at all, it is written out: its initial values.
    """
    asked = _Asked(expression, reduce, reducer_of(reduce), indices)
    own = max(lanes_of(index) for index in indices)
    if own == 1 and asked.reducer.reassociates and prod(reduction_dims(reduce).extents) >= UNROLLED:
        return _across(asked, lanes, saved)
    return _within(asked, own, saved)


class _Asked(Struct, frozen=True):
    """A reduce and the indices that it is asked for at."""

    expression: Expression
    reduce: Instruction
    reducer: Reducer
    indices: Sequence[Index]


def lanes_of(index: Index) -> int:
    """How many results an index asks for: those that end a row may be fewer than beside it."""
    return max((e.lanes for e in index), default=1)


def _within(asked: _Asked, lanes: int, saved: Collection[Instruction]) -> Reduction:
    """Each lane for itself: written out, in blocks of sums, or one by one."""
    expression, reduce, reducer = asked.expression, asked.reduce, asked.reducer
    index, results = asked.indices[0], len(asked.indices)
    extents = reduction_dims(reduce).extents
    is_sum = _rounds(reducer, kinds_of(reduce))
    is_turned = lanes > 1 and _reads_rows(expression, reduce, index, saved)
    if prod(extents) <= UNROLLED or is_turned or (is_sum and _is_little_code(expression, reduce)):
        axes = axes_of(extents, Role.UNROLLED)
        tree = Tree.PAIRS if is_sum else Tree.IN_ORDER
    else:
        is_long = is_sum and prod(extents) > FEW
        loops = reduced_extents(expression, reduce, index)
        axes = blocked_axes(loops) if is_long else axes_of(loops, Role.REDUCED)
        tree = Tree.BLOCKS if is_long else Tree.IN_ORDER
    source = Source.TURNED if is_turned else Source.DIRECT
    return Reduction(reduce.name, reducer.name, axes, lanes, results, tree=tree, source=source)


def _across(asked: _Asked, full: int, saved: Collection[Instruction]) -> Reduction:
    """Over lanes: vectors along the last axis, long sums in blocks of them."""
    reduce, reducer, results = asked.reduce, asked.reducer, len(asked.indices)
    *rows, length = reduced_extents(asked.expression, reduce, asked.indices[0])
    lanes = covering(length, full)
    unroll = 1 if _is_brief(asked) else _unroll(reducer, -(-length // lanes), results)
    is_told = says_sums(asked.expression, reduce) and not rows and lanes <= GRANULE
    if is_told:
        unroll = min(unroll, GRANULE // lanes)
    step = lanes * unroll
    rounds = -(-length // step)
    is_long = _rounds(reducer, kinds_of(reduce)) and prod(rows) * rounds > BLOCK
    size = step * BLOCK
    blocks = (*(n * size for n in sizes_of(length // size)), size)
    tail = Tail.MASKED if length % lanes else Tail.SHORT if length % step else Tail.NONE
    may_leave_out = not rows and rounds >= LEAST_ROUNDS and not _fills(asked, saved)
    is_bounded = is_told or (may_leave_out and _is_masked(asked, length))
    last = Axis(
        axis_name(len(rows), "r"), length, Role.VECTOR, step, lanes, tail,
        blocks=blocks if is_long and length >= size else (), is_bounded=is_bounded,
    )  # fmt: skip
    outer = blocked_axes(rows, rounds) if is_long else axes_of(rows, Role.REDUCED)
    return Reduction(
        reduce.name,
        reducer.name,
        (*outer, last),
        results=results,
        accumulators=unroll,
        tree=Tree.BLOCKS if is_long else Tree.IN_ORDER,
        join=_join(asked) if lanes > 1 else Join.NONE,
    )


def says_sums(expression: Expression, reduce: Instruction) -> bool:
    """Whether a reduction in a block meets what the block's rows see alone."""
    return expression.target.is_bounded and decisions_of(reduce).sums == COLUMNS


def _meets_a_choice(asked: _Asked) -> bool:
    """Whether what is reduced is chosen, moves aside."""
    value, path = asked.expression.source(asked.reduce.operands[0], ())
    while value.opcode in MOVEMENT and not path and len(value.operands) == 1:
        value, path = asked.expression.source(value.operands[0], ())
    return value.opcode == "select"


def _is_masked(asked: _Asked, length: int) -> bool:
    """Whether the run knows bounds of what the reduction meets."""
    if len(asked.reduce.operands) > 2 or not _meets_a_choice(asked):
        return False
    from hlo.backend.loops.ranges import reduced_ranges  # few reductions are masked

    return bool(reduced_ranges(asked.expression, asked.reduce, asked.indices, length))


def _fills(asked: _Asked, saved: Collection[Instruction]) -> bool:
    """Whether terms are computed by way of something that stages keep: others read all of it, what
    a mask leaves out, too.
    """
    waiting, seen = [asked.reduce.operands[0]] if saved else [], set[Instruction]()
    while waiting:
        value, path = asked.expression.source(waiting.pop(), ())
        if value in saved:
            return True
        if value in seen or (value, path) in asked.expression.leaves or value.opcode == "reduce":
            continue
        seen.add(value)
        waiting += value.operands
    return False


def _join(asked: _Asked) -> Join:
    """How lanes meet. Of results side by side together, in fewer steps, unless one of them is
    waited for.
    """
    count = len(asked.indices)
    if asked.reducer.idempotent and [k.is_pred for k in kinds_of(asked.reduce)] == [True]:
        return Join.TESTED
    if count.bit_count() == 1 < count and not _is_used_alone(asked.reduce):
        return Join.TOGETHER
    return Join.HALVED


def reduced_extents(expression: Expression, reduce: Instruction, index: Index) -> tuple[int, ...]:
    """The reduced dimensions as few loops, for one of the indices."""
    domain, arrays = reduction_dims(reduce), reduced_arrays(reduce)

    def met(inner: Index) -> list[Expr]:
        at = domain.index(index, inner)
        return trace(expression, [(x, at, ()) for x in arrays]).expressions()

    return spaces.factored(domain.extents, met)


def is_short_row(
    reduces: Iterable[Instruction], length: int, weight: int = 0, arrays: int = 0
) -> bool:
    """Whether each lane may reduce a row of so many elements for itself, turned in registers.

    weight: what an element costs, in plain ops; arrays: how many have such rows. 0: not known.
    """
    most = min(SHORT_PICKED if reduce.shape.is_tuple else SHORT for reduce in reduces)
    if length > UNROLLED and arrays * length > MOST_ROW_READS:
        return False
    return FEWEST_TURNED <= length <= most and length * (1 + weight) <= MOST_ROW_OPS


def _reads_rows(
    expression: Expression, reduce: Instruction, index: Index, saved: Collection[Instruction]
) -> bool:
    """Whether each lane reduces a short row of its own, neighbours in memory, by little code; or
    one of those that are written out in any case, which lies where a run-time value says.
    """
    domain = reduction_dims(reduce)
    length = prod(domain.extents)
    if len(domain.extents) != 1 or length < 2:
        return False
    if length > UNROLLED and not is_short_row([reduce], length):
        return False
    variable = Variable("row", 0, length - 1)
    at = domain.index(index, (affine.of(variable),))
    found = trace(expression, [(x, at, ()) for x in reduced_arrays(reduce)])
    read = [r for r in found.reads if r.position.depends_on(variable)]
    along = [r for r in read if r.position.lanes > 1]  # others are the same number for all lanes
    arrays = len({r.source for r in along})
    if any(e.depends_on(variable) for _, at in found.reductions for e in at):
        return False
    if length <= UNROLLED and any(_is_looked_up_row(r, variable) for r in read):
        return True
    if not is_short_row([reduce], length, found.weight_along({variable}), arrays):
        return False
    return bool(along) and all(
        r.position.coefficient(variable) == 1
        and (stride(r.position) or 0) > 1
        and r.source not in saved  # its elements are gathered once
        for r in along
    )


def _is_looked_up_row(read: Read, row: Variable) -> bool:
    return read.position.coefficient(row) == 1 and rests_on_values(read.position)


def _is_little_code(expression: Expression, reduce: Instruction) -> bool:
    """Whether no loop is worth its own instructions for the terms of a sum, one block at most: a
    stage's factor times its number is two instructions, and a loop's counter three. Lanes wait for
    log2 of the terms, not for all. It asks what is added alone, neither lanes nor results side by
    side: in which order terms meet depends on no machine.
    """
    domain = reduction_dims(reduce)
    length = prod(domain.extents)
    if length > FEW or len(domain.extents) != 1:
        return False
    index = tuple(Variable(f"at{d}", 0, n - 1) for d, n in enumerate(result_dims(reduce)))
    at = domain.index(tuple(map(affine.of, index)), (affine.of(Variable("row", 0, length - 1)),))
    found = trace(expression, [(x, at, ()) for x in reduced_arrays(reduce)])
    return not found.reductions and length * (1 + found.weight) <= LITTLE_CODE


def _unroll(reducer: Reducer, vectors: int, results: int) -> int:
    """How many vectors of partial results: enough to hide the latency of the reduction."""
    wanted = _CHEAP_UNROLL if reducer.is_cheap else _UNROLL
    while wanted * len(reducer.opcodes) > _MOST_ACCUMULATORS:
        wanted //= 2
    return max(1, min(wanted // min(results, wanted), vectors))


def _is_brief(asked: _Asked) -> bool:
    """Whether so few elements are reduced, and once, that a wait for each vector costs less than
    code for several. A term is taken for a few operations: what they are is not looked at.
    """
    elements = asked.reduce.operands[0].shape.size
    return asked.expression.runs_once and elements <= BRIEF_OPERATIONS // _FEW_OPERATIONS


def _rounds(reducer: Reducer, kinds: Sequence[DType]) -> bool:
    """Whether each addition loses something."""
    return reducer.sums and any(k.is_float or k.is_complex for k in kinds)


def _is_used_alone(reduce: Instruction) -> bool:
    """Whether much is done with each result, or lanes take it again: none may wait for another."""
    stack, seen = [reduce], {reduce}
    while stack and len(seen) < _MOST_SEARCHED:
        for user in stack.pop().users:
            if user.opcode == "broadcast" or OPS[user.opcode].cost.is_high:
                return True
            if user not in seen and user.opcode != "reduce":
                seen.add(user)
                stack.append(user)
    return False


# -- reduce-window ---------------------------------------------------------------------------


def window_forms(reduction: Instruction, indices: Sequence[Index]) -> list[tuple[range, Reduction]]:
    """How a reduce-window is made at indices that it is asked for together: which of them in one
    loop, and that loop.

    Large windows are one loop for all indices in lanes, whose accumulators do not wait for each
    other. Where lanes are far apart in memory, each has a line of its own: fewer of them are used
    at once.
    """
    reducer = reducer_of(reduction)
    extents = [d.size for d in window_of(reduction).dims if d.size > 1]
    is_written = _is_written_out(reduction, reducer)
    is_long = not is_written and _rounds(reducer, kinds_of(reduction)) and prod(extents) > FEW
    role = Role.UNROLLED if is_written else Role.REDUCED
    axes = blocked_axes(extents) if is_long else axes_of(extents, role)
    tree = Tree.BLOCKS if is_long else Tree.IN_ORDER
    groups = [range(len(indices))]
    if not is_written and not all(index and index[-1].lanes > 1 for index in indices):
        groups = [range(k, k + 1) for k in range(len(indices))]
    widths = [lanes_of(indices[group[0]]) for group in groups]
    return [
        (group, Reduction(reduction.name, reducer.name, axes, lanes, len(group), tree=tree))
        for group, lanes in zip(groups, widths, strict=True)
    ]


def _is_written_out(reduction: Instruction, reducer: Reducer) -> bool:
    size = prod(d.size for d in window_of(reduction).dims)
    return size <= (_UNROLLED_WINDOW if reducer.is_cheap else _UNROLLED_LONG_WINDOW)


# -- axes ------------------------------------------------------------------------------------


def axes_of(extents: Sequence[int], role: Role) -> tuple[Axis, ...]:
    """The axes of a reduction, whose terms are taken one by one."""
    return tuple(Axis(axis_name(k, "r"), n, role) for k, n in enumerate(extents))


def blocked_axes(extents: Sequence[int], terms: int = 1) -> tuple[Axis, ...]:
    """The axes of a sum whose chains of additions are short at every level.

    A block is 16 terms, or 8 smaller blocks: a term goes through some 16 + 8 log8(n / 16)
    additions, where one chain would have n. Blocks follow from the extents alone. terms: of the
    chain at every step of the innermost axis.
    """
    inner = [prod(extents[k + 1 :]) * terms for k in range(len(extents))]
    return tuple(
        Axis(axis_name(k, "r"), n, Role.REDUCED, blocks=_blocks(n, inner[k]), apart=inner[k] >= FEW)
        for k, n in enumerate(extents)
    )


def _blocks(length: int, terms: int) -> tuple[int, ...]:
    """Blocks of steps that take so many terms each: of shorter ones as many as make 16 terms."""
    return sizes_of(length, FEW if terms >= FEW else FEW // terms)


def sizes_of(length: int, size: int = FEW) -> tuple[int, ...]:
    """Blocks of so many terms, the largest first, the smallest of `size`."""
    found: list[int] = []
    while size < length:
        found.insert(0, size)
        size *= BLOCKS
    return tuple(found)
