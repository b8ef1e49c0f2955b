"""Lane loops: whiles over arrays whose elements go through the loop each by itself.

    while any(p(x)): x = select(p(x), f(x), x)     ==     for every element: while p(x): x = f(x)

Body and condition act element by element, but for one `or` over all elements in the condition, and
for look-ups of an element's place in tables that no trip changes (a binary search's steps), and for
rows that a trip reads and writes (analysis/while_loops/row_loops.py). Such a loop may run a few
elements at a time, from its start to its end: where the condition looks at scalars alone, all
elements take the same trips; where it asks whether any element goes on, an element that does not
has to stay what it is while the others go on. That is proved from the body, under the assumption
that the element's predicate is false. What a trip reads of tables changes nothing of that, and rows
are written only where all elements take a known number of trips.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from msgspec import Struct

from hlo.analysis.fingerprint import Fingerprints
from hlo.analysis.reducers import reducer_of
from hlo.analysis.while_loops.loop_state import element_index, unchanged_elements
from hlo.analysis.while_loops.row_loops import (
    RowWrite,
    are_lanes,
    is_over,
    is_row_read,
    written_rows,
)
from hlo.ir.computation import Computation
from hlo.ir.dtype import BF16
from hlo.ir.graph import post_order
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.shape import Ints, Shape
from hlo.ops.table import Trait, has_trait

MOST_MEMBERS = 256  # The most instructions of body and condition: their numbers are in registers.
Told = list[int | None]
# What a value is known to be, where it is no element of the state: all bits 0, all bits 1.
_ZERO, _ONE = -1, -2


class LaneLoop(Struct, frozen=True):
    """A while whose elements go through it each by itself.

    dims: of all arrays of the state. terms: scalars of the condition that all have to hold;
    predicate: the elements of which one has to hold besides, if the condition looks at elements.
    changed: which elements of the state a trip changes, written ones aside; tables: those that no
    trip changes and that are looked up or only handed on, whatever their dimensions are; written:
    those of which each trip writes a row.
    """

    dims: Ints
    terms: tuple[Instruction, ...]
    predicate: Instruction | None
    changed: frozenset[int]
    tables: frozenset[int] = frozenset()
    written: dict[int, RowWrite] = {}


def body_and_condition(loop: Instruction) -> tuple[Computation, Computation]:
    """What a while repeats, and what it asks before."""
    body, condition = loop.attributes["body"], loop.attributes["condition"]
    assert isinstance(body, Computation), "a while has a body"
    assert isinstance(condition, Computation), "a while has a condition"
    return body, condition


def lane_loop(loop: Instruction) -> LaneLoop | None:
    """What is known of a while whose elements can go through it one by one, else None.

    O(instructions of body and condition).
    """
    found = _looked_at(loop)
    return None if found is None or found.written else found


def is_asked_in_lanes(loop: Instruction, found: LaneLoop) -> bool:
    """Whether of the state only what has an element in each lane is asked for: a counter has none,
    and a table has others.
    """
    is_whole = not loop.users or any(u.opcode != "get-tuple-element" for u in loop.users)
    asked = loop.shape.elements if is_whole else tuple(u.shape for u in loop.users)
    return all(shape.dims == found.dims for shape in asked)


def row_loop(loop: Instruction) -> LaneLoop | None:
    """The same of a while that writes rows besides: no fusion but its own holds it."""
    found = _looked_at(loop)
    return found if found is not None and found.written else None


def row_loop_of(fusion: Instruction) -> Instruction | None:
    """The while that writes rows which a fusion is: its results are elements of the loop's state
    that trips change, its start are the fusion's operands, slices of these, and constants.
    """
    if fusion.opcode != "fusion":
        return None
    (callee,) = fusion.called_computations()
    root = callee.root
    results = root.operands if root.opcode == "tuple" else (root,)
    loops = {r.operands[0] for r in results if r.opcode == "get-tuple-element"}
    if len(loops) != 1 or any(r.opcode != "get-tuple-element" for r in results):
        return None
    (loop,) = loops
    if loop.opcode != "while" or loop.operands[0].opcode != "tuple":
        return None
    around = {root, loop, loop.operands[0], *results}
    starts = [m for m in callee.instructions if m not in around]
    sources = [m for m in starts if m.opcode not in ("broadcast", "slice")]
    if any(m.opcode not in ("parameter", "constant") for m in sources):
        return None
    found = row_loop(loop)
    if (
        found is None
        or not _are_tables(loop, found, starts)
        or any(not r.shape.is_array or not r.shape.dims for r in results)
    ):
        return None
    return (
        loop if found.changed | found.written.keys() >= set(map(element_index, results)) else None
    )


def _are_tables(loop: Instruction, found: LaneLoop, starts: list[Instruction]) -> bool:
    """Whether the slices among what a loop begins with are such of parameters, of which trips read
    rows and no more.
    """
    sliced = {m for m in starts if m.opcode == "slice"}
    begins = enumerate(loop.operands[0].operands)
    return all(m.operands[0].opcode == "parameter" for m in sliced) and all(
        k in found.tables for k, o in begins if o in sliced
    )


def _looked_at(loop: Instruction) -> LaneLoop | None:
    if not loop.shape.is_tuple or any(not s.is_array for s in loop.shape.elements):
        return None
    body, condition = body_and_condition(loop)
    if body.root.opcode != "tuple" or len(body) + len(condition) > MOST_MEMBERS:
        return None
    tables, written = _tables(body, condition), written_rows(loop)
    others = tables | written.keys()
    state = [s for k, s in enumerate(loop.shape.elements) if k not in others]
    all_dims = {s.dims for s in state if s.dims}
    if len(all_dims) != 1 or not all(map(_is_in_lanes, state)):
        return None
    (dims,) = all_dims
    if not all(are_lanes(write, dims) for write in written.values()):
        return None
    terms, asked = _terms(condition)
    if len(asked) > 1 or not all(_is_any(r, dims) for r in asked):
        return None
    ends = {*asked, *_above(condition, asked), *(w.update for w in written.values())}
    ends |= {w.stack for w in written.values() if len(w.pieces) > 1}
    members = [m for c in (body, condition) for m in post_order(c) if m not in ends]
    if not all(_is_held(m, dims, tables) or m is body.root for m in members):
        return None
    kept = {element_index(e) for e in unchanged_elements(body)}
    changed = frozenset(range(len(loop.shape.elements))) - kept - _handed_on(body) - written.keys()
    predicate = asked[0].operands[0] if asked else None
    found = LaneLoop(dims, terms, predicate, changed, tables, written)
    return found if predicate is None or _stays(found, loop, predicate) else None


def _is_in_lanes(shape: Shape) -> bool:
    """Whether registers keep all bits of an element from trip to trip: not those of every NaN of
    narrow floats."""
    return not shape.is_dynamic and (shape.dtype is BF16 or not shape.dtype.is_narrow_float)


def _handed_on(body: Computation) -> set[int]:
    """Elements that the root hands on, and that nothing else reads."""
    elements = enumerate(body.root.operands)
    return {k for k, o in elements if o.opcode == "get-tuple-element" and element_index(o) == k}


def _tables(body: Computation, condition: Computation) -> frozenset[int]:
    """Arrays of the state that no trip changes and that nothing but look-ups reads elements of."""
    kept = {element_index(e) for e in unchanged_elements(body)} | _handed_on(body)
    for read in (*body.instructions, *condition.instructions):
        if read.opcode == "get-tuple-element" and not all(
            _stays_in_place(read, body.root)
            if user is body.root
            else user.opcode in ("gather", "dynamic-slice") and read not in user.operands[1:]
            for user in read.users
        ):
            kept.discard(element_index(read))
    elements = body.root.shape.elements
    return frozenset(k for k in kept if elements[k].is_array and elements[k].dims)


def _stays_in_place(read: Instruction, root: Instruction) -> bool:
    """Whether the root hands an element of the state on as the same element, and as no other."""
    return all(k == element_index(read) for k, o in enumerate(root.operands) if o is read)


def is_lookup(member: Instruction, dims: Ints) -> bool:
    """Whether each element takes one element of a table, at a place that it says."""
    if member.opcode != "gather":
        return False
    sizes, (_, places) = member["slice_sizes"], member.operands
    assert isinstance(sizes, tuple), "slice_sizes is a list of integers"
    return all(n == 1 for n in sizes) and _is_over(member, dims) and _is_over(places, dims)


def _is_over(value: Instruction, dims: Ints) -> bool:
    """Whether a value is an array of these dimensions, those of one element aside."""
    return value.shape.is_array and is_over(value.shape.dims, dims)


def _is_number(value: Instruction, dims: Ints) -> bool:
    """Whether a value is one number for all lanes."""
    shape = value.shape
    return shape.is_array and shape.size == 1 and (not shape.dims or not is_over(shape.dims, dims))


def _terms(condition: Computation) -> tuple[tuple[Instruction, ...], list[Instruction]]:
    """What has to hold for the loop to go on: scalars, and reductions."""
    scalars: dict[Instruction, None] = {}
    asked: dict[Instruction, None] = {}
    stack = [condition.root]
    while stack:
        top = stack.pop()
        if top.opcode == "and":
            stack += reversed(top.operands)
        else:
            (asked if top.opcode == "reduce" else scalars)[top] = None
    return tuple(scalars), list(asked)


def _above(condition: Computation, asked: list[Instruction]) -> set[Instruction]:
    """The conjunctions that rest on the reductions."""
    found = set(asked)
    for member in post_order(condition) if asked else ():
        if member.opcode == "and" and not found.isdisjoint(member.operands):
            found.add(member)
    return found


def _is_any(reduce: Instruction, dims: Ints) -> bool:
    """Whether a reduction says if any element of an array of these dimensions is true."""
    if len(reduce.operands) != 2 or "control-predecessors" in reduce.attributes:
        return False
    array, first = reduce.operands
    is_all = not reduce.shape.dims and array.shape.dims == dims and array.shape.dtype.is_pred
    return is_all and reducer_of(reduce).opcodes == ("or",) and _known_constant(first) == _ZERO


def _is_held(member: Instruction, dims: Ints, tables: frozenset[int]) -> bool:
    """Whether a member of body or condition acts on each element by itself."""
    if "control-predecessors" in member.attributes:
        return False
    match member.opcode:
        case "parameter":
            return True
        case "get-tuple-element":
            return member.operands[0].opcode == "parameter"
        case "constant":
            return _scalar(member) is not None
    if is_lookup(member, dims) or is_row_read(member, dims):
        table = member.operands[0]
        return table.opcode == "get-tuple-element" and element_index(table) in tables
    values = [member, *member.operands]
    if not all(_is_number(v, dims) or _is_over(v, dims) for v in values):
        return False
    keeps = all(_is_number(o, dims) == _is_number(member, dims) for o in member.operands)
    match member.opcode:
        case "broadcast":
            return _is_number(member.operands[0], dims) or keeps
        case "copy" | "reshape" | "bitcast-convert":
            return keeps
    return has_trait(member, Trait.ELEMENTWISE)


def elementwise_members(loop: Instruction) -> list[Instruction]:
    """The ops of a trip."""
    return [
        m
        for c in body_and_condition(loop)
        for m in c.instructions
        if has_trait(m, Trait.ELEMENTWISE)
    ]


# -- the proof ---------------------------------------------------------------------------------


def _stays(found: LaneLoop, loop: Instruction, predicate: Instruction) -> bool:
    """Whether an element whose predicate is false is not changed by a trip, nor the predicate."""
    (start,), (body, _) = loop.operands, body_and_condition(loop)
    starts = start.operands if start.opcode == "tuple" else ()
    numbers = _Numbers({k: o for k, o in enumerate(starts) if k not in found.changed})
    if any(k in found.changed for k in _scalars_behind(predicate)):
        return False
    known = dict(_falsified(numbers, predicate))
    facts: dict[Instruction, int | None] = {}
    for member in post_order(body):
        facts[member] = known.get(numbers.of(member), _fact(member, facts))
    own = numbers.element_of(predicate)
    for k in found.changed:
        new = body.root.operands[k]
        is_still = facts[new] == k or (k == own and facts[new] == _ZERO)
        if new.shape.dims and not is_still:
            return False
    return True


class _Numbers:
    """A number for every value of body or condition, equal for what is computed alike.

    starts: what elements that no trip changes are before the loop; some may be the same.
    """

    def __init__(self, starts: Mapping[int, Instruction]) -> None:
        self._starts = starts
        self._prints = Fingerprints()
        self._keys: dict[object, int] = {}
        self._known: dict[Instruction, int] = {}

    def of(self, instruction: Instruction) -> int:
        """The number of a value; operands first."""
        if instruction not in self._known:
            assert instruction.computation is not None, "a member of a computation"
            for member in post_order(instruction.computation):
                self._known[member] = self._keys.setdefault(self._key(member), len(self._keys))
        return self._known[instruction]

    def _key(self, member: Instruction) -> object:
        if member.opcode == "parameter":
            return "state"
        if member.opcode == "get-tuple-element" and element_index(member) in self._starts:
            return self._starts[element_index(member)]
        return self._prints.of(member), tuple(self._known[o] for o in member.operands)

    def element_of(self, value: Instruction) -> int | None:
        """Which element of the state a value is."""
        return element_index(value) if value.opcode == "get-tuple-element" else None


def _falsified(numbers: _Numbers, predicate: Instruction) -> Iterator[tuple[int, int]]:
    """What is known of values where a predicate is false."""
    stack = [(predicate, _ZERO)]
    while stack:
        top, fact = stack.pop()
        yield numbers.of(top), fact
        if top.opcode == "not":
            stack.append((top.operands[0], _ZERO if fact == _ONE else _ONE))
        elif top.opcode == ("or" if fact == _ZERO else "and"):
            stack += [(o, fact) for o in top.operands]


def _scalars_behind(predicate: Instruction) -> Iterator[int]:
    """The scalar elements of the state on which a predicate rests."""
    stack, seen = [predicate], {predicate}
    while stack:
        top = stack.pop()
        if top.opcode == "get-tuple-element" and not top.shape.dims:
            yield element_index(top)
        for operand in top.operands:
            if operand not in seen:
                seen.add(operand)
                stack.append(operand)


def _scalar(value: Instruction) -> Literal | None:
    """The literal of a scalar constant."""
    literal = value.get("literal")
    if value.opcode != "constant" or not value.shape.is_scalar:
        return None
    assert isinstance(literal, Literal), "a constant holds a literal"
    return None if literal.is_elided else literal


def _known_constant(value: Instruction) -> int | None:
    """Whether a scalar constant is zero or, of truth values, one."""
    literal = _scalar(value)
    if literal is None or not _is_exact(literal.shape):
        return None
    if not literal.array.item():
        return _ZERO
    return _ONE if literal.shape.dtype.is_pred else None


def _is_exact(shape: Shape) -> bool:
    """Whether zero is the one number that adds nothing."""
    return shape.is_array and (shape.dtype.is_integral or shape.dtype.is_pred)


def _fact(member: Instruction, facts: dict[Instruction, int | None]) -> int | None:
    """Which element of the state a value is, or that all its bits are 0 or 1; None: neither."""
    match member.opcode:
        case "constant":
            return _known_constant(member)
        case "get-tuple-element":
            return element_index(member)
    read = _FACTS.get(member.opcode)
    told = [facts[o] for o in member.operands]
    return None if read is None else read(told, is_exact=_is_exact(member.shape))


def _kept(told: Told, *, is_exact: bool) -> int | None:
    return told[0]


def _converted(told: Told, *, is_exact: bool) -> int | None:
    return _ZERO if is_exact and told[0] == _ZERO else None


def _negated(told: Told, *, is_exact: bool) -> int | None:
    """All bits turned over."""
    return {_ZERO: _ONE, _ONE: _ZERO}.get(told[0]) if told[0] is not None else None


def _multiplied(told: Told, *, is_exact: bool) -> int | None:
    return _ZERO if is_exact and _ZERO in told else None


def _added(told: Told, *, is_exact: bool) -> int | None:
    return told[1 - told.index(_ZERO)] if is_exact and _ZERO in told else None


def _joined(told: Told, *, is_exact: bool) -> int | None:
    return _ONE if _ONE in told else _added(told, is_exact=is_exact)


def _subtracted(told: Told, *, is_exact: bool) -> int | None:
    return told[0] if is_exact and told[1] == _ZERO else None


def _selected(told: Told, *, is_exact: bool) -> int | None:
    condition, then, otherwise = told
    if condition == _ZERO:
        return otherwise
    return then if condition == _ONE or then == otherwise else None


_FACTS: dict[str, Callable[..., int | None]] = {
    "copy": _kept,
    "reshape": _kept,
    "broadcast": _kept,
    "convert": _converted,
    "not": _negated,
    "and": _multiplied,
    "multiply": _multiplied,
    "or": _joined,
    "add": _added,
    "xor": _added,
    "subtract": _subtracted,
    "select": _selected,
}
