"""Score order: scores of grouped heads with their rows and columns last, all in one order.

    s[batch, row, group, column] = dot(q, k), transpose(s), ..  -->  s[batch, group, row, column] ..

What hangs on large scores (analysis/score_region.py) is made anew with its dimensions in the order
batch, groups, rows, columns; moves within it vanish, small factors are moved instead, results are
moved back. Products that sum over groups as well keep them apart until the end. So blocks of rows
can be cut of scores that a program lays out in several orders.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.analysis.block_size import LEAST_SCORES_BYTES
from hlo.analysis.reducers import reducer_of
from hlo.analysis.score_region import (
    Met,
    Region,
    Roles,
    moves_elements,
    region_around,
)
from hlo.indexing.queries import kept_dims, steps
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32, DType
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.contraction import DotAttributes
from hlo.ops.making import make
from hlo.ops.movement import IotaAttributes
from hlo.passes.fusion import called_by_ops
from hlo.passes.liveness import awaited, wrapped_operations
from hlo.passes.loop_making import reducer
from hlo.passes.mask_bands import number_of, spread

Dims = tuple[int, ...]
Axes = tuple[int | None, ...]  # of each dimension, which of the seed's it is; None: none


def order_scores(module: Module) -> bool:
    """Put the dimensions of large scores into one order. O(instructions) for each large product."""
    changed = False
    left = called_by_ops(module) | wrapped_operations(module)
    for computation in tuple(module.computations):
        if computation in left:
            continue
        in_none: Met = {}
        for dot in computation.instructions:
            if dot.opcode == "dot" and _reorder(module, computation, dot, in_none):
                changed = True
                break
    return changed


def _reorder(module: Module, computation: Computation, dot: Instruction, in_none: Met) -> bool:
    shape = dot.shape
    if not shape.is_array or shape.size_bytes < LEAST_SCORES_BYTES or shape.is_dynamic:
        return False
    dims = DotAttributes.of(dot.attributes).dims
    batch, rows = len(dims.lhs_batch), len(dims.lhs_free(dot.operands[0].shape.rank))
    longer = [d for d, n in enumerate(shape.dims) if n != 1]
    of_rows = [d for d in longer if batch <= d < batch + rows]
    of_columns = [d for d in longer if d >= batch + rows]
    if len(of_columns) != 1 or len(of_rows) < 2:  # without groups other passes do
        return False
    row = max(of_rows, key=lambda d: shape.dims[d])
    region = region_around(dot, Roles(row, of_columns[0]), in_none, is_open=True)
    if region is None or not region.members.keys().isdisjoint(awaited(computation)):
        return False
    if _is_given(region) and not _is_summed_up(region):
        return False
    axes = _axes(region, dot)
    region = _without_ends(region, axes)
    if any(_is_odd(region, axes, member) for member in region.members):
        return False
    region = _without_regrouped(region, axes)
    groups = [d for d in of_rows if d != row]
    order = [*(d for d in longer if d < batch), *groups, row, of_columns[0]]
    return _Ordering(module, computation, region, axes, order).apply(dot)


def _is_given(region: Region) -> bool:
    """Whether scores are results, or others read them."""
    return any(region.members[one].has_both for one in region.outputs())


def _is_summed_up(region: Region) -> bool:
    """Whether a product sums over rows or columns, as attention does."""
    return any(one.opcode == "dot" and not r.has_both for one, r in region.members.items())


def _axes(region: Region, seed: Instruction) -> dict[Instruction, Axes]:
    """Which dimension of the seed each long dimension of a member is."""
    found: dict[Instruction, Axes] = {
        seed: tuple(None if n == 1 else d for d, n in enumerate(seed.shape.dims))
    }
    waiting = [seed]
    while waiting:
        one = waiting.pop()
        users = [user for user in one.users if user in region.members]
        for other, axes in (*_of_operands(one, found[one]), *_of_users(one, users, found[one])):
            if other not in region.members:
                continue
            known = found.get(other, (None,) * len(axes))
            merged = tuple(b if a is None else a for a, b in zip(known, axes, strict=True))
            if merged != known or other not in found:
                found[other] = merged
                waiting.append(other)
    return found


def _is_odd(region: Region, axes: dict[Instruction, Axes], member: Instruction) -> bool:
    """Whether a member is of other axes than the seed's; with rows and columns it has no others."""
    if member not in axes:
        return True
    long = [a for a, n in zip(axes[member], member.shape.dims, strict=True) if n != 1]
    return region.members[member].has_both and None in long


def _without_ends(region: Region, axes: dict[Instruction, Axes]) -> Region:
    """The region without moves that join axes and are read outside alone, as those of a bias's
    gradient are: they move what is given back in the dimensions that it had.
    """
    members = dict(region.members)
    while ends := [
        one
        for one in members
        if moves_elements(one)
        and _is_odd(region, axes, one)
        and members.keys().isdisjoint(one.users)
    ]:
        for one in ends:
            del members[one]
    return Region(members, region.rows, region.columns)


def _without_regrouped(region: Region, axes: dict[Instruction, Axes]) -> Region:
    """The region without values of rows in which several axes, or others, are one dimension: they
    are read from outside.
    """
    members = dict(region.members)
    found = list(members)
    while found:
        found = [
            one
            for one, roles in members.items()
            if roles.column is None
            and one.opcode not in ("dot", "reduce")
            and any(
                sum(n != 1 and a is None for a, n in zip(at, value.shape.dims, strict=True)) > 1
                for value, at in ((one, axes[one]), *_given(one, members, axes))
            )
        ]
        for one in found:
            del members[one]
    return Region(members, region.rows, region.columns)


def _given(
    one: Instruction, members: dict[Instruction, Roles], axes: dict[Instruction, Axes]
) -> Iterator[tuple[Instruction, Axes]]:
    """The operands, with what is known of their dimensions from inside of the region."""
    for operand, at in _of_operands(one, axes[one]):
        yield operand, axes[operand] if operand in members else at


def _of_operands(one: Instruction, axes: Axes) -> Iterator[tuple[Instruction, Axes]]:
    for number, operand in enumerate(one.operands):
        walked = steps(one, number)
        if operand.shape.dims and walked is not None:
            yield operand, tuple(axes[s.dims[0]] if s.is_whole else None for s in walked)


def _of_users(
    one: Instruction, users: Sequence[Instruction], axes: Axes
) -> Iterator[tuple[Instruction, Axes]]:
    for user in users:
        number = user.operands.index(one)
        kept = kept_dims(user, number)
        if user.shape.is_array:
            places = {d: axes[e] for e, d in enumerate(kept) if d is not None}
            yield user, tuple(places.get(d) for d in range(user.shape.rank))


class _Unfit(Exception):
    """A member has no form in the order."""


class _Ordering:
    """Makes a region anew. A value's form is its axes in the order, then what is no axis."""

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
            finals = {end: self._as_it_was(end) for end in ends}
        except _Unfit:
            for one in reversed([i for i in computation.instructions if i not in before]):
                computation.remove(one)
            return False
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

    def _operand_axes(self, member: Instruction) -> list[Axes]:
        """Those of each operand's dimensions."""
        found: list[Axes] = []
        for number, operand in enumerate(member.operands):
            walked = steps(member, number)
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
        kept = kept_dims(dot, number)
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
