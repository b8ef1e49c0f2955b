"""The op table's rows: what a row holds, how a family file enters one, how others look one up.

    class Transpose(Op): opcode, arity, attrs, traits, infer, evaluate     (a structural op)
    elementwise("add", arity=2, numpy=..., ...)                     (a row, in ops/elementwise.py)

The third reading, emit, lives in hlo/backend/emitters/, which may import llvmlite.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Flag, auto
from typing import ClassVar

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.ir.instruction import Instruction

REQUIRED = object()  # Attr.default of an attribute that must be written


class Trait(Flag):
    """Facts about an op that passes and backend ask for instead of listing opcodes."""

    NONE = 0
    ELEMENTWISE = auto()  # result[i] depends on operands at i only
    COMMUTATIVE = auto()
    ASSOCIATIVE = auto()
    IDEMPOTENT = auto()  # f(x, x) = x
    MOVEMENT = auto()  # copies bits, computes nothing
    FREE = auto()  # no code: tuple, get-tuple-element, bitcast, parameter, ...
    SIDE_EFFECT = auto()  # must stay, must keep its order
    CALLS = auto()  # runs other computations as control flow (call, while, conditional)
    COLLECTIVE = auto()
    RANDOM = auto()


class Attr(Struct, frozen=True):
    """One attribute of an op.

    default REQUIRED: must be written. printed: "given" (whenever held), "unless-default" (held and
    different from the default), "always" (the default is printed too when it is absent) or "never"
    (accepted, never printed).
    """

    kind: AttributeKind
    default: object = REQUIRED
    printed: str = "unless-default"


class Op:
    """A row of the table. Subclasses that set `opcode` enter themselves; each is used unbuilt.

    attrs: the opcode's own attributes in the order in which XLA prints them.
    inferable: whether text may leave the result's shape out.
    takes_shape: infer and evaluate get the written result shape as `shape=` (None in infer when the
    text has none): ops whose result does not follow from the operands.
    takes_operand_shapes: evaluate gets `operand_shapes=` (the operands' written shapes with their
    layouts and bounds), for ops whose value depends on them.
    takes_context: evaluate gets `context=` (the interpreter's: devices, random state, host queues).
    check: an optional static method check(*operand_shapes, shape, **attrs) with the constraints
    that verification adds to those of infer; `shape` is the written result shape.
    ulp: error budget of a float result, in units of the last place.
    constraints: by label, those that the docstring does not say: a family's, the same for each row.
    """

    opcode: ClassVar[str] = ""
    arity: ClassVar[int | None] = None
    attrs: ClassVar[Mapping[str, Attr]] = {}
    traits: ClassVar[Trait] = Trait.NONE
    inferable: ClassVar[bool] = True
    takes_shape: ClassVar[bool] = False
    takes_operand_shapes: ClassVar[bool] = False
    takes_context: ClassVar[bool] = False
    ulp: ClassVar[float] = 0.0
    constraints: ClassVar[Mapping[str, str]] = {}

    infer: ClassVar[Callable[..., object]]
    evaluate: ClassVar[Callable[..., object]]
    check: ClassVar[Callable[..., None]]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "opcode" in cls.__dict__:
            enter(cls.opcode, cls)


OPS: dict[str, type[Op]] = {}


def enter(opcode: str, row: type[Op]) -> None:
    """Put a row into the table."""
    assert opcode not in OPS, f"two rows for {opcode}"
    OPS[opcode] = row


def op(opcode: str) -> type[Op]:
    """The row of an opcode; KeyError when there is none."""
    return OPS[opcode]


def attribute(instruction: Instruction, name: str) -> object:
    """An attribute's value, the table's default where the text gave none."""
    if name in instruction.attributes:
        return instruction.attributes[name]
    return OPS[instruction.opcode].attrs[name].default


def call_attributes(instruction: Instruction) -> dict[str, object]:
    """The opcode's own attributes with defaults filled in, as keywords for the three readings."""
    attrs = OPS[instruction.opcode].attrs
    if not attrs:
        return {}
    given = instruction.attributes
    return {
        name: given.get(name, attr.default)
        for name, attr in attrs.items()
        if name in given or attr.default is not REQUIRED
    }


def has_trait(instruction: Instruction, trait: Trait) -> bool:
    """Whether the instruction's op has any of the traits."""
    # The flags' numbers: operators and hashes of flags are Python code, and this is asked often.
    return OPS[instruction.opcode].traits._value_ & trait._value_ != 0


def evaluation_keywords(instruction: Instruction) -> dict[str, object]:
    """What `evaluate` takes beside the operands' values: attributes, and the shapes it asks for."""
    row = OPS[instruction.opcode]
    keywords = {
        name.replace("-", "_"): value for name, value in call_attributes(instruction).items()
    }
    if row.takes_shape:
        keywords["shape"] = instruction.shape
    if row.takes_operand_shapes:
        keywords["operand_shapes"] = tuple(o.shape for o in instruction.operands)
    return keywords
