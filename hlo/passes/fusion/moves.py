"""Moves: elements that a kernel would read where they lie badly for it, or look up too often.

A vector looks up as many elements as it has lanes, one after the other, which takes about as long
as so many operations on all of them. So what a kernel would look up again for each place at which
it reads it (a substitution whose bytes are mixed with their neighbours) is kept instead, and what
lies across its lanes is moved by a kernel of its own. Programs that move nothing start without
this.
"""

from __future__ import annotations

from math import prod

from hlo.analysis.fusibility import is_elementwise, op_cost
from hlo.attributes.slices import slice_dims
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints
from hlo.machine import COMMON, COMMON_LANES
from hlo.passes.fusion.axes import Axes, Group
from hlo.passes.fusion.phases import wasted_phases
from hlo.passes.fusion.repeats import ONCE, evaluations, is_turned_back, last_axis, step_of
from hlo.passes.patterns.matching import ints

_MOST_SEARCHED = 32
_WRITTEN = 12  # Ops of an element that take longer than to write it and to read it apart.
# Bytes of a table that two registers hold: a permutation looks up all lanes in a cycle.
_FEW_BYTES = 128


def wasted_moves(group: Group, producer: Instruction, axes: Axes) -> str:
    """How a group's vectors would be wasted on a gather, a transpose, or phases of pads; "" where
    they are not."""
    if _is_gathered_across(group, producer, axes) or _is_sliced_across(producer):
        return "each of a vector's lanes would read a line of its own"
    if producer.opcode == "gather" and _is_looked_up_often(group, producer):
        return f"the kernel of %{group.root.name} would look its elements up at several places"
    return wasted_phases(group, producer, axes) or _wasted_behind(group, producer)


def _wasted_behind(group: Group, producer: Instruction) -> str:
    """How what becomes of a producer would waste a group's lanes on what it is made of; "" where it
    does not."""
    if all(user.opcode == "transpose" for user in producer.users) and _is_turned_for(producer):
        return "what it is looked up in lies as its own lanes run"
    return _wasted_on_windows(group, producer) if group.has_reduce else ""


def _is_turned_for(producer: Instruction) -> bool:
    """Whether it is made of elements that are looked up in what was turned for them
    (lookup_turning.py)."""
    found, seen = [producer], 0
    while found and seen < _MOST_SEARCHED:
        top = found.pop()
        seen += 1
        if top.opcode == "gather":
            x, slices = top.operands[0], ints(top, "offset_dims")
            is_back = x.opcode == "transpose" and is_turned_back(x.operands[0])
            if is_back and slices == (top.shape.rank - 1,):
                return True
        elif is_elementwise(top):
            found += top.operands
    return False


