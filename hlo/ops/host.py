"""Ops that talk to the host or to another device: infeed, outfeed, send, recv.

A send is buffered and never waits; a recv waits at its -done.
Source: docs/control.md 3.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated

import numpy as np

from hlo.attributes.scalars import BOOL, INT64, STRING
from hlo.attributes.shapes import SHAPE
from hlo.errors import Violation
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape, compatible
from hlo.ops.attributes import Attributes
from hlo.ops.constraints import check_token
from hlo.ops.shape_rules import text
from hlo.ops.table import Op, Trait

if TYPE_CHECKING:
    from hlo.ops.context import Context

PAIRS = "_xla_send_recv_source_target_pairs"
RANGES = "_xla_send_recv_validation"
CONTEXT_SHAPE = Shape.array(dt.U32)


class InfeedAttributes(Attributes, frozen=True):
    infeed_config: Annotated[str, STRING] = ""


class Infeed(Op):
    """(the next value of the device's infeed, token).

    C1: the operand is a token. C2: the written shape is (T, token[]).
    """

    opcode = "infeed"
    arity = 1
    record = InfeedAttributes
    traits = Trait.SIDE_EFFECT | Trait.TRANSFERS
    inferable = False
    takes_shape = True
    takes_context = True

    @staticmethod
    def infer(token: Shape, *, attrs: InfeedAttributes, shape: Shape) -> Shape:
        check_token(token, "operand 0", "C1")
        if not shape.elements or not shape.is_tuple:
            raise Violation("shape-mismatch", "result", text(shape), "(T, token[])", "C2")
        return Shape.tuple((shape.elements[0], Shape.token()))

    @staticmethod
    def evaluate(
        token: None, *, attrs: InfeedAttributes, shape: Shape, context: Context
    ) -> tuple[object, None]:
        return context.infeed(shape.elements[0]), None


class OutfeedAttributes(Attributes, frozen=True):
    outfeed_shape: Annotated[Shape | None, SHAPE, "computed"] = None
    outfeed_config: Annotated[str, STRING] = ""


class Outfeed(Op):
    """Appends operand 0 to the device's outfeed; a token.

    C1: operand 1 is a token. C2: outfeed_shape is operand 0's shape up to layout.
    """

    opcode = "outfeed"
    arity = 2
    record = OutfeedAttributes
    traits = Trait.SIDE_EFFECT | Trait.TRANSFERS
    inferable = False
    takes_context = True
    takes_operand_shapes = True

    @staticmethod
    def infer(x: Shape, token: Shape, *, attrs: OutfeedAttributes) -> Shape:
        check_token(token, "operand 1", "C1")
        if attrs.outfeed_shape is not None and not compatible(attrs.outfeed_shape, x):
            raise Violation(
                "shape-mismatch", "outfeed_shape", text(attrs.outfeed_shape), text(x), "C2"
            )
        return Shape.token()

    @staticmethod
    def evaluate(
        x: object,
        token: None,
        *,
        attrs: OutfeedAttributes,
        operand_shapes: tuple[Shape, ...],
        context: Context,
    ) -> None:
        context.outfeed(x, operand_shapes[0])


class TransferAttributes(Attributes, frozen=True):
    """Of send, recv and their ends."""

    channel_id: Annotated[int | None, INT64, "given"] = None
    is_host_transfer: Annotated[bool, BOOL] = False


class Send(Op):
    """(operand 0, u32[] context, token): starts sending operand 0 over a channel.

    Peers: the host, or the devices that the frontend attribute with source-target pairs names.
    C1: operand 1 is a token.
    """

    opcode = "send"
    arity = 2
    record = TransferAttributes
    traits = Trait.SIDE_EFFECT | Trait.TRANSFERS
    done = "send-done"
    inferable = False
    takes_context = True

    @staticmethod
    def infer(x: Shape, token: Shape, *, attrs: TransferAttributes) -> Shape:
        check_token(token, "operand 1", "C1")
        return Shape.tuple((x, CONTEXT_SHAPE, Shape.token()))

    @staticmethod
    def evaluate(
        x: object, token: None, *, attrs: TransferAttributes, context: Context
    ) -> tuple[object, ...]:
        if attrs.is_host_transfer:
            context.send_to_host(attrs.channel_id, x)
        else:
            for target in _peers(context, source=True):
                context.send(attrs.channel_id, target, x)
        return x, np.zeros((), np.uint32), None


class SendDone(Op):
    """A token: the send is complete.

    C1: the operand is (T, u32[], token[]).
    """

    opcode = "send-done"
    arity = 1
    record = TransferAttributes
    traits = Trait.SIDE_EFFECT | Trait.TRANSFERS
    inferable = False

    @staticmethod
    def infer(sent: Shape, *, attrs: TransferAttributes) -> Shape:
        _check_transfer(sent)
        return Shape.token()

    @staticmethod
    def evaluate(sent: object, *, attrs: TransferAttributes) -> None:
        return None


class Recv(Op):
    """(value, u32[] context, token): starts receiving a value over a channel.

    C1: the operand is a token. C2: the written shape is (T, u32[], token[]).
    """

    opcode = "recv"
    arity = 1
    record = TransferAttributes
    traits = Trait.SIDE_EFFECT | Trait.TRANSFERS
    done = "recv-done"
    inferable = False
    takes_shape = True
    takes_context = True

    @staticmethod
    def infer(token: Shape, *, attrs: TransferAttributes, shape: Shape) -> Shape:
        check_token(token, "operand 0", "C1")
        if not shape.is_tuple or not shape.elements:
            raise Violation("shape-mismatch", "result", text(shape), "(T, u32[], token[])", "C2")
        return Shape.tuple((shape.elements[0], CONTEXT_SHAPE, Shape.token()))

    @staticmethod
    def evaluate(
        token: None, *, attrs: TransferAttributes, shape: Shape, context: Context
    ) -> tuple[object, ...]:
        """The first element is a function that waits for the value, which recv-done calls."""
        expected = shape.elements[0]
        sources = [] if attrs.is_host_transfer else _peers(context, source=False)

        def received(done: Context) -> object:
            if attrs.is_host_transfer:
                return done.receive_from_host(attrs.channel_id, expected)
            if not sources:
                return _zeros(expected)
            return done.receive(attrs.channel_id, sources[0], expected)

        return received, np.zeros((), np.uint32), None


class RecvDone(Op):
    """(the received value, token); zeros where the device is no target.

    C1: the operand is (T, u32[], token[]).
    """

    opcode = "recv-done"
    arity = 1
    record = TransferAttributes
    traits = Trait.SIDE_EFFECT | Trait.TRANSFERS
    inferable = False
    takes_context = True

    @staticmethod
    def infer(received: Shape, *, attrs: TransferAttributes) -> Shape:
        _check_transfer(received)
        return Shape.tuple((received.elements[0], Shape.token()))

    @staticmethod
    def evaluate(
        received: tuple[Callable[[Context], object], object, object],
        *,
        attrs: TransferAttributes,
        context: Context,
    ) -> tuple[object, None]:
        return received[0](context), None


def _check_transfer(x: Shape) -> None:
    parts = x.elements
    if len(parts) != 3 or not compatible(parts[1], CONTEXT_SHAPE) or not parts[2].is_token:
        raise Violation("shape-mismatch", "operand 0", text(x), "(T, u32[], token[])", "C1")


def source_target_pairs(attributes: Mapping[str, str]) -> list[tuple[int, int]] | None:
    """The pairs that a send's or recv's frontend attributes name: `{{0,1},{1,2}}`."""
    given = attributes.get(PAIRS)
    if given is None:
        return None
    return [(int(s), int(t)) for s, t in re.findall(r"\{\s*(\d+)\s*,\s*(\d+)\s*\}", given)]


def check_transfer(instruction: Instruction) -> None:
    """Raise the Violation that a send or recv between devices gives wherever it stands."""
    if RANGES in _frontend_attributes(instruction) and not instruction.get("is_host_transfer"):
        raise Violation("unsupported", RANGES, "given", "transfers in every iteration")


def _frontend_attributes(instruction: Instruction) -> dict[str, str]:
    found: dict[str, str] = dict(instruction.attributes.get("frontend_attributes", ()))  # type: ignore[call-overload]  # pairs
    return found


def _peers(context: Context, *, source: bool) -> list[int]:
    """The devices to which this one sends (source) or from which it receives.

    Ids are partitions of the own replica if there are several partitions, else replicas.
    """
    check_transfer(context.instruction)
    attributes = _frontend_attributes(context.instruction)
    own = context.partition if context.partitions > 1 else context.replica
    pairs = source_target_pairs(attributes)
    if pairs is None:
        count = context.replicas * context.partitions
        if count > 2:
            raise Violation("unsupported", "frontend_attributes", f"without {PAIRS}", "pairs")
        pairs = [(own, count - 1 - own), (count - 1 - own, own)]
    side, other = (0, 1) if source else (1, 0)
    peers = dict.fromkeys(pair[other] for pair in pairs if pair[side] == own)
    first = context.replica * context.partitions if context.partitions > 1 else 0
    return [first + peer for peer in peers]


def _zeros(shape: Shape) -> object:
    if shape.is_tuple:
        return tuple(map(_zeros, shape.elements))
    return np.zeros(shape.dims, shape.dtype.numpy) if shape.is_array else None
