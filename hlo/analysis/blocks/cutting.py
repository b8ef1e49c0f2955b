"""Block cutting: the computation of one block, of a computation that can be cut.

    Computation, Block --cut_computation--> CutBody: its instructions, parameters and results

The parameters are those of the whole computation, cut; where a block starts in a dimension over
which an iota counts, or at which a window lies; what earlier blocks have added up to a sum over
blocks; and memory that all blocks write parts of. Where the last block overlaps the one before it,
a sum's part of the last block is of its new rows alone. A loop is cut with its body and condition;
its state has where the block starts beside the elements that it had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from msgspec import Struct, field

from hlo.analysis.blocks.block import PLACED, SUMMED, WHOLE, Block, Cut, Span
from hlo.analysis.blocks.blocking import (
    OUTERMOST,
    Needs,
    Scope,
    fused_scope,
    inner_members,
    inside_trip,
    is_memory,
    loop_of,
    loop_spans,
    number,
    operand_cuts,
    root_span,
)
from hlo.analysis.blocks.rules import counted_dimension, started
from hlo.analysis.blocks.sums import is_in_order, is_summed, summed_cuts
from hlo.analysis.decisions import with_zeros_of
from hlo.analysis.leaves import leaves_of
from hlo.analysis.lookups import cut_attributes
from hlo.analysis.while_loops.loop_state import element_index, of_any_shape
from hlo.attributes.slices import SliceDim, slice_dims
from hlo.ir.computation import Computation
from hlo.ir.dtype import S32
from hlo.ir.graph import post_order
from hlo.ir.instruction import Attributes, Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape


class Start(Struct, frozen=True):
    """A parameter of a block, s32[]: where it begins in a leading dimension."""

    dimension: int


class Total(Struct, frozen=True):
    """A parameter of a block: what the blocks before have added up to a leaf of the results.

    in_last: whether the sum that reads it is the last block's or all others'; None: every block's.
    """

    leaf: int
    in_last: bool | None = None


class Placed(Struct, frozen=True):
    """A parameter of a block: the memory of a whole leaf of the results, in which it writes its
    part.
    """

    leaf: int


class Same(Struct, frozen=True):
    """A leaf of the results that is the same for all blocks: each writes it."""

    leaf: int


Parameter = Cut | Start | Total | Placed
Result = int | Total | Placed | Same
# What leaves of the results are of which blocks have no parts.
SHARED: dict[Span, type[Total | Placed | Same]] = {PLACED: Placed, WHOLE: Same, SUMMED: Total}


class CutBody(Struct, frozen=True, eq=False):
    """The computation of one block. results: of each leaf of its root, the leaf of the whole
    computation's that it is a part of, or is, or adds to. turns:
    of what not every block runs, whether the last does. in_order: whether a sum is made of all
    blocks in a row.
    """

    computation: Computation
    parameters: list[Parameter]
    results: list[Result] = field(default_factory=list)
    turns: dict[Instruction, bool] = field(default_factory=dict)
    in_order: bool = False

    @property
    def has_totals(self) -> bool:
        return any(isinstance(p, Total) for p in self.parameters)


Fusions = dict[Scope, tuple[Computation, list[Parameter]]]


def cut_computation(computation: Computation, block: Block) -> CutBody:
    """The computation of one block. Names stay; what is called is cut too. The block has to be one
    that `needed` accepts.
    """
    root = computation.root
    roots = root.operands if root.opcode == "tuple" else (root,)
    found = Needs(block, inner_members(computation))
    assert found.all_of(roots, block.all), f"{computation.name} can be cut"
    made = _cut_fusions(found, block)
    return _Cutting(computation, block, made).outermost(found.at[OUTERMOST], roots)


def _cut_fusions(found: Needs, block: Block) -> Fusions:
    """The fused computations of what was found, cut, those inside of others first."""
    made: Fusions = {}
    pending = _waiting(found, OUTERMOST, made)
    while pending:
        scope = pending[-1]
        if scope not in made and (waiting := _waiting(found, scope, made)):
            pending += waiting
            continue
        pending.pop()
        if scope not in made:
            whole, span = scope
            assert whole is not None, "a scope inside"
            made[scope] = _Cutting(whole, block, made).of(found.at[scope], span)
    return made


def _waiting(found: Needs, scope: Scope, made: Mapping[Scope, object]) -> list[Scope]:
    """The fusions in a scope that are not cut yet."""
    inner = dict.fromkeys(fused_scope(*one) for one in found.at[scope])
    return [s for s in inner if s != OUTERMOST and s not in made]


class _Cutting:
    """Makes a computation cut, when all that it calls is."""

    def __init__(
        self,
        computation: Computation,
        block: Block,
        inside: Fusions,
    ) -> None:
        self._computation, self._block, self._inside = computation, block, inside
        self._made = Computation(computation.name)
        self._twins: dict[Parameter, Instruction] = {}
        self._parameters: list[Parameter] = []
        self._turns: dict[Instruction, bool] = {}
        self._places: dict[Instruction, Placed] = {}  # memory that blocks write parts of
        self._totals: dict[tuple[Instruction, int], Total] = {}  # of elements of loops' states
        self._loops: dict[Instruction, Instruction] = {}  # as a block runs them

    def of(self, found: set[Cut], span: Span) -> tuple[Computation, list[Parameter]]:
        """found: what the block needs of it; span: how its root is cut."""
        self._make(found)
        self._made.root = self._twins[self._computation.root, span]
        return self._made, self._parameters

    def outermost(self, found: set[Cut], roots: Sequence[Instruction]) -> CutBody:
        """The block's computation itself, with sums over blocks among its roots."""
        leaf = 0
        for root in roots:
            span = root_span(root, self._block.all, self._block)
            if span == PLACED:
                self._places[_memory_of(root)] = Placed(leaf)
            if span == SUMMED:
                self._totals[root.operands[0], element_index(root)] = Total(leaf)
            leaf += len(leaves_of(root.shape))
        self._make(found)
        made: list[Instruction] = []
        results: list[Result] = []
        leaf = 0
        for root in roots:
            count = len(leaves_of(root.shape))
            span = root_span(root, self._block.all, self._block)
            if span in SHARED:
                made.append(self._twins[root, span])
                results.append(SHARED[span](leaf))
            elif is_summed(root, self._block):
                sums = self._sums(root, leaf)
                made += sums.values()
                results += sums
            else:
                made.append(self._twins[root, self._block.all])
                results += range(leaf, leaf + count)
            leaf += count
        (self._made.root,) = made if len(made) == 1 else (self._tuple(made),)
        in_order = any(is_summed(r, self._block) and is_in_order(r) for r in roots)
        return CutBody(self._made, self._parameters, results, self._turns, in_order)

    def _make(self, found: set[Cut]) -> None:
        place = {instruction: n for n, instruction in enumerate(post_order(self._computation))}
        for one in sorted(found, key=lambda one: (place[one[0]], one[1])):
            self._twins[one] = self._twin(*one)

    def _tuple(self, parts: Sequence[Instruction]) -> Instruction:
        whole = Shape.tuple(part.shape for part in parts)
        return self._made.new("tuple", whole, parts, like=self._computation.root)

    def _sums(self, whole: Instruction, leaf: int) -> dict[Total, Instruction]:
        """What each block adds to a sum over blocks; where the last one overlaps the block before
        it, that one adds what is of the rows that are new.
        """
        block = self._block
        cuts = summed_cuts(whole, block)
        parts = [self._twins[cut] for cut in cuts]
        new = block.lead[-1] % block.sizes[-1]
        if not new:
            total = Total(leaf)
            return {total: self._added(whole, parts, total)}
        made: dict[Total, Instruction] = {}
        for total in (Total(leaf, in_last=False), Total(leaf, in_last=True)):
            if total.in_last:
                whole_parts, parts = parts, [self._end(*cut, new) for cut in cuts]
                ends = [p for p in parts if p not in whole_parts]
                self._turns |= dict.fromkeys(ends, True)
            made[total] = self._added(whole, parts, total)
            self._turns[made[total]] = bool(total.in_last)
        return made

    def _end(self, whole: Instruction, span: Span, rows: int) -> Instruction:
        """slice(part): its last rows along the last cut dimension, if it is cut there."""
        part = self._twins[whole, span]
        places = self._block.places(whole.shape, span)
        assert places is not None, "what is cut begins with the cut dimensions"
        if self._block.depth - 1 not in span:
            return part
        starts, limits = [0] * part.shape.rank, list(part.shape.dims)
        starts[places[-1]] = limits[places[-1]] - rows
        kept = part.shape.with_dims(b - a for a, b in zip(starts, limits, strict=True))
        ranges = tuple(SliceDim(a, b, 1) for a, b in zip(starts, limits, strict=True))
        return self._made.new("slice", kept, [part], {"slice": ranges}, like=whole)

    def _added(self, whole: Instruction, parts: Sequence[Instruction], total: Total) -> Instruction:
        """fusion(factors, total), calls={ dot + total }; or scatter(total, indices, updates)"""
        shape = self._block.cut(whole.shape, self._block.outer)
        before = self._parameter(total, shape, "total")
        if whole.opcode == "scatter":
            said = whole.attributes
            return self._made.new("scatter", shape, (before, *parts), said, like=whole)
        operands = (*parts, before)
        inner = Computation("added")
        taken = [
            inner.new("parameter", o.shape, (), {"parameter_number": n})
            for n, o in enumerate(operands)
        ]
        attributes = with_zeros_of(whole, [part.shape for part in parts])
        product = inner.new("dot", shape, taken[:2], attributes, like=whole)
        inner.root = inner.new("add", shape, [product, taken[2]], like=whole)
        said = {"kind": "kOutput", "calls": inner}
        return self._made.new("fusion", shape, operands, said, like=whole, name=whole.name)

    def _twin(self, instruction: Instruction, at: Span) -> Instruction:
        attributes = instruction.attributes
        cuts = operand_cuts(instruction, at, self._block)
        if self._is_given(instruction):
            shape = self._block.cut(instruction.shape, at)
            return self._parameter((instruction, at), shape, instruction.name)
        if instruction in self._places:
            return self._parameter(self._places[instruction], instruction.shape, instruction.name)
        if loop_of(instruction) is not None:
            return self._last(instruction)
        if (dimension := counted_dimension(instruction, at, self._block)) is not None:
            return self._counted(instruction, at, Start(dimension))
        assert cuts is not None, f"{instruction.name} can be cut"
        operands = [self._twins[cut] for cut in cuts]
        attributes = with_zeros_of(instruction, [o.shape for o in operands])
        if instruction.opcode == "gather" and at:
            attributes = cut_attributes(instruction, attributes, operands[0].shape)
        if instruction.opcode in ("slice", "dynamic-slice") and at:
            attributes = self._cut_window(instruction, at, attributes)
        for place, dimension in started(instruction, at, self._block).items():
            first = len(operands) - instruction.operands[0].shape.rank
            operands[first + place] = self._begun(operands[first + place], dimension)
        if (inner := fused_scope(instruction, at)) != OUTERMOST:
            callee, given = self._inside[inner]
            attributes = {**attributes, "calls": callee}
            operands = [self._given(instruction, one) for one in given]
        shape = self._block.cut(instruction.shape, at)
        return self._made.new(
            instruction.opcode, shape, operands, attributes, like=instruction, name=instruction.name
        )

    def _is_given(self, instruction: Instruction) -> bool:
        """Whether an instruction stands for what the computation is given."""
        return instruction.opcode == "parameter"

    def _cut_window(self, window: Instruction, at: Span, attributes: Attributes) -> Attributes:
        """The attributes of a slice, at known or at computed places, of as much as a block is."""
        dims = self._block.cut(window.shape, at).dims
        if window.opcode == "dynamic-slice":
            return {**attributes, "dynamic_slice_sizes": dims}
        ranges = [
            r if n == whole else SliceDim(0, n, 1)
            for r, n, whole in zip(slice_dims(attributes), dims, window.shape.dims, strict=True)
        ]
        return {**attributes, "slice": tuple(ranges)}

    def _begun(self, start: Instruction, dimension: int) -> Instruction:
        """Where a block's window of a whole array lies, as a number of the type of its others."""
        begin = self._within(start, self._started(Start(dimension)), self._block.begins(dimension))
        scalar = start.shape
        if scalar.dtype is S32:
            return begin
        return self._made.new("convert", scalar, [begin], like=start)

    def _last(self, element: Instruction) -> Instruction:
        """An element of a loop's last state, of the loop that a block runs."""
        loop = loop_of(element)
        assert loop is not None, "an element of a loop's state"
        if loop not in self._loops:
            self._loops[loop] = self._loop(loop)
        shape, said = self._loops[loop].shape.elements[element_index(element)], element.attributes
        return self._made.new("get-tuple-element", shape, [self._loops[loop]], said, like=element)

    def _loop(self, loop: Instruction) -> Instruction:
        spans = loop_spans(loop, self._block)
        assert spans is not None, "a loop that can be cut"
        (state,) = loop.operands
        starts = [self._started(Start(d)) for d in self._block.all]
        first = [
            self._total(loop, n) if span == SUMMED else self._twins[start, span]
            for n, (start, span) in enumerate(zip(state.operands, spans, strict=True))
        ]
        given = self._made.new(
            "tuple", Shape.tuple(o.shape for o in (*first, *starts)), (*first, *starts), like=loop
        )
        body, condition = loop.called_computations()
        roots = list(zip(body.root.operands, spans, strict=True))
        attributes = {
            **of_any_shape(loop),
            "body": _CuttingTrip(body, self._block, given.shape).trip(roots),
            "condition": _CuttingTrip(condition, self._block, given.shape).test(),
        }
        return self._made.new("while", given.shape, [given], attributes, like=loop, name=loop.name)

    def _total(self, loop: Instruction, number: int) -> Instruction:
        """What an element of the state that blocks add to begins with."""
        total = self._totals[loop, number]
        return self._parameter(total, loop.shape.elements[number], "total")

    def _given(self, site: Instruction, parameter: Parameter) -> Instruction:
        """What a fusion hands to a parameter of its computation."""
        if isinstance(parameter, Start):
            return self._started(parameter)
        assert isinstance(parameter, tuple), "sums over blocks are outermost"
        return self._twins[site.operands[number(parameter[0])], parameter[1]]

    def _parameter(self, parameter: Parameter, shape: Shape, name: str) -> Instruction:
        attributes = {"parameter_number": len(self._parameters)}
        self._parameters.append(parameter)
        return self._made.new("parameter", shape, (), attributes, name=name)

    def _started(self, start: Start) -> Instruction:
        if start not in self._twins:
            self._twins[start] = self._parameter(start, Shape(S32), "start")
        return self._twins[start]

    def _counted(self, iota: Instruction, at: Span, start: Start) -> Instruction:
        """convert(iota + broadcast(clamp(0, start, last)))"""
        cut = self._block.cut(iota.shape, at)
        counts = cut if cut.dtype is S32 else cut.with_dtype(S32)
        new = self._made.new
        begin = self._within(iota, self._started(start), self._block.begins(start.dimension))
        first = new("broadcast", counts, [begin], {"dimensions": ()}, like=iota)
        count = new("iota", counts, (), iota.attributes, like=iota)
        total = new("add", counts, [count, first], like=iota)
        return total if counts == cut else new("convert", cut, [total], like=iota)

    def _within(self, like: Instruction, start: Instruction, last: int) -> Instruction:
        """clamp(0, start, last): where blocks start is known not to be elsewhere, so that places
        that are counted from there are indices (backend/emitters/affine_gathers.py).
        """
        limits = [
            self._made.new("constant", start.shape, (), {"literal": _number(n)}, like=like)
            for n in (0, last)
        ]
        return self._made.new("clamp", start.shape, [limits[0], start, limits[1]], {}, like=like)


