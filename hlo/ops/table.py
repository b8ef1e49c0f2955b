"""The op table's rows: what a row holds, how a family file enters one, how others look one up.

    class Transpose(Op): opcode, arity, record, traits, infer, evaluate     (a structural op)
    elementwise("add", arity=2, numpy=..., ...)                     (a row, in ops/elementwise.py)

The third reading, emit, lives in hlo/backend/emitters/, which may import llvmlite.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from enum import Enum, Flag, auto
from typing import Any, ClassVar

from msgspec import Struct

from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.attributes import Attr, Attributes, attrs_of, calling_fields
from hlo.process.entered import Entered

Number = bool | int | float | complex


class Trait(Flag):
    """Facts about an op that passes and backend ask for instead of listing opcodes."""

    NONE = 0
    ELEMENTWISE = auto()  # result[i] depends on operands at i only
    COMMUTATIVE = auto()
    ASSOCIATIVE = auto()
    IDEMPOTENT = auto()  # f(x, x) = x
    CHOOSES = auto()  # compares, picks or is logic: orders of a few values tell all of it
    TAKES_ONE = auto()  # the result is one of the operands, of any type
    MOVEMENT = auto()  # copies bits, computes nothing
    FREE = auto()  # no code: tuple, get-tuple-element, bitcast, parameter, ...
    SOURCE = auto()  # its value is there before the run, or is none
    SIDE_EFFECT = auto()  # must stay, must keep its order
    CALLS = auto()  # runs other computations as control flow (call, while, conditional)
    APPLIES = auto()  # runs `to_apply`, or the like, on elements (a reducer, a comparator)
    COLLECTIVE = auto()
    TRANSFERS = auto()  # from or to the host or one other device, in the order of tokens
    RANDOM = auto()
    EXPANDED = auto()  # passes write it as other ops

    # Where a result's element comes from, for what has an index map (hlo/indexing/maps.py): at most
    # one of these.
    SAME_PLACE = auto()
    REPEATS = auto()  # an element is met again and again
    REGROUPS = auto()  # the same place of the row-major order
    PERMUTES = auto()  # dimensions, or the order along some
    CUTS = auto()  # a part at a known place
    CUTS_AT = auto()  # a part at a place that the run computes
    JOINS = auto()  # one part of several operands
    PADS = auto()
    UPDATES = auto()  # an array but for a part
    PICKS = auto()  # at places that an array lists

    # What a fusion may hold beside elementwise ops: any; one that finishes a contraction.
    FUSES = auto()
    FINISHES = auto()

    # Specials on narrow types, which are computed in f32 and rounded.
    EXACT = auto()  # an operand's value, but for its sign, or a number that every type has
    EXACT_IN_HALVES = auto()  # no more bits than the operands, of which 16 bits hold any exponent
    IN_HALVES = auto()  # an instruction on f16 gives what f32 rounded to f16 is
    IEEE = auto()  # one instruction: a NaN that it gives is an operand's, or the default one
    STEADY = auto()  # subnormal numbers do not keep it waiting
    KEEPS_TINY = auto()  # a function that is x, to the last bit, where x is subnormal
    LEVEL_AT_ZERO = auto()  # a function that is the same number for all subnormal x
    TRANSCENDENTAL = auto()  # a function that no few multiplications and additions are: exp, sqrt

    # What verification asks.
    CARRIES = auto()  # an asynchronous value may pass through on its way from start to done
    BUFFERS = auto()  # takes or gives buffers, b(..)
    SAME_LAYOUT = auto()  # the result has operand 0's layout
    MOVES_MEMORY = auto()  # between the memories of host and device


INDEX_MAPS = (
    Trait.SAME_PLACE | Trait.REPEATS | Trait.REGROUPS | Trait.PERMUTES | Trait.CUTS | Trait.CUTS_AT
    | Trait.JOINS | Trait.PADS | Trait.UPDATES | Trait.PICKS
)  # fmt: skip


class KernelFamily(Enum):
    """How an instruction is compiled: without code, as control flow, by kernels, or on the host."""

    FREE = "free"  # its value is (part of) an operand's, a constant's or an argument's bytes
    CONTROL = "control"  # while, conditional, call: native control flow
    LOOPS = "loops"  # loops over the elements, each an expression (kernels/fused_loops.py)
    JOINED = "joined"  # a concatenate of very many operands
    CONTRACTION = "contraction"
    SORT = "sort"
    SCATTER = "scatter"
    WINDOW = "window"
    FACTOR = "factor"
    FOURIER = "fourier"
    BLOCKED = "blocked"  # a fusion of whole kernels
    HOST = "host"  # the reference's evaluate, called back from the run


class Cost(Struct, frozen=True):
    """What an element takes on this back end.

    operations: in additions of f32: vector instructions for sixteen elements, or what takes as
    long, measured beside an exponential's 24 on an array that the nearest caches hold. A chain of
    ops on narrow floats is looked up in a table where these are more than a look-up takes.
    latency: cycles from the operand to the result; 0 is one instruction's of the machine.
    divides: the divider does it, which works beside the other units.
    """

    operations: int = 1
    latency: int = 0
    divides: bool = False

    @property
    def is_high(self) -> bool:
        """Whether it is worth keeping a result rather than computing it again."""
        return self.operations > _FEW_OPERATIONS


_FEW_OPERATIONS = 9
NOTHING, ONE_OPERATION = Cost(0), Cost()


class _Attrs:
    """What the row's record says."""

    def __get__(self, row: None, owner: type[Op]) -> Mapping[str, Attr]:
        found = attrs_of(owner.record)
        setattr(owner, "attrs", found)  # noqa: B010  # found in the row itself from now on
        return found


