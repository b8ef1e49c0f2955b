"""Gathers and scatters at places that are counted: slices and pads, and formulas for tables.

`x[::2]`, `x.at[1::2].add(u)` and `x[jnp.arange(0, n, k)]` say so as arrays of indices.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np
from msgspec import Struct

from hlo.analysis.counted_places import even_steps, place_of
from hlo.attributes.padding import PaddingDim
from hlo.attributes.slices import SliceDim
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.indexing.maps import cases, scattered
from hlo.ir.computation import Computation
from hlo.ir.dtype import PRED
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints, Shape
from hlo.ops.identities import identity
from hlo.ops.making import make, number_of, spread, transposed
from hlo.passes.patterns.indexing import combines, replaces
from hlo.passes.patterns.matching import is_plain, literal_of, splat
from hlo.passes.rewriting import rewrite

MOST_BESIDE = 4  # Elements for each update that are read and written beside it.
_LEAST_COUNTED = 8  # Shorter tables of places are read as fast as they are counted.


@rewrite("gather")
def gather_evenly(root: Instruction) -> Instruction | None:
    """gather(x, [c + k i, ..]) => broadcast(transpose(slice(x)))  for steps along x's dimensions

    Where each dimension of x is read at places that one dimension of the result counts, or that
    several do which lie in it as in a reshape.
    """
    x = root.operands[0]
    if not is_plain(root.shape) or not is_plain(x.shape) or not root.shape.size:
        return None
    loops = [Variable(f"i{d}", 0, n - 1) for d, n in enumerate(root.shape.dims)]
    index = _read_index(root, tuple(map(affine.of, loops)))
    if index is None:
        return None
    runs = _runs(index, loops)
    return None if runs is None else _sliced(root, runs)


class Run(Struct, frozen=True):
    """The places along one dimension: the least, how many, how far apart; along: the dimensions of
    what is moved that count them, outer first.
    """

    least: int
    count: int
    step: int
    along: Ints
    is_backwards: bool

    @property
    def is_dense(self) -> bool:
        return self.step == 1 or self.count == 1


def _sliced(root: Instruction, runs: Sequence[Run]) -> Instruction:
    """The slice that the runs are, with the root's dimensions in order."""
    x, dims = root.operands[0], root.shape.dims
    taken = tuple(SliceDim(r.least, r.least + r.step * (r.count - 1) + 1, r.step) for r in runs)
    value = make(root, "slice", x, shape=array_of(x, [r.count for r in runs]), slice=taken)
    turned = tuple(d for d, run in enumerate(runs) if run.is_backwards)
    if turned:
        value = make(root, "reverse", value, shape=value.shape, dimensions=turned)
    order = [n for run in runs for n in run.along]
    value = make(root, "reshape", value, shape=array_of(x, [dims[n] for n in order]))
    value = transposed(value, tuple(int(k) for k in np.argsort(order)))
    return make(root, "broadcast", value, shape=root.shape, dimensions=tuple(sorted(order)))


def array_of(x: Instruction, dims: Sequence[int]) -> Shape:
    """A plain array of x's elements."""
    return Shape.array(x.shape.dtype, dims)


class _Starts:
    """What a gather's or scatter's starts are, as they are asked for: places that are counted and
    lie inside, or else none is.
    """

    def __init__(self, one: Instruction) -> None:
        self._operands = one.operands
        self.are_counted = True

    def __call__(self, number: int, at: Index, low: int, high: int) -> Expr:
        found = place_of(self._operands[number], at)
        if found is None or not found.is_open or found.least < low or high < found.most:
            self.are_counted = False
            return affine.number(low)
        return found.index


def _read_index(gather: Instruction, index: Index) -> Index | None:
    """Where an element of a gather lies in its operand; None where no place is counted, or may lie
    outside.
    """
    starts = _Starts(gather)
    (case,) = cases(gather, index, starts)
    return case.index if starts.are_counted else None


@rewrite("scatter")
def scatter_evenly(root: Instruction) -> Instruction | None:
    """scatter(x, [c + k i, ..], u) => f(x, pad(u)),  select(pad(true), pad(u), x)  to replace,
    dynamic-update-slice(x, f(slice(x), u))  for steps of one;  u with its dimensions in order

    Where every place is written once and inside of x, and not only a few of them are: a kernel goes
    through all of x.
    """
    if len(root.operands) != 3 or not is_plain(root.shape) or not root.shape.size:
        return None
    x, _, u = root.operands
    combine = root["to_apply"]
    assert isinstance(combine, Computation), "a scatter combines by a computation"
    if not is_plain(u.shape) or not (replaces(combine) or combines(combine, x, u)):
        return None
    if not u.shape.size:  # a loop over nothing counts no places
        return None
    loops = [Variable(f"i{d}", 0, n - 1) for d, n in enumerate(u.shape.dims)]
    index = written_index(root, tuple(map(affine.of, loops)))
    runs = _runs(index, loops) if index is not None else None
    if runs is None or sum(len(r.along) for r in runs) < sum(n > 1 for n in u.shape.dims):
        return None
    if all(r.is_dense for r in runs):
        return _updated(root, runs)
    return _padded(root, runs) if MOST_BESIDE * u.shape.size >= x.shape.size else None