class _CuttingTrip(_Cutting):
    """Makes a loop's body or condition cut, whose parameter is the state: the elements that it had,
    and where the block starts in each of the leading dimensions.
    """

    def __init__(self, computation: Computation, block: Block, state: Shape) -> None:
        self._needs = Needs(block, inside_trip(computation))
        super().__init__(computation, block, {})
        (given,) = computation.parameters
        self._count = len(state.elements) - block.depth
        self._state = self._made.new(
            "parameter", state, (), {"parameter_number": 0}, like=given, name=given.name
        )

    def trip(self, roots: Sequence[Cut]) -> Computation:
        """The body, whose roots are the elements of the next state."""
        self._needed(roots)
        starts = [self._started(Start(d)) for d in self._block.all]
        self._made.root = self._tuple([*(self._twins[root] for root in roots), *starts])
        return self._made

    def test(self) -> Computation:
        """The condition, which is the same for all blocks."""
        root = (self._computation.root, WHOLE)
        self._needed([root])
        self._made.root = self._twins[root]
        return self._made

    def _needed(self, roots: Sequence[Cut]) -> None:
        assert self._needs.all_cuts(roots), "a loop that can be cut"
        self._inside = _cut_fusions(self._needs, self._block)
        self._make(self._needs.at[OUTERMOST])

    def _is_given(self, instruction: Instruction) -> bool:
        return self._computation.parameters[0] in instruction.operands

    def _parameter(self, parameter: Parameter, shape: Shape, name: str) -> Instruction:
        """An element of the state."""
        if isinstance(parameter, Start):
            index = self._count + parameter.dimension
        else:
            assert isinstance(parameter, tuple), "sums over blocks are no loops'"
            index = element_index(parameter[0])
        said = {"index": index}
        return self._made.new("get-tuple-element", shape, [self._state], said, name=name)


def _memory_of(element: Instruction) -> Instruction:
    """The memory in which a loop writes an element of its state."""
    loop = loop_of(element)
    assert loop is not None, "an element of a loop's state"
    memory = loop.operands[0].operands[element_index(element)]
    assert is_memory(memory), "what blocks write parts of is not read before"
    return memory


def _number(n: int) -> Literal:
    return Literal(Shape(S32), np.array(n, np.int32))