class Op:
    """A row of the table. Subclasses that set `opcode` enter themselves; each is used unbuilt.

    record: the opcode's own attributes (hlo/ops/attributes.py); attrs: what it says of each.
    infer, evaluate and check get one filled as `attrs=` if there are any: called computations as
    program shapes (in evaluate: as functions, hlo/ops/callee.py).
    inferable: whether text may leave the result's shape out.
    takes_shape: infer and evaluate get the written result shape as `shape=` (None in infer when the
    text has none): ops whose result does not follow from the operands.
    takes_operand_shapes: evaluate gets `operand_shapes=` (the operands' written shapes with their
    layouts and bounds), for ops whose value depends on them.
    takes_context: evaluate gets `context=` (the interpreter's: devices, random state, host queues).
    check: an optional static method check(*operand_shapes, shape, attrs) with the constraints
    that verification adds to those of infer; `shape` is the written result shape.
    ulp: error budget of a float result, in units of the last place.
    family: how most of its instructions are compiled; layouts and types decide for each
    (hlo/analysis/legality.py). Where a row says nothing its traits do.
    cost: of an element; where a row says nothing, nothing for what moves or is free, else one.
    identity: of an associative op, the number e of a type with f(e, x) = x for every x.
    done: the opcode that ends what this one starts.
    constraints: by label, those that the docstring does not say: a family's, the same for each row.
    """

    opcode: ClassVar[str] = ""
    arity: ClassVar[int | None] = None
    record: ClassVar[type[Attributes]] = Attributes
    attrs = _Attrs()
    traits: ClassVar[Trait] = Trait.NONE
    inferable: ClassVar[bool] = True
    takes_shape: ClassVar[bool] = False
    takes_operand_shapes: ClassVar[bool] = False
    takes_context: ClassVar[bool] = False
    ulp: ClassVar[float] = 0.0
    family: ClassVar[KernelFamily]
    cost: ClassVar[Cost]
    identity: ClassVar[Callable[[DType], Number] | None] = None
    done: ClassVar[str] = ""
    constraints: ClassVar[Mapping[str, str]] = {}

    infer: ClassVar[Callable[..., object]]
    evaluate: ClassVar[Callable[..., object]]
    check: ClassVar[Callable[..., None]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "opcode" in cls.__dict__:
            enter(cls.opcode, cls)


OPS: Entered[str, type[Op]] = Entered()


def enter(opcode: str, row: type[Op]) -> None:
    """Put a row into the table."""
    if not hasattr(row, "family"):
        value = row.traits._value_
        row.family = next(
            (family for trait, family in _FAMILIES if value & trait._value_), KernelFamily.HOST
        )
    if not hasattr(row, "cost"):
        row.cost = NOTHING if row.traits._value_ & _MOVES._value_ else ONE_OPERATION
    OPS.enter(opcode, row)


_MOVES = Trait.MOVEMENT | Trait.FREE
_FAMILIES = (
    (Trait.CALLS, KernelFamily.CONTROL),
    (Trait.FREE, KernelFamily.FREE),
    (Trait.ELEMENTWISE | Trait.MOVEMENT, KernelFamily.LOOPS),
)


class _Answers(dict[object, bool]):
    """What a question about opcodes was answered."""

    def __init__(self, holds: Callable[[str], bool]) -> None:
        super().__init__()
        self._holds = holds

    def __missing__(self, opcode: object) -> bool:
        found = self[opcode] = isinstance(opcode, str) and self._holds(opcode)
        return found


class Opcodes(Set[str]):
    """The opcodes of which something holds, each asked about when it is first looked for.

    Whoever goes through all of them has all families imported; unions and the like do not.
    """

    def __init__(self, holds: Callable[[str], bool]) -> None:
        self._known = _Answers(holds)

    @property
    def holds(self) -> Mapping[object, bool]:
        """The answers, by any opcode: the same as `in`, without a call for those who ask often."""
        return self._known

    def __contains__(self, opcode: object) -> bool:
        return self._known[opcode]

    def __iter__(self) -> Iterator[str]:
        return filter(self.__contains__, OPS)

    def __len__(self) -> int:
        return sum(1 for _ in self)

    @classmethod
    def _from_iterable(cls, found: Iterable[str]) -> Set[str]:  # type: ignore[override]  # of any set less this one
        return frozenset(found)

    def __or__(self, other: Set[Any]) -> Opcodes:
        return Opcodes(lambda opcode: opcode in self or opcode in other)

    def __and__(self, other: Set[Any]) -> Opcodes:
        return Opcodes(lambda opcode: opcode in self and opcode in other)

    def __sub__(self, other: Set[Any]) -> Opcodes:
        return Opcodes(lambda opcode: opcode in self and opcode not in other)


def opcodes(traits: Trait) -> Opcodes:
    """Those of the rows with any of the traits."""
    asked = traits._value_  # numbers: see has_trait
    return Opcodes(lambda opcode: opcode in OPS and OPS[opcode].traits._value_ & asked != 0)


def op(opcode: str) -> type[Op]:
    """The row of an opcode; KeyError when there is none."""
    return OPS[opcode]


def attribute(instruction: Instruction, name: str) -> object:
    """An attribute's value, the table's default where the text gave none."""
    if name in instruction.attributes:
        return instruction.attributes[name]
    return OPS[instruction.opcode].attrs[name].default


def attributes_of(instruction: Instruction) -> Attributes:
    """The record of the opcode's own attributes."""
    return OPS[instruction.opcode].record.of(instruction.attributes)


def has_trait(instruction: Instruction, trait: Trait) -> bool:
    """Whether the instruction's op has any of the traits."""
    # The flags' numbers: operators and hashes of flags are Python code, and this is asked often.
    return OPS[instruction.opcode].traits._value_ & trait._value_ != 0


def attribute_keywords(
    opcode: str, given: Mapping[str, object], called: Callable[[Computation], object]
) -> dict[str, object]:
    """The record as `infer`, `check` and `evaluate` take it, of an instruction's attributes.

    Each computation is what `called` gives for it.
    """
    record = OPS[opcode].record
    if record is Attributes:
        return {}
    if calling := [name for name in calling_fields(record) if given.get(name) is not None]:
        given = {**given, **{name: _called(given[name], called) for name in calling}}
    return {"attrs": record.of(given)}


def _called(value: object, called: Callable[[Computation], object]) -> object:
    if isinstance(value, tuple):
        return tuple(map(called, value))
    assert isinstance(value, Computation), "what a calling attribute names"
    return called(value)


def evaluation_keywords(
    instruction: Instruction, called: Callable[[Computation], object] = lambda callee: callee
) -> dict[str, object]:
    """What `evaluate` takes beside the operands' values: attributes, and the shapes it asks for."""
    row = OPS[instruction.opcode]
    keywords = attribute_keywords(instruction.opcode, instruction.attributes, called)
    if row.takes_shape:
        keywords["shape"] = instruction.shape
    if row.takes_operand_shapes:
        keywords["operand_shapes"] = tuple(o.shape for o in instruction.operands)
    return keywords
