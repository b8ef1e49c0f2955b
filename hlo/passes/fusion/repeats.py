"""Repeats: whether computing a producer several times costs less than keeping it in memory.

In several kernels; or in one that reads it at several indices, as stencils and rolls do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from math import prod

from hlo.analysis.fusibility import is_elementwise, is_fusible, is_spread_constant, op_cost
from hlo.indexing.queries import steps
from hlo.ir.instruction import Instruction
from hlo.ir.permutation import compose, is_identity
from hlo.machine import COMMON, COMMON_LANES
from hlo.ops.movement import PadAttributes
from hlo.ops.table import INDEX_MAPS, OPS, Trait, has_trait, opcodes
from hlo.passes.fusion.axes import PICKED, Axes, Axis, Counts, Group, fixed_dims, users_in
from hlo.passes.fusion.looked_up import is_looked_up_often
from hlo.passes.fusion.views import is_kept_row, views_memory
from hlo.passes.patterns.matching import ints

CHEAP = 3  # Ops of an element that may be computed again for every use.
COSTLY = 10  # Ops of an element that is costly to compute again.
MOST_REPEATED = 6  # Ops of an element that take about as long as a write and a read of memory.
_MOST_SEARCHED = 16
_FEW = 0.25  # Of a cheap producer's elements: what kernels beside the main one may compute again.
# Reading so many bytes per byte made is as good as reading one: what broadcasts repeat.
_SPREAD = 1.125
_MANY_BEHIND_BITS = 48  # Instructions that make bits: random ones take more than a hundred.
_LITTLE = 8  # What is read is little beside so many times as much that is made of it.
_MOST_LOOKED_UP = COMMON.second_cache.bytes // 2  # Bytes that are at hand again when they are read.
_MOST_INTERLEAVED = 4  # Arrays of which vectors of rows are put together in registers.
ONCE = 1.5  # Evaluations of an element that are about one.
_LEAST_LOOKED_UP = 16  # Of fewer, none is read by lanes.
_LONG = 100  # Ops of an element that take longer than to write and to read it.
# Additions that take as long as a loop of its own does beside what it computes.
_LOOP = 2_000
# Additions of vectors that take longer than a kernel more does, in a loop that has many.
_KERNEL = 500
# Terms of a row for each addition of what becomes of its sum, where both take as long: a row adds
# sixteen at a time, and what follows is mostly waiting.
_DEAR = 64
_DIVIDED = 4  # A vector's quotients take so many times what one does.
# Each element of these reads one of the operand's at another index.
_MOVES = opcodes(Trait.CUTS | Trait.CUTS_AT | Trait.JOINS | Trait.PADS | Trait.PERMUTES)
_PARTS = Trait.PICKS | Trait.CUTS_AT | Trait.JOINS | Trait.PADS
_SPREADS = Trait.REPEATS | Trait.REGROUPS | Trait.PERMUTES | Trait.CUTS
# Each element of these, too, reads one of the operand's.
PLACED = opcodes(INDEX_MAPS & ~(Trait.REPEATS | Trait.UPDATES | Trait.PICKS))


# Bytes that a cache keeps wherever they lie: each may be on a line of its own.
_FEW_BYTES = COMMON.first_cache.way_bytes
_TURNS = opcodes(Trait.REGROUPS | Trait.PERMUTES)


def is_read_often(producer: Instruction) -> bool:
    """Whether it is to be made once, in the order in which it is read."""
    if is_looked_up_often(producer):
        return True
    return is_turned_back(producer) or _is_spread_lookup(producer) or _is_tiled(producer)


def is_turned_back(producer: Instruction) -> bool:
    """Whether all that is read of a transpose is a transpose that turns it back: so passes say that
    an array is to lie in memory otherwise than it is read.
    """
    return producer.opcode == "transpose" and all(
        user.opcode == "transpose"
        and is_identity(compose(ints(producer, "dimensions"), ints(user, "dimensions")))
        for user in producer.users
    )


def _is_tiled(producer: Instruction) -> bool:
    """Whether it is copies of a row, one after the other, that are spread over rows as long
    (broadcast_tiling.py)."""
    if producer.opcode != "reshape" or producer.shape.rank != 1:
        return False
    (copies,) = producer.operands
    is_row = copies.opcode == "broadcast" and ints(copies, "dimensions") == (1,)
    return is_row and all(u.opcode == "broadcast" for u in producer.users)


def may_repeat(producer: Instruction, count: int) -> bool:
    """Whether computing it in several kernels costs no more than keeping it in memory."""
    if producer.opcode in ("constant", "iota") or _is_counted_mask(producer):
        return True
    if producer.shape.size_bytes <= _FEW_BYTES and views_memory(producer):
        return True
    if is_kept_row(producer):
        return count <= 3
    if producer.opcode == "reduce" or has_trait(producer, _PARTS):
        return False
    size, read = producer.shape.size_bytes, _all_read_bytes(producer)
    if has_trait(producer, _SPREADS):
        return read <= size or _is_part_of_read(producer)
    return op_cost(producer) <= CHEAP and read <= size * _SPREAD and count <= 3


def _is_counted_mask(producer: Instruction) -> bool:
    """Whether it is one number at every second or third place and another one between: loops over
    such phases know which, and read no memory for it."""
    return (
        producer.opcode == "pad"
        and all(map(is_spread_constant, producer.operands))
        and any(d.interior for d in PadAttributes.of(producer.attributes).padding)
    )


def _is_part_of_read(producer: Instruction) -> bool:
    """Whether it is a part of an array of which all is read, parts by parts, as a stencil's shifted
    windows are: then the array itself is what to keep, if anything is.
    """
    if not has_trait(producer, Trait.CUTS):
        return False
    (whole,) = producer.operands
    return sum(u.shape.size for u in whole.users) >= whole.shape.size


def _is_spread_lookup(producer: Instruction) -> bool:
    """Whether a kernel would look up a few numbers, one by one, for each of many elements that they
    are spread over, as a bias from a table over windows: a vector's lanes are looked up in as many
    accesses, while what is there already is read in one.
    """
    if producer.shape.size_bytes > _MOST_LOOKED_UP or producer.shape.size < _LEAST_LOOKED_UP:
        return False
    least = _LITTLE * producer.shape.size
    if not all(u.opcode == "broadcast" and u.shape.size >= least for u in producer.users):
        return False
    top = producer
    for _ in range(_MOST_SEARCHED):
        if top.opcode not in _TURNS:
            break
        (top,) = top.operands
        if len(top.users) > 1:
            return False
    return top.opcode == "gather" and is_fusible(top)


def is_made_by_much(value: Instruction) -> bool:
    """Whether a kernel would compute a value by much, or from wider numbers than it is, as random
    bits are: what is computed from them would have fewer lanes, and share the registers. Their way
    through memory is short beside that.
    """
    bits, found = value.shape.dtype.bits, {value: None}
    waiting = deque(found)
    while waiting and len(found) < _MANY_BEHIND_BITS:
        top = waiting.popleft()
        if top.shape.dims and top.shape.dtype.bits > bits:
            return True
        new = [o for o in top.operands if o not in found and o.shape.is_array and is_fusible(o)]
        found |= dict.fromkeys(new)
        waiting += new
    return bool(waiting)


def is_made_of_little(producer: Instruction) -> bool:
    """Whether what it reads is little beside it, as of two arrays that are spread against each
    other: then to keep it costs a write and a read, and to compute it again its arithmetic alone.
    """
    return _LITTLE * _all_read_bytes(producer) <= producer.shape.size_bytes


def _all_read_bytes(producer: Instruction) -> int:
    return sum(_read_bytes(o) for o in dict.fromkeys(producer.operands))


def _read_bytes(operand: Instruction) -> int:
    """Bytes of an operand in memory: a broadcast is none, what it spreads is; nor is a count
    along the one dimension, whose index loops have.
    """
    if operand.opcode == "iota" and operand.shape.rank == 1:
        return 0
    while operand.opcode == "broadcast":
        (operand,) = operand.operands
    return operand.shape.size_bytes


def wasted_lanes(group: Group, producer: Instruction, axes: Axes) -> str:
    """How the group's vectors would be wasted on the producer; "" where they are not."""
    meets_short_rows = op_cost(producer) >= COSTLY and any(map(_joins_short_rows, group.members))
    if meets_short_rows or _is_once_a_short_row(group, producer, axes):
        return "few of a vector's lanes would compute it, for rows are short"
    if _is_once_for_lanes(group, producer):
        return "all lanes of a vector would compute the same number"
    return ""