def _wasted_on_windows(group: Group, producer: Instruction) -> str:
    """How lanes of a reduction over short windows would be wasted on what its terms are made of; ""
    where they are not.

    Lanes take a window each, of a row of results which are too few to fill a vector, as a region's
    samples are reduced by two and two (RoI align), so that most of them are idle, and what they
    read lies apart. Where terms cost much, a kernel of their own computes a whole vector of them.
    """
    if not is_elementwise(producer) or len(producer.users) != 1:
        return ""
    (user,) = producer.users
    if user.opcode == "reshape" and len(user.users) == 1:
        (user,) = user.users
    if user.opcode != "reduce" or user not in group.members:
        return ""
    dims, reduced = user.operands[0].shape.dims, ints(user, "dimensions")
    row = _row_of_windows(dims, reduced)
    if row == 0 or _cost_of_terms(producer) * (COMMON_LANES // row - 1) <= _WRITTEN:
        return ""
    return f"few of a vector's lanes would compute terms of %{user.name}, for its rows are short"


def _row_of_windows(dims: Ints, reduced: Ints) -> int:
    """Results side by side of a reduction over windows that are the innermost elements; 0 where
    a vector is filled by those of one window, or by a row's results, or nothing is side by side.
    """
    window = row = 1
    is_window = True
    for d in reversed(range(len(dims))):
        is_window = is_window and d in reduced
        if is_window:
            window *= dims[d]
        elif d in reduced:
            break
        else:
            row *= dims[d]
    return row if 1 < window < COMMON_LANES and 1 < row <= COMMON_LANES // 2 else 0


def _cost_of_terms(producer: Instruction) -> int:
    """Arithmetic of an element with what is computed for it alone; lookups as lanes take them."""
    cost, waiting = 0, [producer]
    for _ in range(_MOST_SEARCHED):
        if not waiting:
            break
        top = waiting.pop()
        cost += COMMON_LANES if top.opcode == "gather" else op_cost(top)
        waiting += [
            o
            for o in dict.fromkeys(top.operands)
            if len(o.users) == 1 and (o.opcode == "gather" or is_elementwise(o))
        ]
    return cost


def _is_looked_up_often(group: Group, gather: Instruction) -> bool:
    """Whether lanes would look elements up again that they have looked up: not places that are
    counted, which are a run of the table, nor where lanes run along slices.
    """
    table, places = gather.operands
    if evaluations(gather, group.counts) <= ONCE or table.shape.size_bytes <= _FEW_BYTES:
        return False
    layout = gather.shape.layout
    along_slices = ints(gather, "offset_dims")
    if layout is None or not gather.shape.dims or layout.minor_to_major[0] in along_slices:
        return False
    from hlo.analysis.counted_places import range_of  # few programs look up

    return range_of(places) is None


def _is_gathered_across(group: Group, producer: Instruction, axes: Axes) -> bool:
    """Whether lanes of a group would read a gather's slices across, each lane another line of a
    large array, where the gather by itself reads along some other dimension.

    A gather of its own and a transpose of what it made take 0.2 of the time for an image that is
    made larger, channels first, with its channels last. Not where more is gathered than is kept.
    """
    root = group.root.shape
    if producer.opcode != "gather" or producer.shape.size > prod(group.dims) or not root.is_array:
        return False
    if producer.operands[0].shape.size_bytes <= COMMON.first_cache.bytes or root.layout is None:
        return False
    last = last_axis(group)
    if [axis for axis, n in zip(axes, producer.shape.dims, strict=True) if n > 1][-1:] == [last]:
        return False
    slices = zip(ints(producer, "offset_dims"), _kept_dims(producer), strict=True)
    return any(
        axes[at] == last and step_of(producer.operands[0], d) >= COMMON_LANES for at, d in slices
    )


def _is_sliced_across(transpose: Instruction) -> bool:
    """Whether all that is read of a transpose is every second or third of what lies side by side in
    a large array, as the phases of a transposed convolution take it of their kernel: lanes would
    gather it, where the transpose by itself turns squares in registers.

    Four phases of a kernel of 4x4 take 0.3 of the time. Not where more is turned than is kept.
    """
    layout, users = transpose.shape.layout, transpose.users
    if transpose.opcode != "transpose" or layout is None:
        return False
    x = transpose.operands[0].shape
    if x.size_bytes <= COMMON.first_cache.bytes or sum(u.shape.size for u in users) < x.size:
        return False
    dims = enumerate(transpose.shape.dims)
    inner = next((d for d, n in dims if n > 1 and step_of(transpose, d) == 1), None)
    if inner is None or layout.minor_to_major[0] == inner:
        return False
    return all(u.opcode == "slice" and slice_dims(u.attributes)[inner].stride > 1 for u in users)


def _kept_dims(gather: Instruction) -> list[int]:
    """The operand's dimensions that are dimensions of a slice, in order."""
    batching = gather.get("operand_batching_dims") or ()
    assert isinstance(batching, tuple), "a list of integers"
    cut = {*ints(gather, "collapsed_slice_dims"), *batching}
    return [d for d in range(gather.operands[0].shape.rank) if d not in cut]
