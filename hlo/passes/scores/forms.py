"""Score forms: a region of scores made anew with its dimensions in one order.

    Region, which dimension of each member is which axis, the order --Ordering.apply--> its members

A value's form is its axes in the order, then what is no axis. Moves within the region vanish, small
factors are moved instead, results are moved back. A lookup's table has its axes in order, too, and
what is looked up last.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence

from hlo.analysis.fusibility import moves_elements
from hlo.analysis.lookups import is_sum_from_zero, kept_in, lookup_of, walks
from hlo.analysis.reducers import reducer_of
from hlo.analysis.scores.region import Region
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32, DType
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.contraction import DotAttributes
from hlo.ops.making import make, number_of, spread
from hlo.ops.movement import IotaAttributes
from hlo.passes.loop_making import reducer

Dims = tuple[int, ...]
Axes = tuple[int | None, ...]  # of each dimension, which of the seed's it is; None: none


def operand_axes_of(one: Instruction, axes: Axes) -> Iterator[tuple[Instruction, Axes]]:
    """The operands, and which of the seed's dimensions theirs are by the user's."""
    for number, operand in enumerate(one.operands):
        walked = walks(one, number)
        if operand.shape.dims and walked is not None:
            yield operand, tuple(axes[s.dims[0]] if s.is_whole else None for s in walked)


class _Unfit(Exception):
    """A member has no form in the order."""


class Ordering:
    """Makes a region anew."""

    def __init__(
        self,
        module: Module,
        computation: Computation,
        region: Region,
        axes: dict[Instruction, Axes],
        order: list[int],
    ) -> None:
        self._module, self._computation, self._region = module, computation, region
        self._axes, self._order = axes, order
        self._made: dict[Instruction, Instruction] = {}
        self._moved: dict[tuple[Instruction, Dims], Instruction] = {}

    def apply(self, seed: Instruction) -> bool:
        """False, and nothing done, where a member does not fit."""
        computation = self._computation
        before = set(computation.instructions)
        self._sizes = {d: seed.shape.dims[d] for d in self._order}
        members = [i for i in post_order(computation) if i in self._region.members]
        ends = list(self._region.outputs())
        try:
            for member in members:
                self._made[member] = self._member(member)
            summed = {one: end for end in ends for one in self._sums_of(end)}
            read = [end for end in ends if self._is_read(end, summed)]
            sums = {one: self._summed_up(one, end) for one, end in summed.items()}
            finals = {end: self._as_it_was(end) for end in read}
        except _Unfit:
            for one in reversed([i for i in computation.instructions if i not in before]):
                computation.remove(one)
            return False
        for scatter, made in sums.items():
            computation.replace_uses(scatter, made)
            computation.remove(scatter)
        for end, final in finals.items():
            for user in tuple(end.users):
                if user not in self._region.members:
                    given = [final if o is end else o for o in user.operands]
                    computation.set_operands(user, given)
            if computation.root is end:
                computation.root = final
        for member in reversed(members):
            if not member.users and member is not computation.root:
                computation.remove(member)
        computation.reorder(post_order(computation))
        return True

    def _sums_of(self, end: Instruction) -> list[Instruction]:
        """The scatters outside that add scores up in a table, each element by itself."""
        return [
            user
            for user in end.users
            if user.opcode == "scatter"
            and user not in self._region.members
            and self._region.members[end].has_both
            and lookup_of(user) is not None
            and is_sum_from_zero(user)
            and user.operands[1] is not end
            and "control-predecessors" not in user.attributes
        ]

    def _is_read(self, end: Instruction, sums: Container[Instruction]) -> bool:
        """Whether others read it outside, or it is a result."""
        is_root = end is self._computation.root
        return is_root or any(u not in self._region.members and u not in sums for u in end.users)

    def _form(self, axes: Axes) -> list[int]:
        return [a for a in self._order if a in axes]

    def _extra(self, value: Instruction) -> list[int]:
        """The long dimensions of a member that are no axes."""
        axes = self._axes[value]
        return [d for d, n in enumerate(value.shape.dims) if n != 1 and axes[d] is None]

    def _member(self, member: Instruction) -> Instruction:
        if member.opcode == "dot":
            return self._dot(member)
        if member.opcode == "reduce":
            return self._reduce(member)
        extra = self._extra(member)
        _need(len(extra) <= 1)
        form = self._form(self._axes[member])
        sizes = [*(self._sizes[a] for a in form), *(member.shape.dims[d] for d in extra)]
        shape = member.shape.with_dims(sizes)
        if member.opcode == "iota":
            return self._iota(member, shape, form)
        if member.opcode == "gather":
            return self._looked_up(member, form)
        if self._is_regrouped(member):
            return self._placed(member, self._axes[member], extra)
        operands = [self._operand(member, n) for n in range(len(member.operands))]
        if not moves_elements(member):
            return self._computation.new(
                member.opcode, shape, operands, member.attributes, like=member, name=member.name
            )
        (operand,), (axes,) = operands, self._operand_axes(member)
        if operand.shape.dims == shape.dims:
            return operand
        places = [form.index(a) for a in self._form(axes)]
        _need(len(places) == operand.shape.rank)
        return make(member, "broadcast", operand, shape=shape, dimensions=tuple(places))

    def _is_regrouped(self, member: Instruction) -> bool:
        """Whether it regroups dimensions of what is outside, and so is outside itself."""
        if not moves_elements(member) or member.operands[0] in self._made:
            return False
        (axes,), dims = self._operand_axes(member), member.operands[0].shape.dims
        others = sum(n != 1 and a is None for a, n in zip(axes, dims, strict=True))
        return others > len(self._extra(member))

    def _iota(self, iota: Instruction, shape: Shape, form: list[int]) -> Instruction:
        axis = self._axes[iota][IotaAttributes.of(iota.attributes).iota_dimension]
        if axis is None:
            _need(len(form) == shape.rank)
            return spread(iota, number_of(iota, 0, shape.dtype), shape)
        return make(iota, "iota", shape=shape, iota_dimension=form.index(axis))

    def _looked_up(self, gather: Instruction, form: list[int]) -> Instruction:
        """A lookup in a table whose axes come in order, and what is looked up last: those that the
        indices have too are a batch, the others are taken as a whole.
        """
        found = lookup_of(gather)
        assert found is not None, "lookups alone are members"
        table_axes, indices_axes = self._operand_axes(gather)
        table = self._placed(gather.operands[0], table_axes, [found.counted])
        indices = self._operand(gather, 1)
        have, counted = self._form(table_axes), self._form(indices_axes)
        _need(table.shape.rank == len(have) + 1 and indices.shape.rank == len(counted))
        _need({*have, *counted} == set(form))
        shared = [a for a in have if a in counted]
        sizes = [1 if a in shared else self._sizes[a] for a in have]
        return make(
            gather, "gather", table, indices, slice_sizes=(*sizes, 1),
            offset_dims=tuple(n for n, a in enumerate(form) if a not in counted),
            collapsed_slice_dims=(len(have),), start_index_map=(len(have),),
            operand_batching_dims=tuple(have.index(a) for a in shared),
            start_indices_batching_dims=tuple(counted.index(a) for a in shared),
            index_vector_dim=len(counted),
        )  # fmt: skip

    def _summed_up(self, scatter: Instruction, end: Instruction) -> Instruction:
        """A sum in a table, as a lookup is: what is added to one element is the same in the same
        order, for axes over which it is summed stay in theirs.
        """
        found, form = lookup_of(scatter), self._form(self._axes[end])
        assert found is not None, "a lookup"
        start, indices, _ = scatter.operands
        axes: list[list[int | None]] = [[None] * start.shape.rank, [None] * indices.shape.rank]
        for axis, *places in zip(self._axes[end], found.of_table, found.of_indices, strict=True):
            for at, place in zip(axes, places, strict=True):
                if place is not None:
                    at[place] = axis
        have, counted = (self._form(tuple(at)) for at in axes)
        summed_over = [a for a in self._axes[end] if a is not None and a not in have]
        _need(summed_over == [a for a in form if a not in have])  # in the same order
        others = [d for d, n in enumerate(start.shape.dims) if n != 1 and axes[0][d] is None]
        _need(set(others) <= {found.counted} and {*have, *counted} == set(form))
        is_member = indices in self._made and self._axes[indices] == tuple(axes[1])
        looked_up = self._made[indices] if is_member else self._outside(indices, axes[1], [])
        _need(looked_up.shape.rank == len(counted))
        sizes = [*(self._sizes[a] for a in have), start.shape.dims[found.counted]]
        table = spread(scatter, start.operands[0], start.shape.with_dims(sizes))
        shared = [a for a in have if a in counted]
        summed = make(
            scatter, "scatter", table, looked_up, self._made[end], to_apply=scatter["to_apply"],
            update_window_dims=tuple(n for n, a in enumerate(form) if a not in counted),
            inserted_window_dims=(len(have),), scatter_dims_to_operand_dims=(len(have),),
            input_batching_dims=tuple(have.index(a) for a in shared),
            scatter_indices_batching_dims=tuple(counted.index(a) for a in shared),
            index_vector_dim=len(counted),
        )  # fmt: skip
        names: list[object] = [*have, *(("other", d) for d in others)]
        long = [d for d, n in enumerate(start.shape.dims) if n != 1]
        if not others:
            summed = make(scatter, "reshape", summed, shape=summed.shape.with_dims(sizes[:-1]))
        wanted = [("other", d) if axes[0][d] is None else axes[0][d] for d in long]
        turned = tuple(names.index(name) for name in wanted)
        if turned != tuple(range(len(turned))):
            summed = make(scatter, "transpose", summed, dimensions=turned)
        if summed.shape.dims != scatter.shape.dims:
            shape = scatter.shape.with_dims(scatter.shape.dims)
            summed = make(scatter, "reshape", summed, shape=shape)
        return summed

    def _operand_axes(self, member: Instruction) -> list[Axes]:
        """Those of each operand's dimensions."""
        found: list[Axes] = []
        for number, operand in enumerate(member.operands):
            walked = walks(member, number)
            if operand in self._axes:
                found.append(self._axes[operand])
            elif not operand.shape.dims:
                found.append(())
            else:
                _need(walked is not None)
                axes = self._axes[member]
                found.append(tuple(axes[s.dims[0]] if s.is_whole else None for s in walked or ()))
        return found

    def _operand(self, member: Instruction, number: int) -> Instruction:
        """An operand in its form: what is outside of the region is moved."""
        operand = member.operands[number]
        if operand in self._made:
            return self._made[operand]
        axes = self._operand_axes(member)[number]
        extra = [d for d, n in enumerate(operand.shape.dims) if n != 1 and axes[d] is None]
        _need(len(extra) <= 1)
        return self._placed(operand, axes, extra)

    def _placed(self, value: Instruction, axes: Axes, others: Sequence[int]) -> Instruction:
        """A value with its axes in order, then other dimensions as they are listed."""
        if value in self._made:
            return self._made[value]
        return self._outside(value, axes, others)

    def _outside(
        self, value: Instruction, axes: Sequence[int | None], others: Sequence[int]
    ) -> Instruction:
        """A value as it was made for others, moved."""
        long = [axes.index(a) for a in self._order if a in axes]
        dims = (*long, *others)
        if (value, dims) not in self._moved:
            self._moved[value, dims] = _moved(value, dims)
        return self._moved[value, dims]

    def _reduce(self, member: Instruction) -> Instruction:
        value, init = member.operands
        _need(value in self._made and not self._extra(value))
        have, form = (self._form(self._axes[v]) for v in (value, member))
        gone = tuple(n for n, a in enumerate(have) if a not in form)
        made = self._made[value]
        if gone:
            return make(member, "reduce", made, init, dimensions=gone, to_apply=member["to_apply"])
        opcodes = reducer_of(member).opcodes
        _need(len(opcodes) == 1)
        return make(member, opcodes[0], made, spread(member, init, made.shape))

    def _dot(self, dot: Instruction) -> Instruction:
        if self._region.members[dot].has_both:
            return self._scores(dot)
        dims = DotAttributes.of(dot.attributes).dims
        sides = [(dims.lhs_batch, dims.lhs_contracting), (dims.rhs_batch, dims.rhs_contracting)]
        members = self._region.members
        wide = [n for n, o in enumerate(dot.operands) if o in members and members[o].has_both]
        _need(len(wide) == 1)
        large, small = wide[0], 1 - wide[0]
        weights, factor = dot.operands[large], dot.operands[small]
        of_weights = self._axes[weights]
        axes: list[int | None] = [None] * factor.shape.rank
        for a, b in zip(sides[large][0], sides[small][0], strict=True):
            axes[b] = of_weights[a]
        for a, b in zip(sides[large][1], sides[small][1], strict=True):
            axes[b] = of_weights[a]
        extra = [d for d, n in enumerate(factor.shape.dims) if n != 1 and axes[d] is None]
        _need(len(extra) == 1)
        have = self._form(tuple(axes))
        summed = {of_weights[a] for a in sides[large][1]} - {None}
        placed = self._placed(factor, tuple(axes), extra)
        return self._end(dot, self._made[weights], placed, have, summed)

    def _end(
        self,
        dot: Instruction,
        weights: Instruction,
        factor: Instruction,
        have: list[int],
        summed: set[int | None],
    ) -> Instruction:
        """A sum over columns; or one over rows, in which groups stay apart until it is made."""
        *_, row, column = self._order
        along = column if summed == {column} else row
        batch = [a for a in have if a != along]
        _need(along in have and batch == self._order[: len(batch)])
        _need(along == column or (row in summed and column not in summed))
        _need(along == column or batch == self._order[:-2])
        groups = tuple(n for n, a in enumerate(batch) if a in summed)
        dtype = dot.shape.dtype
        is_wide = bool(groups) and dtype.is_float and dtype.bits < F32.bits
        shared = tuple(range(len(batch)))
        product = make(
            dot, "dot", weights, factor, lhs_batch_dims=shared, rhs_batch_dims=shared,
            lhs_contracting_dims=(self._order.index(along),), rhs_contracting_dims=(len(batch),),
            shape=self._product_shape(weights, factor, shared, along, F32 if is_wide else dtype),
        )  # fmt: skip
        if groups:
            kind = Shape.array(product.shape.dtype, ())
            total = reducer(self._module, dot, "add", kind)
            zero = number_of(dot, 0, kind.dtype)
            product = make(dot, "reduce", product, zero, dimensions=groups, to_apply=total)
        if product.shape.dtype is not dtype:
            product = make(dot, "convert", product, shape=product.shape.with_dtype(dtype))
        return product

    def _product_shape(
        self,
        weights: Instruction,
        factor: Instruction,
        shared: tuple[int, ...],
        along: int,
        dtype: DType,
    ) -> Shape:
        place = self._order.index(along)
        rest = [n for d, n in enumerate(weights.shape.dims) if d not in shared and d != place]
        dims = (*weights.shape.dims[: len(shared)], *rest, *factor.shape.dims[len(shared) + 1 :])
        return Shape.array(dtype, dims)

    def _scores(self, dot: Instruction) -> Instruction:
        """A product that has rows and columns: the factor of rows is the left one."""
        dims = DotAttributes.of(dot.attributes).dims
        depth = [dims.lhs_contracting, dims.rhs_contracting]
        row, column = self._order[-2:]
        axes = [self._factor_axes(dot, n) for n in range(2)]
        left = 0 if row in axes[0] else 1
        _need(row in axes[left] and column in axes[1 - left] and column not in axes[left])
        placed: list[Instruction] = []
        forms: list[list[int]] = []
        for side in (left, 1 - left):
            operand = dot.operands[side]
            long = [d for d in depth[side] if operand.shape.dims[d] != 1]
            placed.append(self._placed(operand, axes[side], long))
            forms.append(self._form(axes[side]))
            _need(placed[-1].shape.rank == len(forms[-1]) + len(long))
        batch = [a for a in forms[0] if a in forms[1]]
        _need([*batch, *(a for a in forms[0] if a not in batch), column] == self._order)
        _need(forms[1] == [*batch, column])
        shared, count = tuple(range(len(batch))), placed[0].shape.rank - len(forms[0])
        sizes = [self._sizes[a] for a in self._order]
        return make(
            dot, "dot", *placed, lhs_batch_dims=shared, rhs_batch_dims=shared,
            lhs_contracting_dims=tuple(range(len(forms[0]), len(forms[0]) + count)),
            rhs_contracting_dims=tuple(range(len(forms[1]), len(forms[1]) + count)),
            shape=Shape.array(dot.shape.dtype, sizes),
        )  # fmt: skip

    def _factor_axes(self, dot: Instruction, number: int) -> Axes:
        operand = dot.operands[number]
        if operand in self._axes:
            return self._axes[operand]
        kept = kept_in(dot, number)
        return tuple(None if d is None else self._axes[dot][d] for d in kept)

    def _as_it_was(self, end: Instruction) -> Instruction:
        """A member's value in the dimensions that it had."""
        axes, value = self._axes[end], self._made[end]
        extra = self._extra(end)
        names: list[object] = [*self._form(axes), *(("other", d) for d in extra)]
        _need(value.shape.rank == len(names) and len(extra) <= 1)
        long = [d for d, n in enumerate(end.shape.dims) if n != 1]
        wanted = [axes[d] if axes[d] is not None else ("other", d) for d in long]
        turned = tuple(names.index(name) for name in wanted)
        if turned != tuple(range(len(turned))):
            _need(not self._region.members[end].has_both)  # others read large values as they lie
            value = make(end, "transpose", value, dimensions=turned)
        if value.shape.dims != end.shape.dims:
            value = make(end, "reshape", value, shape=end.shape.with_dims(end.shape.dims))
        return value


def _need(holds: object) -> None:
    if not holds:
        raise _Unfit


def _moved(value: Instruction, dims: Dims) -> Instruction:
    """reshape(transpose(value)): these dimensions in this order; all others have one element."""
    others = [d for d in range(value.shape.rank) if d not in dims]
    _need(all(value.shape.dims[d] == 1 for d in others))
    sizes = [value.shape.dims[d] for d in dims]
    if value.opcode == "broadcast" and value.operands[0].shape.is_scalar:
        return spread(value, value.operands[0], value.shape.with_dims(sizes))
    if list(dims) != sorted(dims):
        value = make(value, "transpose", value, dimensions=(*dims, *others))
    if list(value.shape.dims) != sizes:
        value = make(value, "reshape", value, shape=value.shape.with_dims(sizes))
    return value
