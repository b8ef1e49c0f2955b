"""Counted components of indices: dimensions along which updates stay where they are.

`x.at[arange(n), i].add(u)` and `x.at[i, arange(n)].add(u)` say in their indices what batching
dimensions say: that an update meets no other one's element along such a dimension.
"""

from __future__ import annotations

from hlo.analysis.counted_places import place_of
from hlo.attributes.slices import SliceDim
from hlo.indexing import affine
from hlo.indexing.affine import Variable
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints
from hlo.ops.indexing import ScatterAttributes
from hlo.ops.making import make
from hlo.passes.patterns.matching import is_plain
from hlo.passes.rewriting import rewrite


@rewrite("scatter")
def scatter_at_counted_component(root: Instruction) -> Instruction | None:
    """scatter(x, [.., iota(p), ..], u) => scatter(x, [.., ..], u)  with dimension p as a batch,
    where p counts all of the dimension of x for which the iota stands
    """
    indices = root.operands[len(root.operands) // 2]
    attrs: ScatterAttributes[object] = ScatterAttributes.of(root.attributes)
    mapped, vector = attrs.scatter_dims_to_operand_dims, attrs.index_vector_dim
    if len(mapped) < 2 or vector != indices.shape.rank - 1 or not is_plain(indices.shape):
        return None
    dims = root.operands[0].shape.dims
    for component, d in enumerate(mapped):
        if d not in attrs.inserted_window_dims:
            continue
        p = _counting(indices, component)
        if p is None or p in attrs.scatter_indices_batching_dims:
            continue
        if indices.shape.dims[p] == dims[d]:
            return _batched(root, component, p)
    return None


def _counting(indices: Instruction, component: int) -> int | None:
    """The dimension of the indices whose places a component of theirs is."""
    places = indices.shape.dims[:-1]
    loops = [Variable(f"i{d}", 0, n - 1) for d, n in enumerate(places)]
    found = place_of(indices, (*map(affine.of, loops), affine.number(component)))
    if found is None or not found.is_open:
        return None
    return next((d for d, loop in enumerate(loops) if found.index == affine.of(loop)), None)


def _batched(scatter: Instruction, component: int, p: int) -> Instruction:
    """The scatter without a component, whose dimension is a batch along p."""
    count = len(scatter.operands) // 2
    indices = scatter.operands[count]
    attrs: ScatterAttributes[object] = ScatterAttributes.of(scatter.attributes)
    d = attrs.scatter_dims_to_operand_dims[component]
    batches = dict(zip(attrs.input_batching_dims, attrs.scatter_indices_batching_dims, strict=True))
    batches[d] = p
    changed: dict[str, Ints] = {
        "inserted_window_dims": _without(attrs.inserted_window_dims, d),
        "scatter_dims_to_operand_dims": _without(attrs.scatter_dims_to_operand_dims, d),
        "input_batching_dims": tuple(sorted(batches)),
        "scatter_indices_batching_dims": tuple(batches[k] for k in sorted(batches)),
    }
    operands = list(scatter.operands)
    operands[count] = _other_components(indices, component)
    return make(
        scatter, "scatter", *operands, shape=scatter.shape, **{**scatter.attributes, **changed}
    )


def _other_components(indices: Instruction, component: int) -> Instruction:
    """The indices without a component."""
    *places, n = indices.shape.dims
    parts = [
        make(
            indices, "slice", indices,
            slice=(*(SliceDim(0, k) for k in places), SliceDim(low, high)),
        )
        for low, high in ((0, component), (component + 1, n))
        if low < high
    ]  # fmt: skip
    if len(parts) == 1:
        return parts[0]
    return make(
        indices, "concatenate", *parts,
        shape=indices.shape.with_dims((*places, n - 1)), dimensions=(len(places),),
    )  # fmt: skip


def _without(dims: Ints, d: int) -> Ints:
    return tuple(k for k in dims if k != d)
