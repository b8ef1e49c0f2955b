"""Score rows: scores whose heads are mixed, some rows of all heads at a time.

    s = dot(q, k); m = dot(a, s); p = softmax(m); o = dot(p, v)
        -->  while: rows of q --> rows of s, m, p --> rows of o

Talking heads multiply scores by a matrix over heads before or after the softmax, differential
attention subtracts one of two softmaxes from the other, the gradient of a scale or a slope sums all
scores up: blocks of a head at a time (block_fusion.py) cannot be cut of these. All that hangs on
such scores (analysis/scores/region.py, by index maps) is copied into the body of a loop over parts
of the rows; results are written row by row, and sums over rows (gradients of keys, values, mixing
matrices) are added up from part to part. What of the region is read outside before it is read
inside again ends a loop, and the next one computes the scores anew. Each element is computed from
the same numbers as before; sums over rows are reassociated, those of types narrower than f32 made
in f32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hlo.analysis.blocks.size import divisors
from hlo.analysis.fusibility import is_scalar_constant, moves_elements
from hlo.analysis.large_values import LEAST_SCORES_BYTES
from hlo.analysis.lookups import cut_attributes, kept_in
from hlo.analysis.reducers import reducer_of
from hlo.analysis.scores.region import (
    Met,
    Reach,
    Region,
    Roles,
    factor_roles,
    operand_roles,
    region_around,
)
from hlo.attributes.slices import SliceDim
from hlo.ir.computation import Computation
from hlo.ir.dtype import F32, S32
from hlo.ir.graph import clone_instruction, post_order
from hlo.ir.instruction import Attributes, Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.machine import COMMON
from hlo.ops.contraction import DotAttributes
from hlo.ops.making import make, number_of, spread
from hlo.ops.movement import IotaAttributes
from hlo.passes.fusion.fusion import called_by_ops
from hlo.passes.liveness import awaited, wrapped_operations
from hlo.passes.loop_making import (
    adopted,
    blank,
    element,
    new_computation,
    number,
    part,
    reducer,
)
from hlo.passes.loop_making import parameter as parameter_of
from hlo.passes.patterns.contraction import exchanged_attributes
from hlo.passes.patterns.matching import is_splat
from hlo.passes.simplify.cse import cse
from hlo.passes.simplify.dce import remove_unread

LEAST_ROWS = 8  # Of a part: products of fewer rows pack the other factor for too little.
LEAST_PARTS = 4
# Scores of a part stay in the cache that cores share.
MOST_PART_BYTES = COMMON.last_cache.bytes


def loop_over_rows(module: Module) -> bool:
    """Compute scores whose heads are mixed by rows. O(instructions) for each large product."""
    changed = False
    left = called_by_ops(module) | wrapped_operations(module)
    for computation in tuple(module.computations):
        if computation in left:
            continue
        in_none: tuple[Met, Met] = {}, {}  # by which of the two dimensions is the rows
        for dot in [i for i in computation.instructions if i.opcode == "dot"]:
            if dot not in computation:
                continue
            region = _region(dot, in_none)
            if region is not None and _fits(region, computation):
                _RowLoops(module, computation, region).apply()
                in_none = {}, {}
                changed = True
    if changed:
        cse(module)  # each number and place is made where it is used
    return changed


def _region(dot: Instruction, in_none: tuple[Met, Met]) -> Region | None:
    """Around large scores; which of their two last dimensions is the rows, the region tells."""
    shape = dot.shape
    if not shape.is_array or shape.is_dynamic or shape.size_bytes < LEAST_SCORES_BYTES:
        return None
    dims = DotAttributes.of(dot.attributes).dims
    batch, rows = len(dims.lhs_batch), len(dims.lhs_free(dot.operands[0].shape.rank))
    long = [d for d, n in enumerate(shape.dims) if n != 1 and d >= batch]
    of_rows = [d for d in long if d < batch + rows]
    of_columns = [d for d in long if d >= batch + rows]
    if len(of_rows) != 1 or len(of_columns) != 1:
        return None
    both = (Roles(of_rows[0], of_columns[0]), Roles(of_columns[0], of_rows[0]))
    for roles, met in zip(both, in_none, strict=True):
        region = region_around(dot, roles, met, reach=Reach.ROWS)
        if region is not None:
            return _with_tables(region)
    return None


def _with_tables(region: Region) -> Region:
    """The region with large products of rows in whose other dimension members look up, as those
    with a key for each distance: nobody else reads them.
    """
    members, tables = region.members, dict[Instruction, Roles | None]()
    for member in members:
        for n, operand in enumerate(member.operands):
            if operand.opcode != "dot" or operand in members or member.opcode == "dot":
                continue
            roles = operand_roles(member, n, members[member])
            is_same = tables.setdefault(operand, roles) == roles
            tables[operand] = roles if is_same else None
    found = {
        table: roles
        for table, roles in tables.items()
        if roles is not None and roles.row is not None and roles.column is None
        if table.shape.size_bytes >= LEAST_SCORES_BYTES
        if not table.is_root and members.keys() >= set(table.users)
        if all(factor_roles(table, n, {table: roles}) is not None for n in range(2))
        if "control-predecessors" not in table.attributes and "sparsity" not in table.attributes
    }
    return Region(members | found, region.rows, region.columns)


def _fits(region: Region, computation: Computation) -> bool:
    """Whether blocks of heads do not do, rows can be parted, and nothing but rows is left of it."""
    members, ends = region.members, list(region.outputs())
    # A table that has the heads is a sum over blocks of each.
    is_summed = any(members[end].has_none and end.opcode != "scatter" for end in ends)
    found = is_summed or any(_is_mixing(m, region) or _is_turned(m, region) for m in members)
    if not found or not part_rows(region):
        return False
    if not members.keys().isdisjoint(awaited(computation)):
        return False
    if not all(_has_parts(m, region) for m in members):
        return False
    return all(_may_end(end, members[end]) for end in ends)


def _is_mixing(member: Instruction, region: Region) -> bool:
    """Whether scores are made of scores of others than their own places in all dimensions but the
    rows and columns.
    """
    members = region.members
    if not members[member].has_both or moves_elements(member) or member.opcode == "gather":
        return False
    for n, operand in enumerate(member.operands):
        roles = members.get(operand)
        if roles is None or not roles.has_both:
            continue
        kept = kept_in(member, n)
        others = (e for e in range(operand.shape.rank) if e not in (roles.row, roles.column))
        if any(operand.shape.dims[e] != 1 and kept[e] is None for e in others):
            return True
    return False


def _is_turned(member: Instruction, region: Region) -> bool:
    """Whether scores are read in another order than they are made in, which order.py could
    not mend: blocks have one order.
    """
    if not region.members[member].has_both or member.opcode == "dot":
        return False
    for n, operand in enumerate(member.operands):
        if operand.shape.is_array and operand.shape.size_bytes >= LEAST_SCORES_BYTES:
            dims = zip(kept_in(member, n), operand.shape.dims, strict=True)
            kept = [d for d, size in dims if d is not None and size != 1]
            if kept != sorted(kept):
                return True
    return False


def _has_parts(member: Instruction, region: Region) -> bool:
    """Whether rows of a member can be made by themselves: a count of rows of 32-bit ones. Layouts
    are nothing that a loop's parts have to keep, but where bits are read by them.
    """
    if not member.shape.is_array or member.shape.is_dynamic or member.opcode == "bitcast":
        return False
    if member.opcode != "iota":
        return True
    along = IotaAttributes.of(member.attributes).iota_dimension
    dtype = member.shape.dtype
    return region.members[member].row != along or not dtype.is_integral or dtype.bits >= S32.bits


def _may_end(end: Instruction, roles: Roles) -> bool:
    """Whether parts of what is read outside come to the whole: rows, or sums over rows."""
    if roles.row is not None:
        return roles.column is None
    if end.opcode in ("dot", "scatter"):
        return True
    is_narrow = end.shape.dtype.is_float and end.shape.dtype.bits < F32.bits
    return (
        end.opcode == "reduce"
        and reducer_of(end).opcodes == ("add",)
        and is_splat(end.operands[1], 0)
        and not is_narrow
    )


def part_rows(region: Region) -> int:
    """How many rows a part has, a divisor of all; 0: there is none that pays."""
    most = max(m.shape.size_bytes for m, roles in region.members.items() if roles.has_both)
    fits = max(MOST_PART_BYTES * region.rows // most, 4 * LEAST_ROWS)
    most_rows = min(fits, region.rows // LEAST_PARTS)
    return max((d for d in divisors(region.rows) if LEAST_ROWS <= d <= most_rows), default=0)


def _read_by(member: Instruction) -> Sequence[Instruction]:
    """What rows of a member are made from: of a scatter not its table, which begins with zeros."""
    return member.operands[1:] if member.opcode == "scatter" else member.operands


class _RowLoops:
    """Puts loops in the place of a region."""

    def __init__(self, module: Module, computation: Computation, region: Region) -> None:
        self._module, self._computation, self._region = module, computation, region
        self._order = [i for i in post_order(computation) if i in region.members]
        self._finals: dict[Instruction, Instruction] = {}  # results of loops, by the members

    def apply(self) -> None:
        """A loop for what leaves the region first, then for what reads that, and so on."""
        levels = self._region.levels(post_order(self._computation))
        outputs = list(self._region.outputs())
        for level in sorted({levels[o] for o in outputs}):
            ends = [o for o in outputs if levels[o] == level]
            for end, final in zip(ends, self._looped(ends), strict=True):
                self._replace(end, final)
                self._finals[end] = final
        remove_unread(self._computation, self._order)
        self._computation.reorder(post_order(self._computation))

    def _looped(self, ends: Sequence[Instruction]) -> list[Instruction]:
        """while(0, results, what is read)"""
        needed = self._needed(ends)
        members = [m for m in self._order if m in needed]
        body = _Body(self._module, self._region, members, self._finals, ends)
        begin = make(ends[-1], "tuple", number(ends[-1], 0), *body.starts(), *body.given)
        step = adopted(self._module, ends[-1], body.made_for(begin.shape))
        condition = new_computation(begin, "more_rows")
        state = parameter_of(condition, 0, begin.shape)
        count = element(state, 0)
        condition.root = make(count, "compare", count, number(count, body.count), direction="LT")
        adopted(self._module, ends[-1], condition)
        loop = make(begin, "while", begin, condition=condition, body=step)
        return [self._as_it_was(element(loop, 1 + n), end) for n, end in enumerate(ends)]

    def _as_it_was(self, result: Instruction, end: Instruction) -> Instruction:
        if result.shape.dtype is not end.shape.dtype:
            result = make(end, "convert", result, shape=result.shape.with_dtype(end.shape.dtype))
        return result if result.shape == end.shape else make(end, "copy", result, shape=end.shape)

    def _needed(self, ends: Sequence[Instruction]) -> set[Instruction]:
        """The members that ends are made from, but for results of earlier loops."""
        found, waiting = set(ends), list(ends)
        while waiting:
            for operand in waiting.pop().operands:
                is_inside = operand in self._region.members and operand not in self._finals
                if is_inside and operand not in found:
                    found.add(operand)
                    waiting.append(operand)
        return found

    def _replace(self, end: Instruction, final: Instruction) -> None:
        """What is outside of the region reads the loop's result."""
        for user in tuple(end.users):
            if user not in self._region.members:
                operands = [final if o is end else o for o in user.operands]
                self._computation.set_operands(user, operands)
        if self._computation.root is end:
            self._computation.root = final


