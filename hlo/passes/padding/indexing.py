"""Steps for slices, gathers and scatters at run-time positions.

Positions are clamped to the bounds, as the reference does; what lies beyond a size is zero, but in
dimensions that are taken whole, whose sizes stay.
"""

from __future__ import annotations

from hlo.indexing.queries import kept_dims, written_dims
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.making import make
from hlo.passes.padding.scope import Made, Scope, Sizes, UnsupportedError, ints, static


def dynamic_slice(p: Scope, old: Instruction) -> Made:
    """A part at clamped positions."""
    x, *indices = old.operands
    value, sizes = p.value(x), p.moved(old, 0, p.sizes_of(x))
    for d, size in p.sizes_of(x).items():
        if d not in sizes:
            value = p.zeroed(value, d, size)
    return p.like(old, (value, *map(p.value, indices)), static(old.shape)), sizes


def dynamic_update_slice(p: Scope, old: Instruction) -> Made:
    """Beyond an update's size, what was there is written again."""
    x, update, *indices = old.operands
    value, new, at = p.value(x), p.value(update), [p.value(i) for i in indices]
    sizes = p.sizes_of(update)
    if sizes:
        dims = update.shape.dims
        there = make(old, "dynamic-slice", value, *at, dynamic_slice_sizes=dims)
        new = make(old, "select", p.valid(new, sizes), new, there)
    return p.like(old, (value, new, *at), static(old.shape)), p.sizes_of(x)


def gather(p: Scope, old: Instruction) -> Made:
    """Slices at clamped positions, one for each index vector."""
    x, indices = old.operands
    taken, offsets, kept = ints(old, "slice_sizes"), ints(old, "offset_dims"), kept_dims(old, 0)
    value, sizes = p.value(x), _batch_sizes(p, old, indices, offsets)
    for d, size in p.sizes_of(x).items():
        if taken[d] != x.shape.dims[d]:
            value = p.zeroed(value, d, size)
        elif (place := kept[d]) in offsets:
            sizes[place] = size
        else:
            p.agreed(p.number(old, taken[d]), size)
    return p.like(old, (value, p.value(indices)), static(old.shape)), sizes


def _batch_sizes(
    p: Scope, old: Instruction, indices: Instruction, windows: tuple[int, ...]
) -> Sizes:
    """Sizes of the indices as those of an array whose other dimensions are windows."""
    given, vector = p.sizes_of(indices), old.attributes["index_vector_dim"]
    if vector in given:
        raise UnsupportedError
    batch = [d for d in range(indices.shape.rank) if d != vector]
    rank = len(batch) + len(windows)
    batch_dims = [d for d in range(rank) if d not in windows]
    return {k: given[d] for k, d in zip(batch_dims, batch, strict=True) if d in given}


def scatter(p: Scope, old: Instruction) -> Made:
    """What lies beyond the sizes of the indices is sent to where no array reaches, and skipped."""
    count = len(old.operands) // 2
    inputs, indices, updates = old.operands[:count], old.operands[count], old.operands[count + 1 :]
    windows, x, update = ints(old, "update_window_dims"), inputs[0].shape, updates[0].shape
    sizes = p.common(inputs, range(x.rank), x.dims)
    cut = p.common(updates, range(update.rank), update.dims)
    for d, place in enumerate(written_dims(old)):
        if place is None or place not in windows:
            continue
        if place not in cut and (d not in sizes or update.dims[place] == 1):
            continue  # elements beyond the size may be written: they mean nothing
        if update.dims[place] != x.dims[d]:
            raise UnsupportedError
        p.agreed(sizes.get(d, p.number(old, x.dims[d])), cut.get(place, p.number(old, x.dims[d])))
    batch = _batch_sizes(p, old, indices, windows)
    for place in {*batch, *(d for d in cut if d not in windows)}:
        whole = p.number(old, update.dims[place])
        p.agreed(batch.get(place, whole), cut.get(place, whole))
    operands = (*map(p.value, inputs), _skipped(p, old, indices, x), *map(p.value, updates))
    found = {"indices_are_sorted": False, "unique_indices": False}
    made = p.like(old, operands, static(old.shape), **found)
    return (made, sizes) if count == 1 else (p.sized_parts(made, sizes), {})


def _skipped(p: Scope, old: Instruction, indices: Instruction, x: Shape) -> Instruction:
    """The indices, those beyond their own sizes out of x's bounds."""
    value, given = p.value(indices), p.sizes_of(indices)
    if not given:
        return value
    mapped, (least, greatest) = (
        ints(old, "scatter_dims_to_operand_dims"),
        value.shape.dtype.int_range,
    )
    if not mapped or (least == 0 and greatest < max(x.dims[d] for d in mapped)):
        raise UnsupportedError
    far = p.constant(old, greatest if least == 0 else -1, value.shape.dtype)
    spread = make(old, "broadcast", far, shape=static(value.shape), dimensions=())
    return make(old, "select", p.valid(value, given), value, spread)
