"""Expression: what a fused kernel computes, seen through tuples, calls and fusions. No code.

    (instruction, path) --source--> the instruction that makes the value, or a leaf: an array in
    memory

What chooses a kernel's loops reads it (trace.py, chains.py); its evaluation on lanes is Elemental
(emitters/elemental.py).
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.isa.target import Target
from hlo.errors import HloError
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Opaque
from hlo.indexing.maps import Start
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal

Path = tuple[int, ...]
Node = tuple[Instruction, Path]  # a value: an instruction, which element of a tuple
# Ops that make no value of their own: `source` looks through them.
_LOOKED_THROUGH = frozenset({
    "get-tuple-element", "tuple", "opt-barrier", "domain", "add-dependency", "fusion", "call",
    "parameter",
})  # fmt: skip


def unsupported(instruction: Instruction, why: str = "in a loop kernel") -> HloError:
    """The one error by which a kernel of loops is declined."""
    return HloError("unsupported", f"{instruction.opcode} {why}", instruction.span)


def waits_in(computation: Computation, target: Target) -> bool:
    """Whether the machine does so, and numbers of the computation's program may be subnormal."""
    if not target.waits_for_subnormals:
        return False
    from hlo.analysis.underflow import may_underflow  # of some machines

    return may_underflow(computation)


class Leaf(Struct, frozen=True):
    """An array in memory: element type as it lies there, how many, its entry in the table (-1: it
    has none).
    """

    dtype: DType
    size: int
    number: int = -1

    @property
    def size_bytes(self) -> int:
        return self.size * self.dtype.item_bytes


class Chain(Struct, frozen=True):
    """Ops that are looked up together: members: those between source and root, operands first, the
    root the last.
    """

    source: Node
    root: Instruction
    members: tuple[Instruction, ...]


def moved_as(dtype: DType) -> DType:
    """The type that stands for elements which are only moved: the bits of narrow floats, a word for
    the two parts of a c64.
    """
    if dtype.is_pred or dtype.is_narrow_float:
        return dt.U16 if dtype.item_bytes == 2 else dt.U8
    return dt.U64 if dtype is dt.C64 else dtype


class Expression:
    """What a kernel computes, and which of its values are in memory.

    leaves: the values that are in memory.
    bound: a called computation's parameters -> what they stand for.
    entered: the computations that are the kernel's own, of which it hands on the root alone.
    is_raw: elements are moved only, so that they are seen as their bits.
    runs_once: whether a run of the program computes each of them once at the most.
    underflows_in: the computation that the kernel's instruction stands in, if its products may be
    subnormal, and keep the machine waiting.
    is_careful: whether the kernel runs where some have been.
    """

    def __init__(self, target: Target) -> None:
        self.target = target
        self.leaves: dict[Node, Leaf] = {}
        self.bound: dict[Instruction, Instruction] = {}
        self.entered: set[Computation] = set()
        self.is_raw = False
        self.runs_once = False
        self.underflows_in: Computation | None = None
        self.is_careful = False
        self.chains: dict[Instruction, Chain | None] = {}  # what is looked up, as far as asked
        self._starts: dict[object, Expr] = {}

    def storage(self, dtype: DType) -> DType:
        """The type as which elements are loaded and stored."""
        return moved_as(dtype) if self.is_raw else dtype

    def source(self, instruction: Instruction, path: Path) -> Node:
        """The instruction that makes the value: tuples, calls and parameters looked through."""
        while (instruction, path) not in self.leaves:
            if instruction.opcode not in _LOOKED_THROUGH:
                break
            match instruction.opcode:
                case "get-tuple-element":
                    path = (tuple_index(instruction), *path)
                    instruction = instruction.operands[0]
                case "tuple":
                    instruction, path = instruction.operands[path[0]], path[1:]
                case "opt-barrier" | "domain" | "add-dependency":
                    instruction = instruction.operands[0]
                case "fusion" | "call":
                    instruction = self._entered(instruction)
                case "parameter" if instruction in self.bound:
                    instruction = self.bound[instruction]
                case _:
                    break
        return instruction, path

    def name(self, operand: Instruction, path: Path = ()) -> str:
        """p0, p1, .. for what is read from memory, else the instruction that makes the array."""
        source, path = self.source(operand, path)
        leaf = self.leaves.get((source, path))
        return source.name if leaf is None or leaf.number < 0 else f"p{leaf.number}"

    def _entered(self, call: Instruction) -> Instruction:
        """The root of a called computation, its parameters bound to the call's operands."""
        (callee,) = call.called_computations()
        for parameter, operand in zip(callee.parameters, call.operands, strict=True):
            if self.bound.setdefault(parameter, operand) is not operand:
                raise unsupported(call, "of a computation that is called twice")
        self.entered.add(callee)
        return callee.root

    def known_start(self, operand: Instruction, low: int, high: int) -> Expr | None:
        """The start that an operand gives whatever the run brings: of a window that fits in one
        place only, or a constant's, clamped.
        """
        if low == high:
            return affine.number(low)
        source, _ = self.source(operand, ())
        if source.opcode != "constant" or source.shape.dims or (source, ()) in self.leaves:
            return None
        literal = source["literal"]
        if not isinstance(literal, Literal) or literal.is_elided:
            return None
        return affine.number(max(low, min(int(literal.array.item()), high)))

    def starts(self, instruction: Instruction) -> Start:
        """The starts of an op with some that are known in the run only, as symbols."""

        def start(operand: int, index: Index, low: int, high: int) -> Expr:
            known = self.known_start(instruction.operands[operand], low, high)
            if known is not None:
                return known
            key = (instruction.operands[operand], index, low, high)
            if key not in self._starts:
                self._starts[key] = affine.of(Opaque("start", low, high, index))
            return self._starts[key]

        return start


def dims_of(instruction: Instruction, path: Path) -> tuple[int, ...]:
    """Dimensions of a tuple's element."""
    shape = instruction.shape
    for k in path:
        shape = shape.elements[k]
    return shape.dims


def tuple_index(instruction: Instruction) -> int:
    """Which element a get-tuple-element takes."""
    index = instruction["index"]
    assert isinstance(index, int), "an INT64"
    return index


def keeps_elements(instruction: Instruction) -> bool:
    """Whether a movement op moves whole elements; a bitcast may regroup their bytes."""
    size = instruction.shape.size
    return instruction.opcode != "bitcast" or instruction.operands[0].shape.size == size
