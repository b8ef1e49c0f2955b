"""Blocking: whether a computation can run block by block along leading dimensions of its values.

    roots, Block --needed--> every value that a block needs, and how it is cut

A value cut by (a, b, ..) has as its first dimensions the block's `lead[a]`, `lead[b]`, .., and is
cut in them, those of one element aside, which are nowhere counted; by () it is one that every block
reads whole. The first len(lead) - 1 sizes of a block are 1, so that its elements are contiguous,
and each block computes what the whole computation would: an iota over a cut dimension counts from
where the block starts. A root may also be a sum over blocks, as the gradients of a product's shared
factor are: its partial products are added up in the order of the blocks.
Sources: loop tiling with fusion, as in Halide's compute_at (Ragan-Kelley et al. 2013).
Does not know: how a block's computation is made (block_cutting.py), how long anything takes
(block_size.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Sequence

from msgspec import Struct

from hlo.analysis.fusibility import MOVEMENT, is_elementwise
from hlo.indexing.queries import Steps, own_steps, steps
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.contraction import DotAttributes
from hlo.ops.movement import IotaAttributes

MOST_REPEATED = 4096  # The most elements of a value that every block computes anew.
Span = tuple[int, ...]  # Some of the block's leading dimensions, in their order.
Cut = tuple[Instruction, Span]
WHOLE: Span = ()
MOST_STARTS = 2**31  # The first dimension that is too large for a start.
Scope = tuple[Computation | None, Span]  # a fused computation, and how its result is cut
OUTERMOST: Scope = (None, WHOLE)  # where the roots are
ParameterCuts = list[tuple[int, Span]]  # parameters by number, and how they are cut


class Block(Struct, frozen=True):
    """lead: the sizes, none of them 1, of the leading dimensions that blocks part; sizes: a block's
    in them.

    Where a block's last size does not divide the whole one, the last two blocks overlap: both write
    the same values there.
    """

    lead: tuple[int, ...]
    sizes: tuple[int, ...]

    @property
    def depth(self) -> int:
        return len(self.lead)

    @property
    def count(self) -> int:
        """How many blocks there are."""
        return self.parts(self.depth)

    @property
    def all(self) -> Span:
        """All leading dimensions."""
        return tuple(range(len(self.lead)))

    @property
    def outer(self) -> Span:
        """The leading dimensions but the last, of which blocks have one index each."""
        return tuple(range(len(self.lead) - 1))

    def parts(self, depth: int) -> int:
        """How many parts the first `depth` dimensions have."""
        whole = math.prod(self.lead[: min(depth, self.depth - 1)])
        return whole * -(-self.lead[-1] // self.sizes[-1]) if depth == self.depth else whole

    def begins(self, dimension: int) -> int:
        """The last index in a leading dimension at which a block begins."""
        return self.lead[dimension] - self.sizes[dimension]

    def cut(self, shape: Shape, span: Span) -> Shape:
        """The shape of a block of a value."""
        if shape.is_tuple:
            return Shape.tuple(self.cut(e, span) for e in shape.elements)
        places = self.places(shape, span)
        assert places is not None, "a shape that can be cut"
        if not places:
            return shape
        dims = list(shape.dims)
        for place, dimension in zip(places, span, strict=True):
            dims[place] = self.sizes[dimension]
        return shape.with_dims(dims)

    def places(self, shape: Shape, span: Span) -> tuple[int, ...] | None:
        """Which dimensions of a shape are those of a span; None where it has not got them."""
        wanted = tuple(self.lead[d] for d in span)
        places = tuple(d for d, n in enumerate(shape.dims) if n != 1)[: len(wanted)]
        return places if tuple(shape.dims[p] for p in places) == wanted else None


def needed(
    roots: Iterable[Instruction], span: Span, block: Block, inside: Container[Instruction]
) -> set[Cut] | None:
    """Every instruction that a block of the roots needs, and how cut; None where one cannot be
    cut. What is not inside is not looked behind."""
    found = Needs(block, inside, _fused_cuts)
    return found.at[OUTERMOST] if found.all_of(roots, span) else None


def cuts_needed(instruction: Instruction, block: Block) -> list[tuple[int, Span]]:
    """The operands that a block of an instruction needs, those of a fusion too, by number, and how
    cut; none where it cannot be cut.
    """
    if summed := summed_cuts(instruction, block):  # of the last operands
        first = len(instruction.operands) - len(summed)
        return [(first + n, cut) for n, (_, cut) in enumerate(summed)]
    own = operand_cuts(instruction, block.all, block) or ()
    found = [(n, cut) for n, (_, cut) in enumerate(own)]
    callee, span = fused_scope(instruction, block.all)
    if callee is not None:
        found += _fused_cuts(callee, span, block) or ()
    return found


def _fused_cuts(computation: Computation, span: Span, block: Block) -> ParameterCuts | None:
    """The parameters that a fusion needs whose result is cut by a span, by number, and how cut;
    None where it cannot be cut.

    What can be cut does not depend on a block's sizes, and groups that are tried share their
    members, so it is found once for each computation, span and `lead`.
    """
    facts, key = computation.facts, ("cuts of parameters", span, block.lead)
    if key not in facts:
        found, scope = Needs(block, ()), (computation, span)
        found.at[scope] = set()
        is_cut = found.all_of([computation.root], span, scope)
        cuts = [(number(p), at) for p, at in found.at[scope] if p.opcode == "parameter"]
        facts[key] = sorted(cuts) if is_cut else None
    return facts[key]  # type: ignore[return-value]  # what was put there


class Needs:
    """What blocks of some roots need, also inside fusions, and inside fusions in them.

    A fused computation is gone through once for each span of its result: a fusion that is met has
    its operands cut in all ways in which the computation is found to need its parameters.
    """

    def __init__(
        self,
        block: Block,
        inside: Container[Instruction],
        cuts: Callable[[Computation, Span, Block], ParameterCuts | None] | None = None,
    ) -> None:
        """cuts: who says what a fusion needs, where `at` need not have what is inside of it."""
        self.at: dict[Scope, set[Cut]] = {OUTERMOST: set()}
        self._block = block
        self._inside = inside
        self._cuts = cuts
        self._sites: dict[Scope, list[tuple[Scope, Instruction]]] = {}

    def all_of(
        self, roots: Iterable[Instruction], span: Span, outermost: Scope = OUTERMOST
    ) -> bool:
        """Find all; False where something cannot be cut."""
        waiting: list[tuple[Scope, Instruction, Span]] = []
        for root in roots:
            if outermost == OUTERMOST and span == self._block.all and is_summed(root, self._block):
                waiting += [(outermost, *cut) for cut in summed_cuts(root, self._block)]
            else:
                waiting.append((outermost, root, span))
        while waiting:
            scope, instruction, at = waiting.pop()
            if (instruction, at) in self.at[scope]:
                continue
            self.at[scope].add((instruction, at))
            if not self._is_behind(scope, instruction):
                if not _is_source(instruction, at, self._block):
                    return False
                sites = self._sites.get(scope, ())
                waiting += [(home, s.operands[number(instruction)], at) for home, s in sites]
                continue
            operands = operand_cuts(instruction, at, self._block)
            if operands is None:
                return False
            if at != self._block.all and not _may_repeat(instruction, scope):
                return False
            waiting += [(scope, *operand) for operand in operands]
            inner = fused_scope(instruction, at)
            if inner[0] is None:
                continue
            if self._cuts is None:
                waiting += self._entered(inner, scope, instruction)
                continue
            wanted = self._cuts(inner[0], at, self._block)
            if wanted is None:
                return False
            waiting += [(scope, instruction.operands[n], cut) for n, cut in wanted]
        return True

    def _is_behind(self, scope: Scope, instruction: Instruction) -> bool:
        """Whether what an instruction is made from is looked at."""
        if scope == OUTERMOST:
            return instruction in self._inside
        return instruction.opcode != "parameter"

    def _entered(
        self, inner: Scope, scope: Scope, site: Instruction
    ) -> list[tuple[Scope, Instruction, Span]]:
        """What one more fusion of a computation needs: the whole of it the first time."""
        computation, span = inner
        assert computation is not None, "a scope inside"
        if inner not in self.at:
            self.at[inner], self._sites[inner] = set(), []
        self._sites[inner].append((scope, site))
        known = [p for p in self.at[inner] if p[0].opcode == "parameter"]
        return [
            (inner, computation.root, span),
            *((scope, site.operands[number(p)], at) for p, at in known),
        ]


def fused_scope(instruction: Instruction, span: Span) -> Scope:
    """What is inside a fusion of which blocks are made; OUTERMOST where nothing is."""
    if instruction.opcode != "fusion" or not span:
        return OUTERMOST
    (callee,) = instruction.called_computations()
    return callee, span


def operand_cuts(instruction: Instruction, span: Span, block: Block) -> list[Cut] | None:
    """The operands that a block of an instruction needs, and how cut; None: no such block.

    Those of a fusion follow from what is in it, if the fusion itself can be cut. They do not depend
    on a block's sizes, and groups that are tried share their members.
    """
    if instruction.computation is None:
        return _operand_cuts(instruction, span, block)
    known, key = instruction.computation.facts, (_operand_cuts, instruction, span, block.lead)
    if key not in known:
        known[key] = _operand_cuts(instruction, span, block)
    return known[key]  # type: ignore[return-value]  # what is kept there above


def _operand_cuts(instruction: Instruction, span: Span, block: Block) -> list[Cut] | None:
    shapes = [instruction.shape, *(o.shape for o in instruction.operands)]
    if not all(_is_whole_array(leaf) for shape in shapes for leaf in shape.leaves()):
        return None
    if "control-predecessors" in instruction.attributes:
        return None
    if not all(_leads(leaf, span, block) for leaf in instruction.shape.leaves()):
        return None
    if not span:
        return [(operand, WHOLE) for operand in instruction.operands]
    if instruction.opcode == "fusion":
        return []
    if not can_be_cut(instruction):
        return None
    spans = RULES.get(instruction.opcode, _led)(instruction, span, block)
    return None if spans is None else list(zip(instruction.operands, spans, strict=True))


def can_be_cut(instruction: Instruction) -> bool:
    """Whether there is a rule for the opcode."""
    opcode = instruction.opcode
    return opcode in RULES or opcode == "fusion" or is_elementwise(instruction)


def _is_source(instruction: Instruction, span: Span, block: Block) -> bool:
    """Whether what is not looked behind can be cut."""
    shape = instruction.shape
    return shape.is_array and _is_whole_array(shape) and _leads(shape, span, block)


def _may_repeat(instruction: Instruction, scope: Scope) -> bool:
    """Whether several blocks may compute the same of an instruction: what is little, or element by
    element within a fusion, which does so by itself.
    """
    if scope != OUTERMOST and (
        is_elementwise(instruction)
        or instruction.opcode in MOVEMENT
        or not instruction.operands  # an iota
    ):
        return True
    return instruction.shape.is_array and instruction.shape.size <= MOST_REPEATED


def _is_whole_array(shape: Shape) -> bool:
    dtype = shape.dtype
    return shape.is_array and not shape.is_dynamic and dtype.bits in (8 * dtype.item_bytes, 1)


def _leads(shape: Shape, span: Span, block: Block) -> bool:
    """Whether the first dimensions of a shape are the block's."""
    return block.places(shape, span) is not None


