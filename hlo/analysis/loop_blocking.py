"""Loop blocking: whether each block can run a loop by itself, and how the loop's state is cut.

    while, Block --loop_spans--> the span of each element of the state

A recurrence over the rows of a batch needs of each row nothing but the row: a block takes its rows
through all trips. What all rows share (weights, a counter) every block has whole; of an array that
trips fill row by row (a scan's results) each block writes its part. What cannot be known before is
found from the roots of the body: an element that one of them needs in another way than it was
taken to be cut is tried the next way, until all agree.
"""

from __future__ import annotations

from hlo.analysis.block import PLACED, WHOLE, Block, Cut, Span
from hlo.analysis.blocking import OUTERMOST, Needs, fused_cuts, is_memory, loop_of
from hlo.analysis.loop_state import element_index
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction

Spans = tuple[Span, ...]


def loop_cuts(element: Instruction, span: Span, block: Block) -> list[Cut] | None:
    """What a loop starts with, and how it is cut, if that gives an element of its last state cut by
    a span; None where it does not."""
    loop = loop_of(element)
    assert loop is not None, "an element of a loop's state"
    spans = loop_spans(loop, block)
    if spans is None or spans[element_index(element)] != span:
        return None
    return list(zip(loop.operands[0].operands, spans, strict=True))


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
    elements = [
        _Element(start, root, block)
        for start, root in zip(state.operands, body.root.operands, strict=True)
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

    def __init__(self, start: Instruction, root: Instruction, block: Block) -> None:
        self.start = start
        self.asked: dict[Span, Asked] = {}
        assert root.computation is not None, "a root stands in a body"
        for span in (block.all, PLACED, WHOLE):
            if span == PLACED and not is_memory(start):
                continue
            found = _asked(root.computation, root, span, block)
            if found is not None:
                self.asked[span] = found
        self.spans = list(self.asked)


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
