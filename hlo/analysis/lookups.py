"""Lookups: gathers and scatters whose indices count one dimension of a table.

    gather(table, indices) --lookup_of--> which dimension of the result is one of the indices',
                                          which the table's as a whole, and which is looked up
    scatter(table, indices, updates) --lookup_of--> the same of the updates' dimensions

So biases are read by distance (table[bucket(j - i), head]), products of a query with all distances
by the distance to each key, and so gradients are added up in such tables. Every other dimension is
the table's own or goes along with one, whatever the indices say: it can be cut, or moved.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.analysis.fusibility import is_zero
from hlo.analysis.reducers import reducer_of
from hlo.indexing.queries import Step, Steps, steps
from hlo.ir.instruction import Attributes, Instruction
from hlo.ir.shape import Shape
from hlo.ops.indexing import GatherAttributes, ScatterAttributes

Dims = tuple[int, ...]


class Lookup(Struct, frozen=True):
    """Of each dimension of the elements that are looked up (a gather's result, a scatter's
    updates), the dimension of the indices that it is, and the table's that it is as a whole; None:
    there is none. counted: the table's dimension in which the indices count.
    """

    of_indices: tuple[int | None, ...]
    of_table: tuple[int | None, ...]
    counted: int

    def indices_steps(self, indices: Shape) -> Steps:
        """What moves an index of the indices."""
        return _steps(self.of_indices, indices.rank)

    def table_steps(self, table: Shape) -> Steps:
        """What moves an index of the table, the dimension that is looked up aside."""
        return _steps(self.of_table, table.rank)


def lookup_of(instruction: Instruction) -> Lookup | None:
    """None where it is no lookup in one dimension, of single places."""
    if instruction.opcode == "gather":
        said = GatherAttributes.of(instruction.attributes)
        table, indices = (operand.shape for operand in instruction.operands)
        return _lookup(
            _Form(
                instruction.shape, table, indices, said.offset_dims, said.collapsed_slice_dims,
                said.start_index_map, said.operand_batching_dims,
                said.start_indices_batching_dims, said.index_vector_dim,
            ),
            said.slice_sizes,
        )  # fmt: skip
    if instruction.opcode == "scatter" and len(instruction.operands) == 3:
        updated: ScatterAttributes[object] = ScatterAttributes.of(instruction.attributes)
        table, indices, updates = (operand.shape for operand in instruction.operands)
        form = _Form(
            updates, table, indices, updated.update_window_dims, updated.inserted_window_dims,
            updated.scatter_dims_to_operand_dims, updated.input_batching_dims,
            updated.scatter_indices_batching_dims, updated.index_vector_dim,
        )  # fmt: skip
        sizes = [1] * table.rank
        for place, d in zip(form.window, form.kept, strict=True):
            sizes[d] = updates.dims[place]
        return _lookup(form, tuple(sizes))
    return None


def walks(instruction: Instruction, number: int) -> Steps | None:
    """What moves an index of an operand (queries.steps), also of a gather's indices and of the
    table that they count in, whose place in that dimension depends on no index.
    """
    found = lookup_of(instruction) if instruction.opcode == "gather" else None
    if found is None:
        return steps(instruction, number)
    shape = instruction.operands[number].shape
    return found.indices_steps(shape) if number else found.table_steps(shape)


def kept_in(instruction: Instruction, number: int) -> tuple[int | None, ...]:
    """The dimension of the result that each of an operand is as a whole, if it is one."""
    found = walks(instruction, number)
    if found is None:
        return (None,) * instruction.operands[number].shape.rank
    return tuple(s.dims[0] if s.is_whole else None for s in found)


def cut_attributes(gather: Instruction, attributes: Attributes, table: Shape) -> Attributes:
    """A lookup's attributes for a part of its table: what it takes as a whole is that part's."""
    found = lookup_of(gather)
    assert found is not None, "a lookup"
    said = GatherAttributes.of(attributes)
    sizes = list(said.slice_sizes)
    for d, n in enumerate(table.dims):
        if d != found.counted and d not in said.operand_batching_dims:
            sizes[d] = n
    return {**attributes, "slice_sizes": tuple(sizes)}


def is_sum_from_zero(scatter: Instruction) -> bool:
    """Whether a scatter adds its updates up from zero, of any type: what comes in parts, one after
    the other, is rounded as often and in the same order as all at once.
    """
    start = scatter.operands[0]
    return is_zero(start) and reducer_of(scatter).opcodes == ("add",)


class _Form(Struct, frozen=True):
    """The attributes of a gather or a scatter, by what they say."""

    elements: Shape
    table: Shape
    indices: Shape
    window: Dims
    dropped: Dims
    counted: Dims
    batching: Dims
    indices_batching: Dims
    vector: int

    @property
    def kept(self) -> Dims:
        """The table's dimensions that windows have."""
        others = (*self.dropped, *self.batching)
        return tuple(d for d in range(self.table.rank) if d not in others)


def _lookup(form: _Form, sizes: Dims) -> Lookup | None:
    table, indices, rank = form.table.dims, form.indices.dims, form.elements.rank
    if len(form.counted) != 1 or (form.vector < len(indices) and indices[form.vector] != 1):
        return None
    (counted,) = form.counted
    whole = [d for d in range(len(table)) if d != counted and d not in form.batching]
    if sizes[counted] != 1 or any(sizes[d] != table[d] for d in whole):
        return None
    of_table: list[int | None] = [None] * rank
    of_indices: list[int | None] = [None] * rank
    for place, d in zip(form.window, form.kept, strict=True):
        of_table[place] = None if d == counted else d
    places = [d for d in range(rank) if d not in form.window]
    batch = [e for e in range(len(indices)) if e != form.vector]
    along = dict(zip(form.indices_batching, form.batching, strict=True))
    for place, e in zip(places, batch, strict=True):
        of_indices[place] = e
        of_table[place] = along.get(e)
    return Lookup(tuple(of_indices), tuple(of_table), counted)


def _steps(of: tuple[int | None, ...], rank: int) -> Steps:
    places = {d: place for place, d in enumerate(of) if d is not None}
    return tuple(
        Step((places[d],), is_whole=True) if d in places else Step(()) for d in range(rank)
    )
