"""What XLA checks or computes itself when it reads an opcode of collectives, or of the host.

Each function may refuse the draft (Violation) or complete it; docs/text.md 6.
"""

from __future__ import annotations

from hlo.errors import Violation
from hlo.ir.shape import Shape
from hlo.ops.table import OPS
from hlo.parser.checks import (
    CONTEXT,
    Check,
    Draft,
    check_layouts,
    check_one_dimension,
    counted,
    keep_first_dimension,
    wrong,
)


def check(draft: Draft) -> None:
    """Refuse or complete a draft of an opcode with the trait COLLECTIVE or TRANSFERS."""
    own = _CHECKS.get(draft.opcode)
    if own is not None:
        own(draft)


def _infeed(draft: Draft) -> None:
    if draft.shape is None or not draft.shape.is_tuple or not draft.shape.elements:
        raise wrong("result", str(draft.shape), "a tuple of the data and a token")
    draft.shape = Shape.tuple((draft.shape.elements[0], Shape.token()))


def _outfeed(draft: Draft) -> None:
    draft.shape = Shape.token()
    draft.attributes.setdefault("outfeed_shape", draft[0])


def _send(draft: Draft) -> None:
    check_layouts(draft, 1)
    draft.shape = Shape.tuple((draft[0], CONTEXT, Shape.token()))


def _recv(draft: Draft) -> None:
    if draft.shape is None or not draft.shape.is_tuple or not draft.shape.elements:
        raise wrong("result", str(draft.shape), "a tuple that begins with the data")
    draft.shape = Shape.tuple((draft.shape.elements[0], CONTEXT, Shape.token()))


def _send_done(draft: Draft) -> None:
    _same_channel(draft)
    draft.shape = Shape.token()


def _recv_done(draft: Draft) -> None:
    if not draft[0].is_tuple or not draft[0].elements:
        raise wrong("operand 0", str(draft[0]), "a tuple that begins with the data")
    _same_channel(draft)
    draft.shape = Shape.tuple((draft[0].elements[0], Shape.token()))


def _same_channel(draft: Draft) -> None:
    """As the operand's, where that has a channel at all."""
    operand = draft.operands[0]
    if "channel_id" not in OPS[operand.opcode].attrs:
        return
    mine, other = draft.attributes.get("channel_id"), operand.attributes.get("channel_id")
    if mine != other:
        expected = f"{other}, as {operand.name} has"
        raise wrong("channel_id", str(mine), expected, "attribute-value")


def _global_ids(draft: Draft) -> None:
    attributes = draft.attributes
    if (
        attributes.get("use_global_device_ids")
        and attributes.get("channel_id") is None
        and "mode" not in attributes
    ):
        raise Violation("attribute-missing", "", "using global device ids", "channel_id= as well")


def _reduce_scatter(draft: Draft) -> None:
    keep_first_dimension(draft)
    _global_ids(draft)


def _ragged_all_to_all(draft: Draft) -> None:
    check_one_dimension(draft)
    draft.attributes.pop("dimensions", None)


def _collective_permute(draft: Draft) -> None:
    pairs = draft.attributes.get("source_target_pairs", ())
    assert isinstance(pairs, tuple), "the kind builds a tuple"
    for pair in pairs:
        assert isinstance(pair, tuple), "a list of lists"
        if len(pair) != 2:
            raise wrong("source_target_pairs", str(pair), "pairs", "attribute-value")
    if "slice_sizes" in draft.attributes and len(draft.operands) != 4:
        raise counted(len(draft.operands), "4, because of slice_sizes")


_CHECKS: dict[str, Check] = {
    "infeed": _infeed,
    "outfeed": _outfeed,
    "send": _send,
    "recv": _recv,
    "send-done": _send_done,
    "recv-done": _recv_done,
    "all-gather": keep_first_dimension,
    "all-gather-start": keep_first_dimension,
    "all-reduce": _global_ids,
    "all-reduce-start": _global_ids,
    "reduce-scatter": _reduce_scatter,
    "all-to-all": check_one_dimension,
    "ragged-all-to-all": _ragged_all_to_all,
    "collective-permute": _collective_permute,
    "collective-permute-start": _collective_permute,
}