def _tuple(instruction: Instruction, span: Span, block: Block) -> Spans | None:
    return [span] * len(instruction.operands)


def _led(instruction: Instruction, span: Span, block: Block) -> Spans | None:
    """Cut where the dimensions of an operand that a block's index moves are its first ones."""
    found: list[Span] = []
    for number, operand in enumerate(instruction.operands):
        own = steps(instruction, number)
        leaves = instruction.shape.leaves()
        places = next((block.places(leaf, span) for leaf in leaves), None)
        if own is None or places is None:
            return None
        one = _led_span(own, operand.shape.dims, places)
        if one is None:
            return None
        found.append(tuple(span[place] for place in one))
    return found


def _led_span(own: Steps, dims: Sequence[int], places: Sequence[int]) -> Span | None:
    """Which of the cut dimensions are an operand's first ones; None where others move it too.

    own, dims: how the operand's dimensions are walked, and their sizes; those of one element are
    not counted. places: of the cut dimensions, all longer, in the result.
    """
    kept = [step for step, n in zip(own, dims, strict=True) if n != 1]
    moved = [k for k, step in enumerate(kept) if not set(places).isdisjoint(step.dims)]
    if not moved:
        return WHOLE
    found: list[int] = []
    for step in kept:
        after = range(found[-1] + 1 if found else 0, len(places))
        place = next((p for p in after if step.is_dim(places[p])), None)
        if place is None:
            break
        found.append(place)
    return tuple(found) if len(found) > moved[-1] else None


