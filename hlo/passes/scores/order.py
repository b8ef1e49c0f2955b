"""Score order: scores with their rows and columns last, all in one order.

    s[batch, row, group, column] = dot(q, k), transpose(s), ..  -->  s[batch, group, row, column] ..

What hangs on large scores (analysis/scores/region.py) is made anew (forms.py) with its
dimensions in the order batch, groups, rows, columns; moves within it vanish, small factors are
moved instead, results are moved back. Products that sum over groups as well keep them apart until
the end. So blocks of rows can be cut of scores that a program lays out in several orders. Each
element is computed from the same numbers as before; sums within dots may be reassociated.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.analysis.fusibility import moves_elements
from hlo.analysis.large_values import LEAST_SCORES_BYTES
from hlo.analysis.lookups import kept_in
from hlo.analysis.scores.region import (
    Clash,
    Met,
    Reach,
    Region,
    Roles,
    region_around,
)
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.contraction import DotAttributes
from hlo.passes.fusion.counted_copies import CountedCopies
from hlo.passes.fusion.fusion import called_by_ops
from hlo.passes.liveness import awaited, wrapped_operations
from hlo.passes.scores.forms import Axes, Ordering, operand_axes_of
from hlo.passes.scores.shared_factors import keep_batches_apart


def order_scores(module: Module) -> bool:
    """Put the dimensions of large scores into one order. O(instructions) for each large product."""
    changed = False
    left = called_by_ops(module) | wrapped_operations(module)
    for computation in tuple(module.computations):
        if computation in left:
            continue
        changed |= keep_batches_apart(module, computation)
        in_none: Met = {}
        for dot in [i for i in computation.instructions if i.opcode == "dot"]:
            if dot in computation and _reorder(module, computation, dot, in_none):
                changed = True
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
    if len(of_columns) != 1 or not of_rows:
        return False
    (column,), row = of_columns, max(of_rows, key=lambda d: shape.dims[d])
    copies = CountedCopies(computation)
    region = _region(dot, Roles(row, column), in_none, copies)
    groups = [d for d in of_rows if d != row]
    before = [d for d in longer if d < batch]
    if region is None or not _is_ordered(module, computation, dot, region, (before, groups)):
        copies.undo()
        return False
    return True


def _region(dot: Instruction, roles: Roles, in_none: Met, copies: CountedCopies) -> Region | None:
    """Around scores; what is counted and read in several orders is copied."""
    clashes: list[Clash] = []
    region = region_around(dot, roles, in_none, clashes, reach=Reach.ORDER)
    while region is None and clashes and copies.copied(*clashes.pop()):
        clashes.clear()
        region = region_around(dot, roles, {}, clashes, reach=Reach.ORDER)
    return region


def _is_ordered(
    module: Module,
    computation: Computation,
    dot: Instruction,
    region: Region,
    leading: tuple[list[int], list[int]],
) -> bool:
    """Whether the region was put in order. leading: the dimensions of its batch, and its groups."""
    if not region.members.keys().isdisjoint(awaited(computation)):
        return False
    if _is_given(region) and not _is_summed_up(region):
        return False
    axes = _axes(region, dot)
    if axes is None:
        return False
    region = _without_ends(region, axes)
    if any(_is_odd(region, axes, member) for member in region.members):
        return False
    region = _without_regrouped(region, axes)
    batch, groups = leading
    roles = region.members[dot]
    assert roles.row is not None, "scores have both"
    assert roles.column is not None, "scores have both"
    last = [roles.row, roles.column]
    if not groups and _sums_rows(region):
        last.reverse()
    order = [*batch, *groups, *last]
    if not groups and not _is_turned(region, axes, order):
        return False
    return Ordering(module, computation, region, axes, order).apply(dot)


def _sums_rows(region: Region) -> bool:
    """Whether no product sums over columns: then what is called rows are columns."""
    summed = [
        roles.row is None
        for one, roles in region.members.items()
        if one.opcode == "dot" and not roles.has_both
    ]
    return bool(summed) and all(summed)


def _is_turned(region: Region, axes: dict[Instruction, Axes], order: list[int]) -> bool:
    """Whether scores lie in another order, too; without groups other passes do else."""
    turned = (
        [a for a in axes[one] if a is not None]
        for one, roles in region.members.items()
        if roles.has_both and one.opcode != "dot"
    )
    return any(found != [a for a in order if a in found] for found in turned)


def _is_given(region: Region) -> bool:
    """Whether scores are results, or others read them."""
    return any(region.members[one].has_both for one in region.outputs())


def _is_summed_up(region: Region) -> bool:
    """Whether a product sums over rows or columns, as attention does."""
    return any(one.opcode == "dot" and not r.has_both for one, r in region.members.items())


def _axes(region: Region, seed: Instruction) -> dict[Instruction, Axes] | None:
    """Which dimension of the seed each long dimension of a member is; None where one is several, as
    in sums of scores with heads and with the same heads in another order.
    """
    found: dict[Instruction, Axes] = {
        seed: tuple(None if n == 1 else d for d, n in enumerate(seed.shape.dims))
    }
    waiting = [seed]
    while waiting:
        one = waiting.pop()
        users = [user for user in one.users if user in region.members]
        for other, axes in (*operand_axes_of(one, found[one]), *_of_users(one, users, found[one])):
            if other not in region.members:
                continue
            known = found.get(other, (None,) * len(axes))
            pairs = list(zip(known, axes, strict=True))
            if any(a is not None and b is not None and a != b for a, b in pairs):
                return None
            merged = tuple(b if a is None else a for a, b in pairs)
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
    for operand, at in operand_axes_of(one, axes[one]):
        yield operand, axes[operand] if operand in members else at


def _of_users(
    one: Instruction, users: Sequence[Instruction], axes: Axes
) -> Iterator[tuple[Instruction, Axes]]:
    for user in users:
        number = user.operands.index(one)
        kept = kept_in(user, number)
        if user.shape.is_array:
            places = {d: axes[e] for e, d in enumerate(kept) if d is not None}
            yield user, tuple(places.get(d) for d in range(user.shape.rank))
