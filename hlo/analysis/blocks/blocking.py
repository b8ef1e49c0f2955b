"""Blocking: whether a computation can run block by block along leading dimensions of its values.

    roots, Block --needed--> every value that a block needs, and how it is cut

How a value is cut is a span (block.py). The first len(lead) - 1 sizes of a block are 1, so that its
elements are contiguous, and each block computes what the whole computation would: an iota over a
cut dimension counts from where the block starts. A root may also be a sum over blocks
(sums.py), and a loop may be run whole by each block.

A recurrence over the rows of a batch needs of each row nothing but the row: a block takes its rows
through all trips. What all rows share (weights, a counter) every block has whole; of an array that
trips fill row by row (a scan's results) each block writes its part. What cannot be known before is
found from the roots of the body: an element that one of them needs in another way than it was
taken to be cut is tried the next way, until all agree.

Sources: loop tiling with fusion, as in Halide's compute_at (Ragan-Kelley et al. 2013).
Does not know: how a block's computation is made (cutting.py), how long anything takes
(size.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable

from hlo.analysis.blocks.block import PLACED, SUMMED, WHOLE, Block, Cut, Span
from hlo.analysis.blocks.rules import is_whole_array, leads, operand_spans
from hlo.analysis.blocks.sums import added_cuts, is_summed, summed_cuts
from hlo.analysis.decisions import decisions_of
from hlo.analysis.fusibility import MOVEMENT, is_elementwise, is_zero
from hlo.analysis.while_loops.loop_state import element_index
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction

MOST_REPEATED = 4096  # The most elements of a value that every block computes anew.
MOST_TERMS = 4 * MOST_REPEATED  # The most that it is summed of: a microsecond for each block.
Scope = tuple[Computation | None, Span]  # a fused computation, and how its result is cut
OUTERMOST: Scope = (None, WHOLE)  # where the roots are
Spans = tuple[Span, ...]  # of the elements of a loop's state
ParameterCuts = list[tuple[int, Span]]  # parameters by number, and how they are cut


def needed(
    roots: Iterable[Instruction], span: Span, block: Block, inside: Container[Instruction]
) -> set[Cut] | None:
    """Every instruction that a block of the roots needs, and how cut; None where one cannot be
    cut. What is not inside is not looked behind."""
    found = Needs(block, inside, fused_cuts)
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
        found += fused_cuts(callee, span, block) or ()
    return found


def fused_cuts(computation: Computation, span: Span, block: Block) -> ParameterCuts | None:
    """The parameters that a fusion needs whose result is cut by a span, by number, and how cut;
    None where it cannot be cut.

    What can be cut does not depend on a block's sizes, and groups that are tried share their
    members, so it is found once for each computation, span and `lead`.
    """
    facts, key = computation.contents, ("cuts of parameters", span, block.lead)
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
        cuts: list[Cut] = []
        for root in roots:
            if outermost == OUTERMOST and span == self._block.all and is_summed(root, self._block):
                cuts += summed_cuts(root, self._block)
            else:
                cuts.append((root, root_span(root, span, self._block)))
        return self.all_cuts(cuts, outermost)

    def all_cuts(self, cuts: Iterable[Cut], outermost: Scope = OUTERMOST) -> bool:
        """The same of values, each with how it is cut."""
        waiting = [(outermost, *cut) for cut in cuts]
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
            if operands is None or (scope != OUTERMOST and loop_of(instruction) is not None):
                return False
            if at not in (self._block.all, PLACED, SUMMED) and not _may_repeat(instruction, scope):
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
    if instruction.computation is None or loop_of(instruction) is not None:
        return _operand_cuts(instruction, span, block)  # of a loop by its body, which knows
    known, key = instruction.computation.facts, (_operand_cuts, instruction, span, block.lead)
    if key not in known:
        known[key] = _operand_cuts(instruction, span, block)
    return known[key]  # type: ignore[return-value]  # what is kept there above


def _operand_cuts(instruction: Instruction, span: Span, block: Block) -> list[Cut] | None:
    shapes = [instruction.shape, *(o.shape for o in instruction.operands)]
    if not all(is_whole_array(leaf) for shape in shapes for leaf in shape.leaves()):
        return None
    if "control-predecessors" in instruction.attributes:
        return None
    if not all(leads(leaf, span, block) for leaf in instruction.shape.leaves()):
        return None
    if loop_of(instruction) is not None:
        return loop_cuts(instruction, span, block)
    if not span:
        return [(operand, WHOLE) for operand in instruction.operands]
    if instruction.opcode == "fusion":
        return []
    if span == SUMMED:
        return added_cuts(instruction, block)
    if is_memory(instruction):
        return [] if span == PLACED else None
    spans = operand_spans(instruction, span, block)
    return None if spans is None else list(zip(instruction.operands, spans, strict=True))


def root_span(root: Instruction, span: Span, block: Block) -> Span:
    """How a root is cut that blocks part by a span; of a loop's last state as its elements are."""
    if loop_of(root) is None:
        return span
    found = element_span(root, block)
    return span if found is None else found