def _gather(instruction: Instruction, span: Span, block: Block) -> Spans | None:
    """A lookup: the indices and the table are cut in the dimensions that are theirs. The one that
    is looked up is whole, so that starts are clamped as they were.
    """
    from hlo.analysis.lookups import lookup_of  # for programs with one

    found, places = lookup_of(instruction), block.places(instruction.shape, span)
    if found is None or places is None:
        return None
    table, indices = (operand.shape for operand in instruction.operands)
    spans: list[Span] = []
    for own, shape in ((found.table_steps(table), table), (found.indices_steps(indices), indices)):
        one = _led_span(own, shape.dims, places)
        if one is None:
            return None
        spans.append(tuple(span[place] for place in one))
    return spans


def _scatter(instruction: Instruction, span: Span, block: Block) -> Spans | None:
    """Rows of a table to which rows of the updates are added, and no others."""
    from hlo.analysis.lookups import lookup_of  # for programs with one

    found, places = lookup_of(instruction), block.places(instruction.shape, span)
    if found is None or places is None or not set(places) <= set(found.of_table):
        return None
    _, indices, updates = (operand.shape for operand in instruction.operands)
    at = [found.of_table.index(place) for place in places]
    spans: list[Span] = [span]
    for own, shape in (
        (found.indices_steps(indices), indices),
        (own_steps(updates.rank), updates),
    ):
        one = _led_span(own, shape.dims, at)
        if one is None:
            return None
        spans.append(tuple(span[place] for place in one))
    return spans