class _Body:
    """The body of one loop: some rows of all members that its results are made from.

    given: what it reads, whole, from outside.
    """

    def __init__(
        self,
        module: Module,
        region: Region,
        members: Sequence[Instruction],
        finals: dict[Instruction, Instruction],
        ends: Sequence[Instruction],
    ) -> None:
        self._module, self._region = module, region
        self._members, self._finals, self._ends = members, finals, ends
        self._size = part_rows(region)
        self.count = region.rows // self._size
        inside = set(members)
        read = dict.fromkeys(o for m in members for o in _read_by(m) if o not in inside)
        self.given = [finals.get(o, o) for o in read if not is_scalar_constant(o)]
        self._twins: dict[object, Instruction] = {}

    def starts(self) -> Iterator[Instruction]:
        """What results and sums begin with."""
        for end in self._ends:
            whole = self._whole(end)
            yield blank(end, whole) if whole.dims else number_of(end, 0, whole.dtype)

    def _whole(self, end: Instruction) -> Shape:
        """A result's shape; sums of narrow floats are made in f32."""
        shape, dtype = end.shape.without_layout(), end.shape.dtype
        is_sum = self._region.members[end].row is None
        is_wide = is_sum and dtype.is_float and dtype.bits < F32.bits
        return shape.with_dtype(F32) if is_wide else shape

    def made_for(self, state: Shape) -> Computation:
        """The computation that makes one state of another."""
        like = self._ends[-1]
        self._made = new_computation(like, "rows")
        self._state = parameter_of(self._made, 0, state)
        self._count = element(self._state, 0)
        self._first = make(self._count, "multiply", self._count, number(self._count, self._size))
        places = {g: 1 + len(self._ends) + n for n, g in enumerate(self.given)}
        self._given = {g: element(self._state, place) for g, place in places.items()}
        for member in self._members:
            self._twins[member] = self._twin(member)
        after = make(self._count, "add", self._count, number(self._count, 1))
        results = [self._result(n, end) for n, end in enumerate(self._ends)]
        self._made.root = make(self._state, "tuple", after, *results, *self._given.values())
        return self._made

    def _result(self, place: int, end: Instruction) -> Instruction:
        """dynamic-update-slice(result, rows, first), or sum + sum of rows; a scatter adds up in the
        table as it is after the rows before, in the order in which it would all rows.
        """
        before, own = element(self._state, 1 + place), self._twins[end]
        if end.opcode == "scatter":
            return own
        row = self._region.members[end].row
        if row is None:
            return make(own, "add", before, own)
        zero = number(own, 0)
        starts = [self._first if d == row else zero for d in range(end.shape.rank)]
        return make(own, "dynamic-update-slice", before, own, *starts)

    def _cut(self, shape: Shape, roles: Roles) -> Shape:
        dims = list(shape.dims)
        if roles.row is not None:
            dims[roles.row] = self._size
        return shape.with_dims(dims)

    def _twin(self, member: Instruction) -> Instruction:
        roles = self._region.members[member]
        if member.opcode == "iota":
            return self._counted(member, roles)
        if member.opcode == "scatter":
            return self._scattered(member)
        operands = [self._operand(member, n) for n in range(len(member.operands))]
        if self._is_backwards(member):
            return self._turned(member, operands)
        whole = self._whole(member) if member in self._ends else member.shape.without_layout()
        shape = self._cut(whole, roles)
        return self._made.new(
            member.opcode, shape, operands, self._attributes(member, operands[0].shape),
            like=member, name=member.name,
        )  # fmt: skip

    def _scattered(self, scatter: Instruction) -> Instruction:
        """scatter(the sums so far, rows of indices, rows of updates); those of narrow floats add up
        in f32, as a scatter does, and are rounded when all rows are through.
        """
        table = element(self._state, 1 + self._ends.index(scatter))
        indices, updates = (self._operand(scatter, n) for n in (1, 2))
        attributes = scatter.attributes
        if table.shape.dtype is not scatter.shape.dtype:
            wide = updates.shape.with_dtype(table.shape.dtype)
            updates = make(updates, "convert", updates, shape=wide)
            adds = reducer(self._module, scatter, "add", Shape.array(table.shape.dtype, ()))
            attributes = {**attributes, "to_apply": adds}
        operands = (table, indices, updates)
        return self._made.new("scatter", table.shape, operands, attributes, like=scatter)

    def _is_backwards(self, member: Instruction) -> bool:
        """Whether rows are made of scores on the right."""
        members = self._region.members
        if member.opcode != "dot" or members[member].row is None or members[member].has_both:
            return False
        left, right = ((r := members.get(o)) is not None and r.has_both for o in member.operands)
        return right and not left

    def _turned(self, dot: Instruction, operands: Sequence[Instruction]) -> Instruction:
        """transpose(dot(y, x)), where y are the scores: their rows lie as a product reads them."""
        dims = DotAttributes.of(dot.attributes).dims
        ranks = [o.shape.rank for o in dot.operands]
        batch, rows = len(dims.lhs_batch), len(dims.lhs_free(ranks[0]))
        columns = len(dims.rhs_free(ranks[1]))
        whole = self._whole(dot) if dot in self._ends else dot.shape.without_layout()
        sizes = self._cut(whole, self._region.members[dot]).dims
        turned = (*sizes[:batch], *sizes[batch + rows :], *sizes[batch : batch + rows])
        product = self._made.new(
            "dot",
            whole.with_dims(turned),
            operands[::-1],
            exchanged_attributes(dot),
            like=dot,
            name=dot.name,
        )
        order = (*range(batch), *range(batch + columns, len(sizes)),
                 *range(batch, batch + columns))  # fmt: skip
        return make(product, "transpose", product, dimensions=order)

    def _attributes(self, member: Instruction, operand: Shape) -> Attributes:
        row = self._region.members[member].row
        if member.opcode == "gather":
            return cut_attributes(member, member.attributes, operand)
        taken = member.attributes.get("slice")
        if row is None or not isinstance(taken, tuple):
            return member.attributes
        ranges = tuple(SliceDim(0, self._size, 1) if d == row else s for d, s in enumerate(taken))
        return {**member.attributes, "slice": ranges}

    def _operand(self, member: Instruction, place: int) -> Instruction:
        operand = member.operands[place]
        if operand in self._twins:
            return self._twins[operand]
        if is_scalar_constant(operand):
            self._twins[operand] = self._made.adopt(clone_instruction(operand, ()))
            return self._twins[operand]
        roles = self._region.operand_roles(member, place)
        assert roles is not None, "a region's operands have roles"
        key = operand, roles.row
        if key not in self._twins:
            whole = self._given[self._finals.get(operand, operand)]
            is_cut = roles.row is not None
            rows = part(whole, roles.row, self._first, self._size) if is_cut else whole  # type: ignore[arg-type]  # is_cut
            self._twins[key] = rows
        return self._twins[key]

    def _counted(self, iota: Instruction, roles: Roles) -> Instruction:
        """convert(iota + first)"""
        along = IotaAttributes.of(iota.attributes).iota_dimension
        shape = iota.shape.without_layout()
        cut = self._cut(shape, roles)
        if along != roles.row:
            return self._made.new("iota", cut, (), iota.attributes, like=iota)
        counts = self._made.new("iota", cut.with_dtype(S32), (), iota.attributes, like=iota)
        total = make(counts, "add", counts, spread(counts, self._first, counts.shape))
        return total if shape.dtype is S32 else make(counts, "convert", total, shape=cut)
