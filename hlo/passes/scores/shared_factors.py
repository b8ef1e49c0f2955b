"""Shared factors: products with keys of distances that all of a batch share, with it as a batch.

    gather(dot(q[b,h,t,d], r[h,s,d]))       =>  gather(dot(q, broadcast(r)[b,h,s,d]))
    dot(y[b,h,t,s], r[h,s,d])               =>  dot(y, broadcast(r)[b,h,s,d])
    dot(y[b,h,t,s], q[b,h,t,d]) over t, b   =>  reduce(dot(y, q) over t) over b

Relative attention looks such products up, and its gradients are products of what was looked up, or
added up by lookups (y). Where keys are shared, a product has heads as its batch and the batch among
its rows, which puts its dimensions into another order than those of the scores that it is added to:
blocks of rows of a head (block_fusion.py) cannot be cut of both. With the batch as a batch they are
in one order. Repeated keys take as much memory as keys that are not shared; sums over a batch are
reassociated, those of types narrower than f32 made in f32 and rounded once; all else is as it was.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.fusibility import is_elementwise
from hlo.analysis.large_values import LEAST_SCORES_BYTES
from hlo.analysis.lookups import is_sum_from_zero, lookup_of
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.contraction import DotAttributes
from hlo.ops.indexing import GatherAttributes
from hlo.ops.making import make, number_of
from hlo.passes.liveness import replace
from hlo.passes.loop_making import reducer
from hlo.passes.patterns.matching import ints
from hlo.passes.simplify.dce import drop_unread

MOST_BETWEEN = 16  # Ops between a lookup and the product that reads what it gives.
Labels = tuple[int, ...]  # of dimensions, as einsum has letters


def keep_batches_apart(module: Module, computation: Computation) -> bool:
    """Whether a product of a computation was rewritten so. O(instructions) for each large one."""
    changed = False
    for dot in [i for i in computation.instructions if i.opcode == "dot"]:
        is_plain = "control-predecessors" not in dot.attributes and "sparsity" not in dot.attributes
        if is_plain and dot.shape.is_array and not dot.shape.is_dynamic:
            changed |= _of_table(dot) or any(_of_gradient(module, dot, side) for side in (0, 1))
    return changed


class _Product:
    """A dot by labels: batches and contracted dimensions of both factors have one label each."""

    def __init__(self, dot: Instruction) -> None:
        dims = DotAttributes.of(dot.attributes).dims
        ranks = [o.shape.rank for o in dot.operands]
        shared = [*zip(dims.rhs_batch, dims.lhs_batch, strict=True),
                  *zip(dims.rhs_contracting, dims.lhs_contracting, strict=True)]  # fmt: skip
        of_lhs = dict(shared)
        self.dot = dot
        self.labels = [
            tuple(range(ranks[0])),
            tuple(of_lhs.get(d, ranks[0] + d) for d in range(ranks[1])),
        ]
        self.batch: Labels = tuple(dims.lhs_batch)
        self.depth = set(dims.lhs_contracting)

    def result(self) -> Labels:
        """The labels of its dimensions: the batch, then what each factor has alone."""
        inside = {*self.batch, *self.depth}
        return (*self.batch, *(a for own in self.labels for a in own if a not in inside))

    def free(self, side: int) -> list[int]:
        """Labels that one factor alone has."""
        return [a for a in self.labels[side] if a not in self.labels[1 - side]]

    def apart(self, side: int, labels: Sequence[int]) -> list[int]:
        """The batch among some labels of a factor: all long ones but the longest, the rows."""
        sizes = dict(zip(self.labels[side], self.dot.operands[side].shape.dims, strict=True))
        long = [a for a in labels if sizes[a] != 1]
        row = max(long, key=lambda a: sizes[a], default=None)
        return [a for a in long if a != row]

    def made(self, operands: Sequence[Instruction], shape: Shape) -> Instruction:
        """The product of its labels. shape: its type."""
        places = [[list(own).index(a) for a in self.batch] for own in self.labels]
        deep = [[own.index(a) for a in own if a in self.depth] for own in self.labels]
        deep[1] = [self.labels[1].index(self.labels[0][d]) for d in deep[0]]
        sizes = {
            a: n
            for own, o in zip(self.labels, operands, strict=True)
            for a, n in zip(own, o.shape.dims, strict=True)
        }
        return make(
            self.dot, "dot", *operands, shape=shape.with_dims([sizes[a] for a in self.result()]),
            lhs_batch_dims=tuple(places[0]), lhs_contracting_dims=tuple(deep[0]),
            rhs_batch_dims=tuple(places[1]), rhs_contracting_dims=tuple(deep[1]),
        )  # fmt: skip

    def repeated(self, side: int, apart: Sequence[int]) -> Instruction:
        """The product with the other factor repeated for each of a batch that one has alone."""
        operands = list(self.dot.operands)
        sizes = dict(zip(self.labels[side], operands[side].shape.dims, strict=True))
        other = operands[1 - side]
        whole = [*(sizes[a] for a in apart), *other.shape.dims]
        operands[1 - side] = make(
            self.dot, "broadcast", other, shape=Shape.array(other.shape.dtype, whole),
            dimensions=tuple(range(len(apart), len(whole))),
        )  # fmt: skip
        self.labels[1 - side] = (*apart, *self.labels[1 - side])
        return self.made(operands, self.dot.shape.without_layout())


def _of_table(dot: Instruction) -> bool:
    """A product that lookups alone read: its dimensions come in the order that these give them."""
    if dot.shape.size_bytes < LEAST_SCORES_BYTES or dot.is_root or not dot.users:
        return False
    for side in (0, 1):
        product = _Product(dot)
        apart = product.apart(side, product.free(side))
        before = product.result()
        if not apart or len(product.apart(1 - side, product.free(1 - side))) > 0:
            continue
        lookups = _lookups(dot, before)
        orders = {_order(lookup, read, labels) for lookup, read, labels in lookups}
        if len(orders) != 1 or None in orders:
            return False
        (order,) = orders
        assert order is not None, "there is one"
        product.batch = tuple(sorted((*product.batch, *apart), key=order.index))
        table, after = product.repeated(side, apart), product.result()
        for lookup, _, labels in lookups:
            _look_up(lookup, table, [after.index(a) for a in labels])
        for read in dict.fromkeys(read for _, read, _ in lookups):
            drop_unread(read)
        return True
    return False


def _lookups(dot: Instruction, labels: Labels) -> list[tuple[Instruction, Instruction, Labels]]:
    """Who reads a product, or a transpose of it, which of these, and its labels."""
    found = []
    for user in dot.users:
        if user.opcode == "transpose" and not user.is_root:
            turned = tuple(labels[d] for d in ints(user, "dimensions"))
            found += [(reader, user, turned) for reader in user.users]
        else:
            found.append((user, dot, labels))
    return found


def _order(user: Instruction, table: Instruction, labels: Labels) -> Labels | None:
    """A table's labels in the order that its elements have in what is looked up; None where it is
    no lookup of single elements in it.
    """
    found = lookup_of(user) if user.opcode == "gather" else None
    if found is None or user.operands[1] is table or "control-predecessors" in user.attributes:
        return None
    if GatherAttributes.of(user.attributes).offset_dims:
        return None
    known = [d for d in found.of_table if d is not None]
    rest = [d for d in range(len(labels)) if d not in known]
    return tuple(labels[d] for d in (*known, *rest))


def _look_up(gather: Instruction, table: Instruction, places: Sequence[int]) -> None:
    """Let a lookup read a table whose dimension places[d] is what d was. It has no windows."""
    said = GatherAttributes.of(gather.attributes)
    pairs = zip(said.operand_batching_dims, said.start_indices_batching_dims, strict=True)
    batching = sorted((places[d], e) for d, e in pairs)
    new = make(
        gather, "gather", table, gather.operands[1], offset_dims=(),
        collapsed_slice_dims=tuple(sorted(places[d] for d in said.collapsed_slice_dims)),
        start_index_map=tuple(places[d] for d in said.start_index_map),
        operand_batching_dims=tuple(d for d, _ in batching),
        start_indices_batching_dims=tuple(e for _, e in batching),
        index_vector_dim=said.index_vector_dim, slice_sizes=(1,) * table.shape.rank,
        indices_are_sorted=said.indices_are_sorted,
    )  # fmt: skip
    replace(gather, new)


def _of_gradient(module: Module, dot: Instruction, side: int) -> bool:
    """A product of what was looked up, or added up by lookups."""
    scores = dot.operands[side]
    if scores.shape.size_bytes < LEAST_SCORES_BYTES or not _is_of_lookup(scores):
        return False
    product = _Product(dot)
    before = product.result()
    apart = product.apart(side, product.free(side))
    summed = product.apart(side, [a for a in product.labels[side] if a in product.depth])
    if bool(apart) == bool(summed):
        return False
    new_batch = (*product.batch, *apart, *summed)
    product.batch = tuple(a for a in product.labels[side] if a in new_batch)
    if apart:
        made, after = product.repeated(side, apart), product.result()
    else:
        product.depth -= set(summed)
        made, after = _summed_up(module, product, summed)
    turned = tuple(after.index(a) for a in before)
    if turned != tuple(range(len(turned))):
        made = make(dot, "transpose", made, dimensions=turned)
    replace(dot, made)
    return True


def _summed_up(
    module: Module, product: _Product, summed: Sequence[int]
) -> tuple[Instruction, Labels]:
    """The sum over a batch of products, and its labels."""
    dot, dtype = product.dot, product.dot.shape.dtype
    is_wide = dtype.is_float and dtype.bits < F32.bits
    shape = dot.shape.without_layout()
    each = product.made(dot.operands, shape.with_dtype(F32) if is_wide else shape)
    kind = Shape.array(each.shape.dtype, ())
    labels = product.result()
    total = make(
        dot, "reduce", each, number_of(dot, 0, kind.dtype),
        dimensions=tuple(n for n, a in enumerate(labels) if a in summed),
        to_apply=reducer(module, dot, "add", kind),
    )  # fmt: skip
    if is_wide:
        total = make(dot, "convert", total, shape=total.shape.with_dtype(dtype))
    return total, tuple(a for a in labels if a not in summed)


def _is_of_lookup(scores: Instruction) -> bool:
    """Whether a value is computed element by element from what was looked up in scores, or added up
    in a table, for each of a batch of its own.
    """
    found, waiting = {scores}, [scores]
    while waiting and len(found) < MOST_BETWEEN:
        one = waiting.pop()
        if one.opcode in ("gather", "scatter"):
            lookup = lookup_of(one)
            is_batched = lookup is not None and sum(d is not None for d in lookup.of_table) > 1
            if is_batched and (one.opcode == "gather" or is_sum_from_zero(one)):
                return True
        elif is_elementwise(one):
            new = [o for o in one.operands if o.shape.dims == one.shape.dims and o not in found]
            found.update(new)
            waiting += new
    return False
