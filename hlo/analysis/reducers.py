"""Reducers: what a reduction's computation is known to be, and which windows accumulate."""

from __future__ import annotations

from msgspec import Struct

from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ops.table import Trait, opcodes

# Associative ops are commutative too, up to rounding.
_ASSOCIATIVE, _IDEMPOTENT = opcodes(Trait.ASSOCIATIVE), opcodes(Trait.IDEMPOTENT)
_TAKING_ONE = opcodes(Trait.TAKES_ONE)


class Reducer(Struct, frozen=True):
    """What is known of the computation of a reduction.

    opcodes: the op per result where each result k is op(acc_k, x_k), else empty.

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
        """Whether a long reduction loses accuracy by rounding."""
        return "add" in self.opcodes and self.reassociates

    @property
    def selects(self) -> bool:
        """Whether a result is one of the elements, hence needs no rounding."""
        return bool(self.opcodes) and all(opcode in _TAKING_ONE for opcode in self.opcodes)

    @property
    def name(self) -> str:
        """What it is called: its ops, or its computation where these are not all of it."""
        return " and ".join(dict.fromkeys(self.opcodes)) or self.computation.name

    @property
    def is_cheap(self) -> bool:
        return bool(self.opcodes)


def reducer_of(instruction: Instruction) -> Reducer:
    """What is known of a reduce's or reduce-window's computation."""
    computation = instruction["to_apply"]
    assert isinstance(computation, Computation)
    root = computation.root
    results = root.operands if root.opcode == "tuple" else (root,)
    parameters = computation.parameters
    count = len(parameters) // 2
    opcodes = tuple(r.opcode for r in results)
    plain = all(
        r.opcode in _ASSOCIATIVE and set(r.operands) == {parameters[k], parameters[count + k]}
        for k, r in enumerate(results)
    )
    if plain:
        # add and multiply of pred are or and and.
        idempotent = all(
            r.opcode in _IDEMPOTENT or (r.shape.dtype.is_pred and r.opcode in ("add", "multiply"))
            for r in results
        )
        return Reducer(computation, opcodes, reassociates=True, idempotent=idempotent)
    from hlo.analysis.selections import is_symmetric_selection, ordering_index  # few are neither

    if is_symmetric_selection(computation):
        return Reducer(computation, (), reassociates=True, idempotent=True)
    index = ordering_index(instruction) if instruction.opcode == "reduce" else None
    ordered = index is not None
    return Reducer(computation, (), reassociates=ordered, idempotent=ordered, ordered_by=index)


def scanned_dimension(instruction: Instruction) -> tuple[int, bool] | None:
    """The dimension that a reduce-window of one array scans, and whether it does so from the end;
    None for other windows, and for other instructions."""
    return grown_dimension(instruction) if instruction.shape.is_array else None


def grown_dimension(instruction: Instruction) -> tuple[int, bool] | None:
    """The same of one or more arrays: the window is as long as the dimension, and padded before
    it, or after it for reducers whose order is free.
    """
    if instruction.opcode != "reduce-window":
        return None
    from hlo.attributes.window import Window

    window = instruction.get("window")
    if not isinstance(window, Window):
        return None
    x = instruction.operands[0].shape
    result = instruction.shape.elements[0] if instruction.shape.is_tuple else instruction.shape
    if result.dims != x.dims or 0 in x.dims:
        return None
    if any(d.stride != 1 or d.base_dilation != 1 or d.window_dilation != 1 for d in window.dims):
        return None
    long = [k for k, d in enumerate(window.dims) if d.size > 1]
    if len(long) != 1 or window.dims[long[0]].size < x.dims[long[0]]:
        return None
    (k,) = long
    if any(d.pad_low or d.pad_high for j, d in enumerate(window.dims) if j != k):
        return None  # rows are shifted: padding of one end, cropped at the other
    d = window.dims[k]
    if (d.pad_low, d.pad_high) == (d.size - 1, 0):
        return k, False
    if (d.pad_low, d.pad_high) == (0, d.size - 1) and reducer_of(instruction).reassociates:
        return k, True
    return None
