"""Scatters of frames that overlap: sums of as many shifted arrays as frames meet at a place.

    y[a i + j] += u[i, j]   =>   y += pad(u[:, 2a:3a]), then pad(u[:, a:2a]), then pad(u[:, 0:a])

So gradients of a signal's frames add up, inverse transforms of short times, and patches of a
picture in two dimensions. Each place takes its terms in the order in which the scatter has them.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod

from msgspec import Struct

from hlo.attributes.padding import PaddingDim
from hlo.attributes.slices import SliceDim
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Variable
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.identities import identity
from hlo.ops.making import make, transposed
from hlo.passes.patterns.counting import MOST_BESIDE, Run, array_of, run_of, written_index
from hlo.passes.patterns.indexing import combines
from hlo.passes.patterns.matching import is_plain, splat
from hlo.passes.rewriting import rewrite

_MOST_SHIFTS = 32  # Shifted arrays that are added up.


class Frames(Struct, frozen=True):
    """Places least + step (hop i + j) along one dimension: outer counts i, inner j, dimensions of
    the updates.
    """

    least: int
    step: int
    hop: int
    outer: int
    inner: int
    frames: int
    length: int

    @property
    def shifts(self) -> int:
        """How many frames meet at a place."""
        return -(-self.length // self.hop)

    @property
    def along(self) -> tuple[int, int]:
        """The dimensions of the updates, outer first."""
        return self.outer, self.inner

    @property
    def count(self) -> int:
        """The places of one shift."""
        return self.frames * self.hop


Places = Run | Frames


@rewrite("scatter")
def scatter_frames(root: Instruction) -> Instruction | None:
    """scatter(x, c + a i + j, u) => f(f(x, pad(u'')), pad(u'))  with u cut into parts of a along j

    For f with an identity, frames that lie inside of x, and that meet in few places at most.
    """
    if len(root.operands) != 3 or not is_plain(root.shape) or not root.shape.size:
        return None
    x, _, u = root.operands
    combine = root["to_apply"]
    assert isinstance(combine, Computation), "a scatter combines by a computation"
    if not is_plain(u.shape) or not combines(combine, x, u) or u.shape.dtype.is_complex:
        return None
    beside = identity(combine.root.opcode, u.shape.dtype)
    places = _places(root)
    if beside is None or places is None or MOST_BESIDE * u.shape.size < x.shape.size:
        return None
    number = splat(root, beside, Shape.array(u.shape.dtype))
    parts = _parted(root, places, number)
    result = x
    for shift in _in_turn(places):
        part = _part(root, parts, places, shift)
        padding = tuple(
            _padding(p, k, n) for p, k, n in zip(places, shift, x.shape.dims, strict=True)
        )
        moved = make(root, "pad", part, number, shape=root.shape, padding=padding)
        result = make(root, combine.root.opcode, result, moved, shape=root.shape)
    return result


def _places(scatter: Instruction) -> list[Places] | None:
    """The places along all dimensions, in one of them of frames that overlap at least; None where
    something else is counted, or too many frames meet."""
    dims = scatter.operands[2].shape.dims
    loops = [Variable(f"i{d}", 0, n - 1) for d, n in enumerate(dims)]
    index = written_index(scatter, tuple(map(affine.of, loops)))
    if index is None:
        return None
    found: list[Places] = []
    for e in index:
        one = run_of(e, loops) or _frames(e, loops)
        if one is None or (isinstance(one, Run) and one.is_backwards):
            return None
        found.append(one)
    frames = [p for p in found if isinstance(p, Frames)]
    counted = [n for p in found for n in p.along]
    is_each_once = sorted(counted) == [d for d, n in enumerate(dims) if n > 1]
    if not frames or not is_each_once or prod(p.shifts for p in frames) > _MOST_SHIFTS:
        return None
    return found


def _frames(e: Expr, loops: Sequence[Variable]) -> Frames | None:
    """Places that two dimensions count together."""
    if not e.terms.keys() <= set(loops) or len(e.terms) != 2 or min(e.terms.values()) < 1:
        return None
    # Of two that count alike, the shorter one is a frame.
    outer, inner = sorted(
        (d for d, v in enumerate(loops) if v in e.terms),
        key=lambda d: (-e.terms[loops[d]], -loops[d].high),
    )
    hop, step = (e.terms[loops[d]] for d in (outer, inner))
    if hop % step:
        return None
    frames, length = (loops[d].high + 1 for d in (outer, inner))
    return Frames(e.low, step, hop // step, outer, inner, frames, length)


def _parted(scatter: Instruction, places: Sequence[Places], number: Instruction) -> Instruction:
    """The updates with the operand's dimensions in order, of frames three: which, part, place."""
    u = scatter.operands[2]
    dims = u.shape.dims
    order = [n for p in places for n in p.along]
    kept = sorted(order)
    value = make(scatter, "reshape", u, shape=array_of(u, [dims[n] for n in kept]))
    value = transposed(value, tuple(kept.index(n) for n in order))
    padding: list[PaddingDim] = []
    parted: list[int] = []
    for p in places:
        padding += [PaddingDim(0, 0, 0) for _ in p.along]
        if isinstance(p, Frames):
            padding[-1] = PaddingDim(0, p.shifts * p.hop - p.length, 0)
            parted += (p.frames, p.shifts, p.hop)
        else:
            parted.append(p.count)
    if any(d.high for d in padding):
        sizes = [dims[n] + d.high for n, d in zip(order, padding, strict=True)]
        shape = array_of(u, sizes)
        value = make(scatter, "pad", value, number, shape=shape, padding=tuple(padding))
    return make(scatter, "reshape", value, shape=array_of(u, parted))


def _in_turn(places: Sequence[Places]) -> list[tuple[int, ...]]:
    """Shifts, a number for each dimension, in the order in which a place takes their terms: that of
    the updates, where a greater shift is an earlier frame's later element."""

    def position(shift: tuple[int, ...]) -> list[int]:
        at: dict[int, int] = {}
        for p, k in zip(places, shift, strict=True):
            if isinstance(p, Frames):
                at[p.outer], at[p.inner] = -k, k
        return [at[d] for d in sorted(at)]

    every = product(*(range(p.shifts if isinstance(p, Frames) else 1) for p in places))
    return sorted(every, key=position)


def _part(
    scatter: Instruction, parts: Instruction, places: Sequence[Places], shift: tuple[int, ...]
) -> Instruction:
    """What of the updates a shift moves."""
    taken: list[SliceDim] = []
    for p, k in zip(places, shift, strict=True):
        if isinstance(p, Frames):
            taken += (SliceDim(0, p.frames), SliceDim(k, k + 1), SliceDim(0, p.hop))
        else:
            taken.append(SliceDim(0, p.count))
    cut = make(scatter, "slice", parts, slice=tuple(taken))
    return make(scatter, "reshape", cut, shape=array_of(cut, [p.count for p in places]))


def _padding(p: Places, shift: int, size: int) -> PaddingDim:
    """Where a shift lies in the operand; what is cut off behind was never there."""
    low = p.least + (p.step * p.hop * shift if isinstance(p, Frames) else 0)
    return PaddingDim(low, size - low - p.step * (p.count - 1) - 1, p.step - 1)