def _joins_short_rows(member: Instruction) -> bool:
    """Whether a member puts rows of several arrays together of which most are shorter than a
    vector: a kernel computes each for all lanes of the vectors that it lies in."""
    if member.opcode != "concatenate" or len(member.operands) <= _MOST_INTERLEAVED:
        return False
    length = member.shape.dims[-1]
    is_last = ints(member, "dimensions") == (member.shape.rank - 1,)
    return is_last and 2 * length < COMMON_LANES * len(member.operands)


def _is_once_a_short_row(group: Group, producer: Instruction, axes: Axes) -> bool:
    """Whether a kernel with reductions would compute a costly number (a sine, an arc tangent) once
    for each of many rows which fill no vector, as a body's angle for the numbers of its rotation.

    That takes as long as a whole vector of them, and longer than all else that a short row is; a
    kernel of its own computes sixteen at a time. Where nothing is reduced, lanes take a row each.
    """
    if op_cost(producer) < _LONG or not group.has_reduce or group.order:
        return False
    fixed = fixed_dims(group, axes)
    if fixed is None:
        return False
    rows, length = prod(group.dims[:fixed]), prod(group.dims[fixed:])
    return rows >= COMMON_LANES and 1 < length < COMMON_LANES


def _is_once_for_lanes(group: Group, producer: Instruction) -> bool:
    """Whether a kernel would compute a costly number (a cosine, an arc tangent) once for a row that
    lanes run along, as a distance's cut-off for its radial functions, or a pixel's angle for the
    bins of a histogram: all lanes compute one number, where a kernel of its own computes a vector
    of them. Where nothing is reduced, and rows are short, lanes take a row each, but not of what is
    written at a place that the run computes. So it is with a number of many short steps (a
    softplus, a splat's exponential), where these take long beside the row.
    """
    if producer.shape.size < COMMON_LANES or group.order:
        return False
    last = last_axis(group)
    takes_rows = not group.has_reduce and group.root.opcode != "dynamic-update-slice"
    if last is None or group.dims[last[1]] < (COMMON_LANES if takes_rows else 2):
        return False
    if op_cost(producer) < _LONG:
        cost, vectors = _cost_of_steps(producer), -(-group.dims[last[1]] // COMMON_LANES)
        if cost < COSTLY * vectors or cost * producer.shape.size < _KERNEL:
            return False
    waiting, seen = [producer], {producer}
    is_spread = False
    while waiting and len(seen) < _MOST_SEARCHED:
        for user in users_in(group.members, waiting.pop()):
            if user.opcode == "broadcast" and group.members[user][-1:] == (last,):
                if user.shape.rank - 1 in ints(user, "dimensions"):
                    return False
                is_spread = True
            elif not is_elementwise(user):
                return False
            elif user not in seen:
                seen.add(user)
                waiting.append(user)
    return is_spread and not waiting


def _cost_of_steps(producer: Instruction) -> int:
    """Arithmetic of an element, with what is computed for it alone; 0 where a reduction is among
    that, which its group has to finish.
    """
    cost, waiting = 0, [producer]
    for _ in range(_MOST_SEARCHED):
        if not waiting:
            break
        top = waiting.pop()
        cost += _cost_alone(top)
        for operand in dict.fromkeys(top.operands):
            if operand.opcode == "reduce":
                return 0
            is_step = is_elementwise(operand) and len(operand.users) == 1
            if is_step or has_trait(operand, _SPREADS):
                waiting.append(operand)
    return cost


def last_axis(group: Group) -> Axis | None:
    """The dimension of the root's along which its elements lie side by side; None of a tuple, and
    of a scalar.
    """
    root = group.root.shape
    if not root.is_array or root.layout is None or not root.dims:
        return None
    return "d", next((d for d in root.layout.minor_to_major if root.dims[d] > 1), 0)


def wasted_sums(group: Group, producer: Instruction, axes: Axes) -> str:
    """How the group's lanes would be wasted on sums, or on what becomes of them; "" where they are
    not."""
    if producer.opcode != "reduce":
        return ""
    return (
        _summed_across(group, producer, axes)
        or _waits_alone(group, producer, axes)
        or _is_met_by_few(group, producer, axes)
    )


def _is_met_by_few(group: Group, reduce: Instruction, axes: Axes) -> str:
    """How lanes would take a row each, across the long rows that a reduction sums, for a sum is met
    by few results of a row, as a force by the three parts of a direction; "" where they would not.
    """
    fixed = fixed_dims(group, axes)
    few = 1 if fixed is None else prod(group.dims[fixed:])
    row, reduced = reduce.operands[0].shape, ints(reduce, "dimensions")
    is_long = row.rank - 1 in reduced and row.dims[-1] >= COMMON_LANES
    if not 1 < few <= COMMON_LANES // 2 or not is_long or row.size < _LOOP * COMMON_LANES:
        return ""
    return "its few results of a row would not fill the lanes that sum the row"


def _summed_across(group: Group, reduce: Instruction, axes: Axes) -> str:
    """How lanes of a group would run across the columns that a reduction sums, or across what its
    terms are gathered from, which was turned so that they run along it (gather-operand-transposer);
    "" where they do not. Sums that are made in their own order, and turned then, take 0.01 to 0.9
    of the time, of columns of two numbers as of thousands.
    """
    last = last_axis(group)
    if last is None:
        return ""
    if [axis for axis, n in zip(axes, reduce.shape.dims, strict=True) if n > 1][-1:] == [last]:
        return ""
    is_of_columns = reduce.operands[0].shape.rank - 1 not in ints(reduce, "dimensions")
    if is_of_columns and fixed_dims(group, axes) == len(group.dims):
        return "its lanes run along the columns that it sums"
    seen: dict[Instruction, None] = {}
    waiting = [reduce.operands[0]]
    while waiting and len(seen) < _MOST_SEARCHED:
        top = waiting.pop()
        if top in seen:
            continue
        seen[top] = None
        x = top.operands[0] if top.opcode == "gather" else top
        if x is not top and x.opcode == "transpose" and is_turned_back(x.operands[0]):
            return "what its terms are gathered from lies as its own lanes run"
        if top.opcode in _TURNS or is_elementwise(top):
            waiting += top.operands
    return ""


def _waits_alone(group: Group, reduce: Instruction, axes: Axes) -> str:
    """How what becomes of a row's sum would be computed for one row after the other, lanes running
    along rows, and takes longer than the row: a loop of its own computes as many at a time as
    there are lanes. "" where it would not.

    A logistic of sums of 24 products, an exponential of a distance in 200 dimensions: 0.2 to 0.6 of
    the time.
    """
    fixed = fixed_dims(group, axes)
    if fixed is None or prod(group.dims[fixed:]) != 1:
        return ""
    row, reduced = reduce.operands[0], ints(reduce, "dimensions")
    terms = prod(row.shape.dims[d] for d in reduced)
    if row.shape.rank - 1 not in reduced or terms <= COMMON_LANES:  # lanes take a short row each
        return ""
    cost = sum(map(_cost_alone, group.members))
    if cost < COSTLY or cost * reduce.shape.size < _LOOP:
        return ""
    is_dear = terms * (1 + op_cost(row)) < _DEAR * cost
    return f"what %{group.root.name} makes of each sum takes longer than the sum" if is_dear else ""


def _cost_alone(member: Instruction) -> int:
    """What one result costs where no other is computed with it: of many, quotients and roots take
    the divider a few at a time.
    """
    cost = op_cost(member)
    return cost // _DIVIDED if OPS[member.opcode].cost.divides else cost


def step_of(x: Instruction, d: int) -> int:
    """How many elements lie between neighbours along a dimension, in the array in memory of which x
    is a transpose."""
    while x.opcode == "transpose" and not is_turned_back(x):
        d = ints(x, "dimensions")[d]
        (x,) = x.operands
    if x.shape.layout is None:
        return 1
    order = x.shape.layout.minor_to_major
    return prod(x.shape.dims[m] for m in order[: order.index(d)])


def evaluations(producer: Instruction, counts: Mapping[Instruction, Counts]) -> float:
    """How often each element is computed for users in a group; counts: the same of its members."""
    return sum(counted(producer, counts).values())


def counted(producer: Instruction, counts: Mapping[Instruction, Counts]) -> Counts:
    """How often each element is computed for each operand of a concatenate that it is part of, and
    for what is in none.

    Users at the element's own index share what is computed, unless they are in different operands;
    so do slices of one concatenate, and lookups at the same places.
    """
    own, moved = Counts(), Counts()
    for user in users_in(counts, producer):
        if user.opcode not in _MOVES or _is_place(user):
            for part, count in counts[user].items():
                own[part] = max(own.get(part, 0.0), count)
            continue
        volume = sum(counts[user].values()) * min(user.shape.size, producer.shape.size)
        operand = producer if user.opcode == "concatenate" else None
        moved[operand] = moved.get(operand, 0.0) + volume
    for operand, volume in moved.items():
        own[operand] = own.get(operand, 0.0) + volume / max(1, producer.shape.size)
    return own


def _is_place(user: Instruction) -> bool:
    """Whether it joins the numbers of places, which all lookups there ask for at one index."""
    if user.opcode != "concatenate":
        return False
    return all(u.opcode == "gather" and u.operands[0] is not user for u in user.users)


def is_worth_repeating(producer: Instruction, count: float) -> bool:
    """Whether computing it `count` times costs no more than a kernel of its own."""
    if count <= 1.5:
        return True
    cost, seen = 0, 0
    waiting = [producer]
    while waiting and seen < _MOST_SEARCHED:
        top = waiting.pop()
        seen += 1
        cost += op_cost(top)
        operands = dict.fromkeys(top.operands)
        waiting += [o for o in operands if is_elementwise(o) and len(o.users) == 1]
    return (count - 1) * cost <= MOST_REPEATED


def whole_users(producer: Instruction, axes: Mapping[Group, Axes | None]) -> int:
    """How many groups need more of a producer than is worth keeping: those that pick or slice
    little of it compute that again. All slices together have to be little."""
    whole = [group for group, own in axes.items() if not picks_few(producer, own)]
    if len(whole) < 2 or producer.opcode == "reduce":
        return len(whole)
    least = 1 if op_cost(producer) <= CHEAP else 8
    parts = [least * evaluations(producer, group.counts) for group in whole]
    few = [part for part in parts if part <= _FEW]
    return len(whole) - len(few) if sum(few) <= _FEW else len(whole)


def joins_unknown_parts(producer: Instruction, members: Mapping[Instruction, object]) -> bool:
    """Whether it joins arrays of which a group reads now this one, now that one: parts that a
    reshape deals out in turns, as phases of a transposed convolution, or computed ones at a place
    that only the run knows, as a roll by a computed distance. A kernel would compute each part for
    each element and choose, lane by lane; what is in memory is read from end to end.
    """
    if producer.opcode != "concatenate" or producer.shape.size < _LEAST_LOOKED_UP:
        return False
    (joined,) = ints(producer, "dimensions")
    is_computed = not all(o.opcode == "parameter" or views_memory(o) for o in producer.operands)
    for user in users_in(members, producer):
        is_picked = has_trait(user, Trait.PICKS | Trait.CUTS_AT) and user.operands[0] is producer
        if is_picked and is_computed:
            return True
        if user.opcode == "reshape" and _is_dealt_out(user, joined):
            return True
    return False


def _is_dealt_out(reshape: Instruction, d: int) -> bool:
    """Whether an operand's dimension changes faster than another one with which it becomes one."""
    found = steps(reshape, 0)
    if found is None or found[d].is_whole or len(found[d].dims) != 1:
        return False
    (source,) = reshape.operands
    outer = (
        n > 1 and step.dims == found[d].dims
        for n, step in zip(source.shape.dims[:d], found, strict=False)
    )
    return any(outer)


def picks_few(producer: Instruction, axes: Axes | None) -> bool:
    """Whether a group needs no more than it takes to compute what it picks again."""
    if not axes or axes[0][0] != PICKED or len(set(axes)) > 1:
        return False
    _, picks = axes[0]
    least = 1 if op_cost(producer) <= CHEAP else 8
    return producer.opcode != "reduce" and picks * least <= producer.shape.size
