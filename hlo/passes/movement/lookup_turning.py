"""Lookups of channels that lie first: made with the channels last, and turned once they are met.

    y = f(gather(x[c, h, w], i)[c, n], ..)   =>   t = f(gather(x, i)[n, c], ..);  y = transpose(t)

    f: elementwise ops on lookups at other places, on what broadcasts spread, on single numbers

A warped image, samples of a region, a deformable convolution: where channels lie first, a vector
looks up its lanes one after the other, each with an address that it computes; where they lie last,
a place has one address, and its channels are a run of memory. On Zen 5 bilinear samples of 16 to
256 channels take 0.35 to 0.45 of the time, nearest ones 0.43 to 0.57; of 8 channels 0.86 and 0.95.
A channel that is looked up once alone, words that lie in the first cache (columns that are picked
of a matrix), stays: to turn it twice takes 1.1 to 6 times as long on Zen 4.
Does not know: that the operand is to be turned, too (gather_operand_transposer.py).
"""

from __future__ import annotations

from hlo.analysis.counted_places import range_of
from hlo.analysis.fusibility import is_elementwise
from hlo.ir.instruction import Instruction
from hlo.ir.permutation import inverse
from hlo.ir.shape import Ints, Shape
from hlo.machine import COMMON
from hlo.ops.making import make, transposed
from hlo.passes.fusion.repeats import step_of
from hlo.passes.liveness import replace
from hlo.passes.patterns.matching import has_one_user, ints, is_plain

_LEAST_CHANNELS = 16  # Of fewer, turning takes as long as it saves.
_LEAST_LOOKED_UP = 32  # Channels of all lookups that meet: so many are worth to be turned again.
_LEAST_PLACES = 16  # Fewer are looked up as fast where they lie.
_WORD_BYTES = 4  # What is narrower takes a vector longer to look up than to turn.


def looks_channels_up(gather: Instruction) -> bool:
    """Whether lanes would run along the places of a gather whose channels lie first.

    Its slices are whole channels, as many as there are to turn, and only the run knows where.
    """
    x, places = gather.operands
    offsets = ints(gather, "offset_dims")
    if len(offsets) != 1 or gather.get("operand_batching_dims"):
        return False
    if not is_plain(gather.shape) or not is_plain(x.shape) or offsets[0] == gather.shape.rank - 1:
        return False
    cut = ints(gather, "collapsed_slice_dims")
    (channel,) = (d for d in range(x.shape.rank) if d not in cut)
    count = gather.shape.dims[offsets[0]]
    if count < _LEAST_CHANNELS or count != x.shape.dims[channel] or step_of(x, channel) == 1:
        return False
    lookups = [u for u in x.users if u.opcode == "gather" and u.operands[0] is x]
    looked_up = sum(g.shape.size for g in lookups if g.shape.dims)
    if looked_up < x.shape.size or len(lookups) * count < _LEAST_LOOKED_UP:
        return False
    if len(lookups) == 1 and _is_near(x.shape, count):
        return False
    return gather.shape.size >= _LEAST_PLACES * count and range_of(places) is None


def _is_near(looked_up: Shape, channels: int) -> bool:
    """Whether the first cache holds a channel, and its elements are words, or wider."""
    is_held = looked_up.size_bytes // channels <= COMMON.first_cache.bytes
    return is_held and looked_up.dtype.item_bytes >= _WORD_BYTES


def turned_lookup(gather: Instruction) -> Instruction:
    """The gather with its channels last, in the place of one that looks channels up; what was made
    of that is turned behind the last op that meets it."""
    (channel,) = ints(gather, "offset_dims")
    rank = gather.shape.rank
    order = (*(d for d in range(rank) if d != channel), channel)
    keywords = {k: v for k, v in gather.attributes.items() if k != "metadata"}
    keywords["offset_dims"] = (rank - 1,)
    shape = gather.shape.with_dims([gather.shape.dims[d] for d in order])
    last = make(gather, "gather", *gather.operands, shape=shape, **keywords)
    back = transposed(last, inverse(order))
    replace(gather, back)
    sunk = _sunk(back)
    while sunk is not None:
        sunk = _sunk(sunk)
    return last


def _sunk(back: Instruction) -> Instruction | None:
    """The transpose behind the one op that meets it; None where that meets other arrays, or nothing
    does."""
    if not has_one_user(back):
        return None
    (op,) = back.users
    if not is_elementwise(op) or not is_plain(op.shape) or op.shape.rank != back.shape.rank:
        return None
    if "control-predecessors" in op.attributes:
        return None
    order = ints(back, "dimensions")
    if not all(_is_turned_freely(o, order) for o in op.operands):
        return None
    operands = [_turned(o, order) for o in op.operands]
    keywords = {k: v for k, v in op.attributes.items() if k != "metadata"}
    shape = operands[_whole(operands)].shape.with_dtype(op.shape.dtype)
    inner = make(op, op.opcode, *operands, shape=shape, **keywords)
    outer = transposed(inner, order)
    replace(op, outer)
    return outer


def _whole(operands: list[Instruction]) -> int:
    """Which operand has an op's own dimensions."""
    return next(n for n, o in enumerate(operands) if o.shape.dims)


def _is_turned_freely(operand: Instruction, order: Ints) -> bool:
    """Whether an operand is there in the other order without a move of memory."""
    if operand.opcode == "transpose":
        return ints(operand, "dimensions") == order and has_one_user(operand)
    return operand.opcode == "broadcast" or not operand.shape.dims


def _turned(operand: Instruction, order: Ints) -> Instruction:
    """An operand in the order that a transpose has turned."""
    if operand.opcode == "transpose":
        return operand.operands[0]
    if not operand.shape.dims:
        return operand
    (source,) = operand.operands
    dims = tuple(order[d] for d in ints(operand, "dimensions"))
    rising = tuple(sorted(range(len(dims)), key=dims.__getitem__))
    shape = operand.shape.with_dims([operand.shape.dims[d] for d in inverse(order)])
    return make(
        operand, "broadcast", transposed(source, rising), shape=shape,
        dimensions=tuple(dims[k] for k in rising),
    )  # fmt: skip
