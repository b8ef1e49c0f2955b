"""Steps for what moves elements or works on each alone: sizes go with their dimensions."""

from __future__ import annotations

from hlo.ir.instruction import Instruction
from hlo.ops.making import make
from hlo.ops.movement import PadAttributes, SliceAttributes
from hlo.passes.padding.scope import (
    Made,
    Scope,
    Sizes,
    UnsupportedError,
    copied,
    ints,
)


def elementwise(p: Scope, old: Instruction) -> Made:
    """Scalars meet any sizes; arrays have the same ones."""
    arrays = [o for o in old.operands if o.shape.rank == old.shape.rank]
    return p.again(old), p.common(arrays, range(old.shape.rank), old.shape.dims)


def made_whole(p: Scope, old: Instruction) -> Made:
    """Arrays that are made at their bounds."""
    return p.again(old), {}


def bits(p: Scope, old: Instruction) -> Made:
    """Bits under another type: a dimension of parts of elements is whole."""
    (x,) = old.operands
    given, rank = p.sizes_of(x), min(x.shape.rank, old.shape.rank)
    if any(d >= rank or x.shape.dims[d] != old.shape.dims[d] for d in given):
        raise UnsupportedError
    return p.again(old), given


def placed(p: Scope, old: Instruction) -> Made:
    """broadcast, transpose: sizes move with their dimensions, new ones are whole."""
    return p.again(old), p.moved(old, 0, p.sizes_of(old.operands[0]))


def same(p: Scope, old: Instruction) -> Made:
    """The value of the operand, which may be a tuple."""
    value = p.tree(old.operands[0])
    return value, p.sizes.get(value, {}) if isinstance(value, Instruction) else {}


def annotated(p: Scope, old: Instruction) -> Made:
    """Custom calls that give their operand."""
    if len(old.operands) != 1 or old.operands[0].shape.dims != old.shape.dims:
        raise UnsupportedError
    return same(p, old)


def reverse(p: Scope, old: Instruction) -> Made:
    """What is valid comes last then, and is moved to the front."""
    given, made = p.sizes_of(old.operands[0]), p.again(old)
    for d in ints(old, "dimensions"):
        if d in given:
            bound = old.shape.dims[d]
            first = make(old, "subtract", p.number(old, bound), given[d])
            twice = make(old, "concatenate", made, made, dimensions=(d,))
            starts = [first if k == d else p.number(old, 0) for k in range(old.shape.rank)]
            dims = old.shape.dims
            made = make(old, "dynamic-slice", twice, *starts, dynamic_slice_sizes=dims)
    return made, given


def get_size(p: Scope, old: Instruction) -> Made:
    """The size, as a value."""
    (d,) = ints(old, "dimensions")[:1]
    return copied(p.size(old.operands[0], d)), {}


def set_size(p: Scope, old: Instruction) -> Made:
    """Another size; what a larger one uncovers is zero."""
    (d,) = ints(old, "dimensions")[:1]
    x, size = p.value(old.operands[0]), p.value(old.operands[1])
    sizes = dict(p.sizes_of(old.operands[0]))
    before = sizes.pop(d, None)
    value = copied(x) if before is None else p.zeroed(x, d, before)
    if old.shape.dynamic[d]:
        sizes[d] = size
        bounds = p.number(old, 0), p.number(old, old.shape.dims[d])
        p.agreed(make(old, "clamp", bounds[0], size, bounds[1]), size)
    return value, sizes


def pad(p: Scope, old: Instruction) -> Made:
    """The upper edge begins where the operand, with its holes, ends."""
    edges = PadAttributes.of(old.attributes).padding
    made, sizes = p.again(old), Sizes()
    for d, size in p.sizes_of(old.operands[0]).items():
        edge = edges[d]
        end = make(size, "add", spread_over(p, size, edge.interior + 1), p.number(size, edge.low))
        made = p.masked(made, d, end, p.value(old.operands[1]))
        found = make(size, "add", end, p.number(size, edge.high))
        sizes[d] = make(size, "maximum", found, p.number(size, 0))
    return made, sizes


def spread_over(p: Scope, size: Instruction, step: int) -> Instruction:
    """The positions that elements take with step - 1 holes between neighbours."""
    if step == 1:
        return size
    wide = make(size, "multiply", size, p.number(size, step))
    reach = make(size, "subtract", wide, p.number(size, step - 1))
    return make(size, "maximum", reach, p.number(size, 0))


def part(p: Scope, old: Instruction) -> Made:
    """slice."""
    parts = SliceAttributes.of(old.attributes).slice
    given = p.sizes_of(old.operands[0])
    sizes = p.moved(old, 0, given)
    for d, size in given.items():
        if d not in sizes:  # within the valid part, as the program assumes
            limit = p.number(size, parts[d].limit)
            p.agreed(make(size, "minimum", size, limit), limit)
    return p.again(old), sizes


def concatenate(p: Scope, old: Instruction) -> Made:
    """Each operand is written where the one before it ends."""
    (along,) = ints(old, "dimensions")
    rest = [d for d in range(old.shape.rank) if d != along]
    sizes = p.common(old.operands, rest, old.shape.dims)
    if not any(along in p.sizes_of(o) for o in old.operands):
        return p.again(old), sizes
    made, at = p.again(old), p.number(old, 0)
    for operand in old.operands:
        starts = [at if d == along else p.number(old, 0) for d in range(old.shape.rank)]
        made = make(old, "dynamic-update-slice", made, p.value(operand), *starts)
        at = make(old, "add", at, p.size(operand, along))
    return made, {**sizes, along: at}


def pad_to_static(p: Scope, old: Instruction) -> Made:
    """The array with zeros beyond its sizes, and all sizes."""
    (x,) = old.operands
    value = p.value(x)
    for d, size in p.sizes_of(x).items():
        value = p.zeroed(value, d, size)
    return (value, *(copied(p.size(x, d)) for d in range(x.shape.rank))), {}


def slice_to_dynamic(p: Scope, old: Instruction) -> Made:
    """The array under the sizes that scalars give, within its bounds."""
    x, *sizes = old.operands
    if x in p.values or len(sizes) != x.shape.rank:
        raise UnsupportedError
    found: Sizes = {}
    for d, size in enumerate(sizes):
        limits = p.number(old, 0), p.number(old, x.shape.dims[d])
        found[d] = make(old, "clamp", limits[0], p.value(size), limits[1])
    return copied(x), found


def best(p: Scope, old: Instruction) -> Made:
    """topk of rows that are whole."""
    (x,) = old.operands
    sizes = p.sizes_of(x)
    if x.shape.rank - 1 in sizes:
        raise UnsupportedError
    return p.sized_parts(p.again(old), sizes), {}


def rows(p: Scope, old: Instruction) -> Made:
    """Ops on matrices or rows that lie beside one another: cholesky, triangular-solve, fft."""
    length = len(ints(old, "fft_length")) if old.opcode == "fft" else 2
    batch = range(old.shape.rank - length)
    for operand in old.operands:
        if any(d not in batch for d in p.sizes_of(operand)):
            raise UnsupportedError
    return p.again(old), p.common(old.operands, batch, old.shape.dims)
