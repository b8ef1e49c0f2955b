"""Reducers: what a reduction's computation is known to be, and its application to lanes."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from hlo.analysis.selections import is_symmetric_selection, ordering_index
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes, joined, parts
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction

# Associative and commutative up to rounding; the second column: f(x, x) = x.
_KNOWN = {
    "add": False, "multiply": False, "maximum": True, "minimum": True, "and": True, "or": True,
    "xor": False,
}  # fmt: skip


class Reducer(Struct, frozen=True):
    """opcodes: the op per result where each result k is op(acc_k, x_k), else empty.

    reassociates: elements may be taken in any order. idempotent: and the initial value often.
    ordered_by: the result, if any, by which partial results must be ordered where they are joined,
    and along which elements must ascend.
    """

    computation: Computation
    opcodes: tuple[str, ...]
    reassociates: bool
    idempotent: bool
    ordered_by: int | None = None

    @property
    def sums(self) -> bool:
        """Whether a long fold loses accuracy by rounding."""
        return "add" in self.opcodes and self.reassociates

    @property
    def selects(self) -> bool:
        """Whether a result is one of the elements, hence needs no rounding."""
        return bool(self.opcodes) and set(self.opcodes) <= {"maximum", "minimum"}

    @property
    def name(self) -> str:
        """What it is called: its ops, or its computation where these are not all of it."""
        return " and ".join(dict.fromkeys(self.opcodes)) or self.computation.name

    @property
    def is_cheap(self) -> bool:
        return bool(self.opcodes)

    def apply(
        self, elemental: Elemental, a: Sequence[Lanes], x: Sequence[Lanes], *, rounds: bool = True
    ) -> list[Lanes]:
        """f(a, x). rounds: results rounded to their type (else kept wide where that is allowed)."""
        parameters = self.computation.parameters
        values: dict[Instruction, tuple[Lanes, ...]] = {
            p: (v,) for p, v in zip(parameters, (*a, *x), strict=True)
        }
        rounds = rounds or not self.opcodes
        return list(elemental.inlined(self.computation.root, values, rounds=rounds))

    def join(
        self, elemental: Elemental, a: Sequence[Lanes], b: Sequence[Lanes], kinds: Sequence[DType]
    ) -> list[Lanes]:
        """f of two partial results of one fold, the earlier one on the left where that matters."""
        if self.ordered_by is not None:
            w, k = elemental.nest.w, self.ordered_by
            (x,), (y,) = parts(a[k]), parts(b[k])
            order = "slt" if kinds[k].is_signed else "ult"
            swaps = w.compare("icmp " + order, y, x)
            a, b = _swapped(w, swaps, a, b), _swapped(w, swaps, b, a)
        return self.apply(elemental, a, b, rounds=False)

    def identities(self, w: Writer, kinds: Sequence[DType]) -> list[Lanes]:
        """e with f(e, x) = x for all x, per result."""
        pairs = zip(self.opcodes, kinds, strict=True)
        return [_identity(w, opcode, kind) for opcode, kind in pairs]


def reducer(instruction: Instruction) -> Reducer:
    """What is known of a reduce's or reduce-window's computation."""
    computation = instruction["to_apply"]
    assert isinstance(computation, Computation)
    root = computation.root
    results = root.operands if root.opcode == "tuple" else (root,)
    parameters = computation.parameters
    count = len(parameters) // 2
    opcodes = tuple(r.opcode for r in results)
    plain = all(
        r.opcode in _KNOWN and set(r.operands) == {parameters[k], parameters[count + k]}
        for k, r in enumerate(results)
    )
    if plain:
        idempotent = all(_KNOWN[o] for o in opcodes)
        kinds = [r.shape.dtype for r in results]
        # add and multiply of pred are or and and.
        idempotent = idempotent or all(
            _KNOWN[o] or (k.is_pred and o in ("add", "multiply"))
            for o, k in zip(opcodes, kinds, strict=True)
        )
        return Reducer(computation, opcodes, reassociates=True, idempotent=idempotent)
    if is_symmetric_selection(computation):
        return Reducer(computation, (), reassociates=True, idempotent=True)
    index = ordering_index(instruction) if instruction.opcode == "reduce" else None
    ordered = index is not None
    return Reducer(computation, (), reassociates=ordered, idempotent=ordered, ordered_by=index)


def _swapped(w: Writer, swaps: Value, x: Sequence[Lanes], y: Sequence[Lanes]) -> list[Lanes]:
    """y where swaps, else x."""
    return [
        joined([w.select(swaps, v, u) for u, v in zip(parts(p), parts(q), strict=True)])
        for p, q in zip(x, y, strict=True)
    ]


def _identity(w: Writer, opcode: str, kind: DType) -> Lanes:
    if kind.is_complex:
        part = types.compute_scalar(kind)
        real = 1.0 if opcode == "multiply" else -0.0
        return w.float(real, part), w.float(0.0 if opcode == "multiply" else -0.0, part)
    scalar = types.compute_scalar(kind)
    if kind.is_float:
        numbers = {"add": -0.0, "multiply": 1.0, "maximum": float("-inf"), "minimum": float("inf")}
        return w.float(numbers[opcode], scalar)
    if kind.is_pred:
        value = "true" if opcode in ("multiply", "and", "minimum") else "false"
        return Value(value, "i1")
    least, greatest = kind.int_range
    ones = -1 if kind.is_signed else greatest
    wholes = {"add": 0, "multiply": 1, "maximum": least, "minimum": greatest, "and": ones}
    return w.int(wholes.get(opcode, 0), scalar)


def half(w: Writer, value: Value, count: int, which: int) -> Value:
    """The lower (0) or upper (1) `count` lanes."""
    if count == 1:
        return w.extract(value, which)
    order = ", ".join(f"i32 {which * count + lane}" for lane in range(count))
    type = vector_of(value.scalar_type, count)
    return w.pure(
        type, f"shufflevector {value.typed}, {value.type} poison, <{count} x i32> <{order}>"
    )


def halves(w: Writer, sources: Sequence[Value], block: int, which: int) -> Value:
    """Of one or two vectors, the lower (0) or upper (1) halves of all blocks of lanes."""
    first, last = sources[0], sources[-1]
    step = block // 2
    lanes = [
        number * first.lanes + start + which * step + lane
        for number in range(len(sources))
        for start in range(0, first.lanes, block)
        for lane in range(step)
    ]
    order = ", ".join(f"i32 {lane}" for lane in lanes)
    type = vector_of(first.scalar_type, len(lanes))
    return w.pure(
        type, f"shufflevector {first.typed}, {last.typed}, <{len(lanes)} x i32> <{order}>"
    )


def turned(w: Writer, value: Value, step: int) -> Value:
    """Lane k from lane k + step; the last ones are any lanes."""
    order = ", ".join(f"i32 {(lane + step) % value.lanes}" for lane in range(value.lanes))
    shuffle = f"shufflevector {value.typed}, {value.type} poison, <{value.lanes} x i32> <{order}>"
    return w.pure(value.type, shuffle)
