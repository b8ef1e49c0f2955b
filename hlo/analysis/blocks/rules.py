"""Block rules: which parts of its operands a block of an instruction needs, by opcode.

instruction, how its result is cut --RULES--> how each operand is; None: it cannot be cut so
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.analysis.blocks.block import PLACED, WHOLE, Block, Span
from hlo.analysis.fusibility import is_elementwise
from hlo.indexing.queries import Steps, own_steps, steps
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints, Shape
from hlo.ops.movement import IotaAttributes

MOST_STARTS = 2**31  # The first dimension that is too large for a start.


Spans = Sequence[Span]
Rule = Callable[[Instruction, Span, Block], "Spans | None"]


def can_be_cut(instruction: Instruction) -> bool:
    """Whether there is a rule for the opcode."""
    opcode = instruction.opcode
    is_known = opcode in RULES or opcode in WINDOWS or opcode == "fusion"
    return is_known or is_elementwise(instruction)


def has_windows(computation: Computation) -> bool:
    """Whether an instruction of a fused computation, or of one inside of it, is of WINDOWS."""
    waiting = [computation]
    while waiting:
        for instruction in waiting.pop().instructions:
            if instruction.opcode in WINDOWS:
                return True
            if instruction.opcode == "fusion":
                waiting += instruction.called_computations()
    return False


def operand_spans(instruction: Instruction, span: Span, block: Block) -> Spans | None:
    """How each operand is cut; None where there is no such block."""
    if not can_be_cut(instruction) or (
        span == PLACED and instruction.opcode != "dynamic-update-slice"
    ):
        return None
    rule = RULES.get(instruction.opcode) or WINDOWS.get(instruction.opcode, _led)
    return rule(instruction, span, block)


def is_whole_array(shape: Shape) -> bool:
    """Whether it is an array of static sizes and of whole bytes, or of truths."""
    dtype = shape.dtype
    return shape.is_array and not shape.is_dynamic and dtype.bits in (8 * dtype.item_bytes, 1)


def leads(shape: Shape, span: Span, block: Block) -> bool:
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
        one = led_span(own, operand.shape.dims, places)
        if one is None:
            return None
        found.append(tuple(span[place] for place in one))
    return found


def _kept_rows(instruction: Instruction, span: Span, block: Block) -> Spans | None:
    """Cut where every operand is as long as the result in the cut dimensions: one of a single row
    that stands among others has no dimension that is counted.
    """
    places = block.places(instruction.shape, span)
    if places is None:
        return None
    arrays = [o for o in instruction.operands if o.shape.rank == instruction.shape.rank]
    if not all(_spans_all(instruction.shape, array.shape, places) for array in arrays):
        return None
    return _led(instruction, span, block)


def _window(instruction: Instruction, span: Span, block: Block) -> Spans | None:
    """dynamic-slice, all of the cut dimensions: of a part of the array where they are its first
    ones, else of the whole array from where the block starts.
    """
    array, *starts = instruction.operands
    places = block.places(instruction.shape, span)
    if places is None or len(starts) != array.shape.rank:
        return None
    if not _spans_all(instruction.shape, array.shape, places):
        return None
    is_led = block.places(array.shape, span) == places
    if not is_led and not _are_starts(span, block):
        return None
    return [span if is_led else WHOLE, *[WHOLE] * len(starts)]


def _update(instruction: Instruction, span: Span, block: Block) -> Spans | None:
    """dynamic-update-slice, all of the cut dimensions: of a part of the array, or of its part of
    one that all blocks share.
    """
    array, update, *starts = instruction.operands
    own = block.all if span == PLACED else span
    places = block.places(update.shape, own)
    if places is None or len(starts) != array.shape.rank:
        return None
    if not _spans_all(update.shape, array.shape, places):
        return None
    is_fit = (
        _are_starts(own, block) if span == PLACED else block.places(array.shape, span) == places
    )
    return [span, own, *[WHOLE] * len(starts)] if is_fit else None


def _spans_all(window: Shape, array: Shape, places: Ints) -> bool:
    """Whether a window is as long as the array in some dimensions."""
    return all(window.dims[p] == array.dims[p] for p in places)


def _are_starts(span: Span, block: Block) -> bool:
    """Whether s32 holds where blocks start."""
    return all(block.lead[d] < MOST_STARTS for d in span)


def started(instruction: Instruction, span: Span, block: Block) -> dict[int, int]:
    """Of a window of a whole array, or of one that blocks share, the dimensions in which it begins
    where the block does, and which of the leading ones each is.
    """
    if not span or instruction.opcode not in ("dynamic-slice", "dynamic-update-slice"):
        return {}
    cut = WINDOWS[instruction.opcode](instruction, span, block)
    if cut is None or cut[0] == span != PLACED:
        return {}
    own = block.all if span == PLACED else span
    window = instruction.shape if span != PLACED else instruction.operands[1].shape
    return dict(zip(block.places(window, own) or (), own, strict=True))


def led_span(own: Steps, dims: Sequence[int], places: Sequence[int]) -> Span | None:
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
        one = led_span(own, shape.dims, places)
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
        one = led_span(own, shape.dims, at)
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
# Of what places elements elsewhere in their rows. Groups of block-fusion are without these: what
# is read beside them would be left behind.
WINDOWS: dict[str, Rule] = {
    "concatenate": _kept_rows,
    "dynamic-slice": _window,
    "dynamic-update-slice": _update,
    "pad": _kept_rows,
    "reverse": _kept_rows,
    "slice": _kept_rows,
}