def written_index(scatter: Instruction, index: Index) -> Index | None:
    """Where an element of a scatter's updates goes; None where no place is counted, or may lie
    outside.
    """
    starts = _Starts(scatter)
    written = scattered(scatter, index, starts)
    return written if starts.are_counted else None


def _updated(scatter: Instruction, runs: Sequence[Run]) -> Instruction:
    """A box of the operand with the updates in it; the updates where that is all of it, as of a
    number.
    """
    x, places, _ = scatter.operands
    u = _in_order(scatter, runs)
    combine = scatter["to_apply"]
    assert isinstance(combine, Computation), "a scatter combines by a computation"
    if not replaces(combine):
        taken = tuple(SliceDim(r.least, r.least + r.count) for r in runs)
        u = make(scatter, combine.root.opcode, make(scatter, "slice", x, slice=taken), u)
    if u.shape.dims == x.shape.dims:
        return u
    starts = [splat(places, r.least, Shape.array(places.shape.dtype)) for r in runs]
    return make(scatter, "dynamic-update-slice", x, u, *starts, shape=scatter.shape)


def _padded(scatter: Instruction, runs: Sequence[Run]) -> Instruction | None:
    """The operand combined with the updates and what lies between them."""
    x, kind = scatter.operands[0], scatter.operands[2].shape.dtype
    combine = scatter["to_apply"]
    assert isinstance(combine, Computation), "a scatter combines by a computation"
    dims = zip(runs, x.shape.dims, strict=True)
    padding = tuple(
        PaddingDim(r.least, n - r.least - r.step * (r.count - 1) - 1, r.step - 1) for r, n in dims
    )
    beside = identity(combine.root.opcode, kind)
    if not replaces(combine) and (beside is None or kind.is_complex):
        return None
    u = _in_order(scatter, runs)
    if replaces(combine):
        zero = number_of(scatter, 0, kind)
        true, false = (splat(scatter, t, Shape.array(PRED)) for t in (True, False))
        truth = spread(scatter, true, u.shape)
        whole = Shape.array(PRED, x.shape.dims)
        is_there = make(scatter, "pad", truth, false, shape=whole, padding=padding)
        new = make(scatter, "pad", u, zero, shape=scatter.shape, padding=padding)
        return make(scatter, "select", is_there, new, x, shape=scatter.shape)
    number = splat(scatter, beside, Shape.array(kind))
    new = make(scatter, "pad", u, number, shape=scatter.shape, padding=padding)
    return make(scatter, combine.root.opcode, x, new, shape=scatter.shape)


def _in_order(scatter: Instruction, runs: Sequence[Run]) -> Instruction:
    """The updates with a dimension for each of the operand's, in ascending order of places."""
    u = scatter.operands[2]
    dims = u.shape.dims
    order = [n for run in runs for n in run.along]
    value = make(scatter, "reshape", u, shape=array_of(u, [n for n in dims if n > 1]))
    kept = sorted(order)
    value = transposed(value, tuple(kept.index(n) for n in order))
    value = make(scatter, "reshape", value, shape=array_of(u, [r.count for r in runs]))
    turned = tuple(d for d, run in enumerate(runs) if run.is_backwards)
    if turned:
        value = make(scatter, "reverse", value, shape=value.shape, dimensions=turned)
    return value


def _runs(index: Index, loops: Sequence[Variable]) -> list[Run] | None:
    """The places along all dimensions, where no two are counted by one."""
    runs = [run_of(e, loops) for e in index]
    found = [run for run in runs if run is not None]
    counted = [n for run in found for n in run.along]
    is_apart = len(set(counted)) == len(counted)
    return found if is_apart and len(found) == len(runs) else None


def run_of(e: Expr, loops: Sequence[Variable]) -> Run | None:
    """The places of one dimension, where they are equally far apart."""
    if not e.terms.keys() <= set(loops):
        return None
    along = sorted(
        (n for n, loop in enumerate(loops) if loop in e.terms),
        key=lambda n: -abs(e.terms[loops[n]]),
    )
    steps = [e.terms[loops[n]] for n in along]
    sizes = [loops[n].high + 1 for n in along]
    for size, outer, inner in zip(sizes[1:], steps, steps[1:], strict=False):
        if outer != inner * size:
            return None
    step = steps[-1] if steps else 1
    return Run(e.low, prod(sizes), abs(step), tuple(along), step < 0)


@rewrite("gather", operand="constant")
def gather_at_table_of_even_places(root: Instruction) -> Instruction | None:
    """gather(x, c) => gather(x, n + k iota(0) + ..)  for c that grows evenly along dimensions"""
    x, places = root.operands
    literal = literal_of(places)
    is_short = places.shape.size < _LEAST_COUNTED
    if literal is None or is_short or not places.shape.dtype.is_integral or literal.is_uniform:
        return None
    found = even_steps(literal)
    if found is None or not is_plain(places.shape):
        return None
    first, steps = found
    counted = splat(places, first)
    for d, step in enumerate(steps):
        if step:
            count = make(places, "iota", shape=places.shape, iota_dimension=d)
            term = make(places, "multiply", count, splat(places, step))
            counted = make(places, "add", term, counted)
    return make(root, "gather", x, counted, shape=root.shape, **root.attributes)