def loop_of(element: Instruction) -> Instruction | None:
    """The loop of whose last state an instruction takes an element."""
    if element.opcode != "get-tuple-element" or element.operands[0].opcode != "while":
        return None
    return element.operands[0]


def is_memory(instruction: Instruction) -> bool:
    """Whether it is memory that a program fills before it reads any of it."""
    return instruction.opcode == "custom-call" and decisions_of(instruction).is_overwritten


def _is_source(instruction: Instruction, span: Span, block: Block) -> bool:
    """Whether what is not looked behind can be cut."""
    shape = instruction.shape
    return shape.is_array and is_whole_array(shape) and leads(shape, span, block)


def _may_repeat(instruction: Instruction, scope: Scope) -> bool:
    """Whether several blocks may compute the same of an instruction: what is little and made of
    little, or element by element within a fusion, which does so by itself. The sums of all columns
    are few numbers, but every block would go through all rows for them.
    """
    if scope != OUTERMOST and (
        is_elementwise(instruction)
        or instruction.opcode in MOVEMENT
        or not instruction.operands  # an iota
    ):
        return True
    if scope != OUTERMOST and any(
        o.shape.is_array and o.shape.size > MOST_TERMS for o in instruction.operands
    ):
        return False
    return instruction.shape.is_array and instruction.shape.size <= MOST_REPEATED


def inner_members(computation: Computation) -> frozenset[Instruction]:
    """All but the parameters."""
    return frozenset(i for i in computation.instructions if i.opcode != "parameter")


def number(parameter: Instruction) -> int:
    """A parameter's number."""
    found = parameter.attributes["parameter_number"]
    assert isinstance(found, int), "parameters are numbered"
    return found


# -- loops ----------------------------------------------------------------------------------------


def loop_cuts(element: Instruction, span: Span, block: Block) -> list[Cut] | None:
    """What a loop starts with, and how it is cut, if that gives an element of its last state cut by
    a span; None where it does not. Sums over blocks start with zero, and no rows count twice."""
    loop = loop_of(element)
    assert loop is not None, "an element of a loop's state"
    spans = loop_spans(loop, block)
    if spans is None or spans[element_index(element)] != span:
        return None
    starts = list(zip(loop.operands[0].operands, spans, strict=True))
    sums = [start for start, cut in starts if cut == SUMMED]
    if sums and (block.lead[-1] % block.sizes[-1] or not all(map(is_zero, sums))):
        return None
    return [one for one in starts if one[1] != SUMMED]


def element_span(element: Instruction, block: Block) -> Span | None:
    """How an element of a loop's last state is cut; None where the loop cannot be."""
    loop = loop_of(element)
    assert loop is not None, "an element of a loop's state"
    spans = loop_spans(loop, block)
    return None if spans is None else spans[element_index(element)]


def loop_spans(loop: Instruction, block: Block) -> Spans | None:
    """How each element of the state is cut; None where a block cannot run the loop by itself.

    It does not depend on a block's sizes, and is asked for each element. O(elements x edges of the
    body) for each way in which an element is tried.
    """
    body, condition = loop.called_computations()
    known, key = body.facts, (loop_spans, loop, condition.state, block.lead)
    if key not in known:
        known[key] = _loop_spans(loop, block)
    return known[key]  # type: ignore[return-value]  # what is kept there above