def _iota(instruction: Instruction, span: Span, block: Block) -> Spans | None:
    dimension = counted_dimension(instruction, span, block)
    return None if dimension is not None and block.lead[dimension] >= MOST_STARTS else []


def counted_dimension(instruction: Instruction, span: Span, block: Block) -> int | None:
    """The leading dimension over which a block of an iota counts, from where the block starts."""
    if instruction.opcode != "iota":
        return None
    varies = IotaAttributes.of(instruction.attributes).iota_dimension
    places = block.places(instruction.shape, span) or ()
    return span[places.index(varies)] if varies in places else None


def _contraction(instruction: Instruction, span: Span, block: Block) -> Spans | None:
    """The left side is parted, the right one in dimensions of a batch only; images of a convolution
    are, but not their places.
    """
    if instruction.attributes.get("sparsity"):
        return None
    if instruction.opcode == "convolution" and len(span) > 1:
        return None
    found = _led(instruction, span, block)
    return found if found is not None and found[0] == span else None


def is_summed(instruction: Instruction, block: Block) -> bool:
    """Whether an instruction is a sum of what the blocks along the last cut dimension give."""
    return bool(summed_cuts(instruction, block))


def is_in_order(root: Instruction) -> bool:
    """Whether a sum over blocks is one after the other, as a scatter's is: no parts are made."""
    return root.opcode == "scatter"


def summed_cuts(instruction: Instruction, block: Block) -> list[Cut]:
    """What every block adds up of an instruction that is a sum over blocks, and how it is cut;
    none where it is no such sum. A product's type has to hold partial sums as well as whole ones.
    """
    if instruction.opcode not in ("dot", "scatter"):
        return []
    shapes = (instruction.shape, *(o.shape for o in instruction.operands))
    if not all(map(_is_whole_array, shapes)) or "control-predecessors" in instruction.attributes:
        return []
    summed = _summed_factors if instruction.opcode == "dot" else _summed_updates
    return summed(instruction, block)


def _summed_factors(dot: Instruction, block: Block) -> list[Cut]:
    """dot(x, y) where both begin with the cut dimensions, of which the last is contracted and the
    others are its batch, in the order in which the result has them: every block adds the product
    of its parts to the same elements.
    """
    if "sparsity" in dot.attributes:
        return []
    dims = DotAttributes.of(dot.attributes).dims
    sides = ((dims.lhs_batch, dims.lhs_contracting), (dims.rhs_batch, dims.rhs_contracting))
    found: list[tuple[tuple[int, ...], int]] = []
    for operand, (batch, depth) in zip(dot.operands, sides, strict=True):
        places = block.places(operand.shape, block.all)
        if places is None or places[-1] not in depth or not set(places[:-1]) <= set(batch):
            return []
        found.append((tuple(map(batch.index, places[:-1])), depth.index(places[-1])))
    is_sum = found[0] == found[1] and found[0][0] == block.places(dot.shape, block.outer)
    return [(operand, block.all) for operand in dot.operands] if is_sum else []


def _summed_updates(scatter: Instruction, block: Block) -> list[Cut]:
    """scatter(0, indices, updates) where updates begin with the cut dimensions, of which the last
    is none of the table's, and the others are its first ones: every block adds its updates to the
    same elements, those of earlier rows first, as the scatter does.
    """
    from hlo.analysis.lookups import is_sum_from_zero, lookup_of  # for programs with one

    found = lookup_of(scatter)
    if found is None or not is_sum_from_zero(scatter):
        return []
    _, indices, updates = scatter.operands
    places = block.places(updates.shape, block.all)
    if places is None or found.of_table[places[-1]] is not None:
        return []
    if tuple(found.of_table[p] for p in places[:-1]) != block.places(scatter.shape, block.outer):
        return []
    read = _led_span(found.indices_steps(indices.shape), indices.shape.dims, places)
    return [] if read is None else [(indices, read), (updates, block.all)]


def inner_members(computation: Computation) -> frozenset[Instruction]:
    """All but the parameters."""
    return frozenset(i for i in computation.instructions if i.opcode != "parameter")


def number(parameter: Instruction) -> int:
    """A parameter's number."""
    found = parameter.attributes["parameter_number"]
    assert isinstance(found, int), "parameters are numbered"
    return found


Spans = Sequence[Span]
Rule = Callable[[Instruction, Span, Block], "Spans | None"]
RULES: dict[str, Rule] = {
    "tuple": _tuple,
    "get-tuple-element": _tuple,
    "reshape": _led,
    "copy": _led,
    "transpose": _led,
    "broadcast": _led,
    "gather": _gather,
    "iota": _iota,
    "reduce": _led,
    "scatter": _scatter,
    "dot": _contraction,
    "convolution": _contraction,
}
