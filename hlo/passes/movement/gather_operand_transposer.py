"""gather-operand-transposer: what is gathered lies as the lanes that read it run.

    transpose(gather(x[n, c, h, w], i))          =>   t = transpose(x) [h, w, n, c];
    reduce(f(transpose(gather(x, i))))                the same of gather(transpose(t), i)

An image with its channels first that is made larger or smaller: each result is an element (nearest)
or a sum over a window of a few (bilinear, bicubic), and results that lie side by side are those of
channels. Lanes over the window would be idle for the most part, lanes over channels would read a
line each; of an image that is turned once they read side by side. On Zen 4, 72 channels of 23 x 31
to 45 x 70: 0.05 of the time, with a transpose of the result behind it 0.07; nearest to 50 x 37 0.5.
"""

from __future__ import annotations

from math import prod

from hlo.analysis.fusibility import is_elementwise
from hlo.indexing.queries import kept_dims
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.permutation import inverse
from hlo.ir.shape import Ints, Shape
from hlo.ops.making import make
from hlo.ops.table import Trait, has_trait
from hlo.passes.fusion.repeats import is_turned_back, step_of
from hlo.passes.liveness import replaceable
from hlo.passes.movement.lookup_turning import looks_channels_up, turned_lookup
from hlo.passes.patterns.matching import has_one_user, ints, is_plain

LEAST_LANES = 8  # Elements that are read side by side.
LEAST_PLACES = 16  # Runs of such: a column that is picked is read as fast where it lies.
MOST_TURNED = 2  # Elements for each that is read.
_MOST_FOLLOWED = 16  # Instructions behind a gather.


def gather_operand_transposer(module: Module) -> bool:
    """Turn what is gathered so that what lies side by side in the result is read so.

    What each element is does not change: the gather reads a transpose of a transpose. O(gathers).
    """
    channels = [gather for gather in replaceable(module, "gather") if looks_channels_up(gather)]
    for gather in channels:
        last = turned_lookup(gather)
        cut = ints(last, "collapsed_slice_dims")
        whole = (d for d in range(last.operands[0].shape.rank) if d not in cut)
        _turn(last, (*cut, *whole))
    changed = bool(channels)
    for gather in replaceable(module, "gather"):
        order = _turned(gather)
        if order is not None:
            _turn(gather, order)
            changed = True
    return changed


def _turned(gather: Instruction) -> Ints | None:
    """The order in which the operand's dimensions are to lie, those that lanes run over last; None
    where they lie so, or where less is read than there is to turn."""
    x = gather.operands[0]
    if not is_plain(gather.shape) or not is_plain(x.shape):
        return None
    if MOST_TURNED * gather.shape.size < x.shape.size:
        return None
    inner = _innermost(gather)
    lanes = prod(x.shape.dims[d] for d in inner)
    if lanes < LEAST_LANES or gather.shape.size < LEAST_PLACES * lanes:
        return None
    if step_of(x, inner[-1]) == 1:
        return None
    return (*(d for d in range(x.shape.rank) if d not in inner), *inner)


def _innermost(gather: Instruction) -> list[int]:
    """The operand's dimensions that are whole and innermost, in memory, in what is made of a
    gather: in the first sums of what it gives, or where its elements end."""
    found = {e: d for d, e in enumerate(kept_dims(gather, 0)) if e is not None}
    top = gather
    for _ in range(_MOST_FOLLOWED):
        if not has_one_user(top) or top.opcode == "reduce":
            break
        (user,) = top.users
        is_moved = user.opcode == "reduce" or has_trait(user, Trait.PERMUTES | Trait.REGROUPS)
        if not user.shape.is_array or not (is_moved or is_elementwise(user)):
            break
        moved = kept_dims(user, user.operands.index(top))
        found = {e: found[d] for d, e in enumerate(moved) if d in found and e is not None}
        top = user
    inner: list[int] = []
    for e in top.shape.layout.minor_to_major if top.shape.layout else ():
        if top.shape.dims[e] == 1:
            continue
        if e not in found:
            break
        inner.insert(0, found[e])
    return inner


def _turn(gather: Instruction, order: Ints) -> None:
    """Let it read a transpose of what was turned before."""
    x, indices = gather.operands
    computation = gather.computation
    assert computation is not None, "an instruction in a computation"
    computation.set_operands(gather, (_turned_back(x, order), indices))


def _turned_back(x: Instruction, order: Ints) -> Instruction:
    """A transpose of a transpose, which is x: that of another gather, where there is one."""
    for turned in x.users:
        if turned.opcode == "transpose" and turned["dimensions"] == order and turned.users:
            (back, *_) = turned.users
            if back.opcode == "transpose" and is_turned_back(turned):
                return back
    shape = Shape.array(x.shape.dtype, [x.shape.dims[d] for d in order])
    turned = make(x, "transpose", x, shape=shape, dimensions=order)
    return make(x, "transpose", turned, shape=x.shape, dimensions=inverse(order))