def _loop_spans(loop: Instruction, block: Block) -> Spans | None:
    body, condition = loop.called_computations()
    (state,) = loop.operands
    if state.opcode != "tuple" or not all(map(_is_plain, (body, condition))):
        return None
    if body.root.opcode != "tuple" or not all(e.is_array for e in loop.shape.elements):
        return None
    ends = [element_index(u) for u in loop.users if u.opcode == "get-tuple-element"]
    elements = [
        _Element(start, root, block, may_be_summed=block.depth == 1 and ends.count(n) == 1)
        for n, (start, root) in enumerate(zip(state.operands, body.root.operands, strict=True))
    ]
    asked = _asked(condition, condition.root, WHOLE, block)
    if asked is None or not all(e.spans for e in elements):
        return None
    while True:
        wrong = _wrong(elements, asked)
        if wrong is None:
            break
        elements[wrong].spans.pop(0)
        if not elements[wrong].spans:
            return None
    placed = [e.start for e in elements if e.spans[0] == PLACED]
    if len(set(placed)) < len(placed):
        return None
    return tuple(e.spans[0] for e in elements)


def _is_plain(computation: Computation) -> bool:
    """Whether its only parameter is taken apart, and it has no loops or branches."""
    if len(computation.parameters) != 1:
        return False
    takers = computation.parameters[0].users
    return all(u.opcode == "get-tuple-element" for u in takers) and not any(
        i.opcode in ("while", "conditional") for i in computation.instructions
    )


Asked = dict[int, Span]


class _Element:
    """An element of the state. spans: how it may be cut, the way in which it is taken to be first;
    asked: for each of them, what a trip then needs of the state before.
    """

    def __init__(
        self, start: Instruction, root: Instruction, block: Block, *, may_be_summed: bool
    ) -> None:
        self.start = start
        self.asked: dict[Span, Asked] = {}
        assert root.computation is not None, "a root stands in a body"
        for span in (block.all, PLACED, SUMMED, WHOLE):
            if span == PLACED and not is_memory(start):
                continue
            if span == SUMMED and not (may_be_summed and _only_grows(root, block)):
                continue
            found = _asked(root.computation, root, span, block)
            if found is not None:
                self.asked[span] = found
        self.spans = list(self.asked)


def _only_grows(root: Instruction, block: Block) -> bool:
    """Whether what a trip makes of an element of the state is that element and what is added to it:
    each block goes on from what the ones before it have added up, which a factor, say, would
    multiply once more.
    """
    assert root.computation is not None, "a root stands in a body"
    place, found = root.computation.root.operands.index(root), 0
    waiting: list[tuple[Instruction, tuple[Instruction, ...], bool]] = [(root, (), True)]
    while waiting:
        value, fusions, is_plain = waiting.pop()
        source = value.operands[0] if value.opcode == "get-tuple-element" else value
        if source.opcode == "fusion":
            (inside,) = source.called_computations()
            is_element = value is not source
            made = inside.root.operands[element_index(value)] if is_element else inside.root
            waiting.append((made, (*fusions, source), is_plain))
        elif source.opcode == "parameter" and fusions:
            waiting.append((fusions[-1].operands[number(source)], fusions[:-1], is_plain))
        elif source.opcode == "parameter":
            found += 1
            if not is_plain or element_index(value) != place:
                return False
        else:
            goes_on = is_plain and value.opcode == "add"
            cuts = added_cuts(value, block) or ()
            waiting += [(o, fusions, goes_on) for o, span in cuts if span == SUMMED]
    return found == 1


def _asked(computation: Computation, root: Instruction, span: Span, block: Block) -> Asked | None:
    """What a root needs of the state, by element; None where it cannot be cut so, or needs one in
    two ways."""
    needs = Needs(block, inside_trip(computation), fused_cuts)
    if not needs.all_cuts([(root, span)]):
        return None
    (state,) = computation.parameters
    asked: Asked = {}
    for value, at in needs.at[OUTERMOST]:
        if state in value.operands and asked.setdefault(element_index(value), at) != at:
            return None
    return asked


def inside_trip(computation: Computation) -> frozenset[Instruction]:
    """All of a body or a condition but its parameter and the elements of that."""
    (state,) = computation.parameters
    return frozenset(i for i in computation.instructions if i is not state and i not in state.users)


def _wrong(elements: list[_Element], asked: Asked) -> int | None:
    """An element that has to be cut in another way than it is taken to be; None: all agree.

    One that is needed whole is not cut; where it is the other way round, what needs it is not.
    """
    for number, needs in (
        (None, asked),
        *((n, e.asked[e.spans[0]]) for n, e in enumerate(elements)),
    ):
        for element, span in needs.items():
            if elements[element].spans[0] != span:
                is_later = span in elements[element].spans
                return element if is_later or number is None else number
    return None
