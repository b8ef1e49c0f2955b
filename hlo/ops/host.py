"""Ops that talk to the host or to another device: infeed, outfeed, send, recv.

Source: shared/OP_SEMANTICS_CONTROL.md section 3.
"""

from __future__ import annotations

from hlo.attributes.scalars import BOOL, INT64, STRING
from hlo.attributes.shapes import SHAPE
from hlo.ops.table import Attr, Op, Trait

CHANNEL = {
    "channel_id": Attr(INT64, None, "given"),
    "is_host_transfer": Attr(BOOL, False),
}


class Infeed(Op):
    """(the next value of the device's infeed, token)."""

    opcode = "infeed"
    arity = 1
    attrs = {"infeed_config": Attr(STRING, "")}
    traits = Trait.SIDE_EFFECT
    inferable = False
    takes_shape = True


class Outfeed(Op):
    """Appends operand 0 to the device's outfeed; a token."""

    opcode = "outfeed"
    arity = 2
    attrs = {"outfeed_shape": Attr(SHAPE, None, "given"), "outfeed_config": Attr(STRING, "")}
    traits = Trait.SIDE_EFFECT
    inferable = False


class Send(Op):
    """(operand 0, u32[] context, token): starts sending operand 0 over a channel."""

    opcode = "send"
    arity = 2
    attrs = CHANNEL
    traits = Trait.SIDE_EFFECT
    inferable = False


class SendDone(Op):
    """A token: the send is complete."""

    opcode = "send-done"
    arity = 1
    attrs = CHANNEL
    traits = Trait.SIDE_EFFECT
    inferable = False


class Recv(Op):
    """(value, u32[] context, token): starts receiving a value over a channel."""

    opcode = "recv"
    arity = 1
    attrs = CHANNEL
    traits = Trait.SIDE_EFFECT
    inferable = False
    takes_shape = True


class RecvDone(Op):
    """(the received value, token)."""

    opcode = "recv-done"
    arity = 1
    attrs = CHANNEL
    traits = Trait.SIDE_EFFECT
    inferable = False
