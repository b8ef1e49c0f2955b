"""The functions that targets of custom calls name, and what one hears of a call.

Which there are say those who enter theirs: custom_call.py, library_targets.py, lapack.py, the user.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.process.entered import Entered

if TYPE_CHECKING:
    from hlo.ops.callee import Callee
    from hlo.ops.context import Context

# Targets that are the identity on one CPU device (docs/control.md 5.4).
IDENTITIES = (
    "Sharding", "SPMDFullToShardShape", "SPMDShardToFullShape", "xla.sdy.GlobalToLocalShape",
    "xla.sdy.LocalToGlobalShape", "xla.sdy.FuncResultSharding", "MaximalSharding",
    "ShardBarrierFrom", "ShardBarrierTo", "LayoutConstraint", "MoveToHost", "MoveToDevice",
    "PinToDevice", "SetBound", "annotate_device_placement",
)  # fmt: skip
UNINITIALISED = "AllocateBuffer"  # Memory that the program fills before it reads it.


class CustomCall(Struct, frozen=True):
    """What a target's function learns beside the operand values."""

    target: str
    shape: Shape
    operand_shapes: tuple[Shape, ...]
    backend_config: str
    called: tuple[Callee, ...]
    context: Context


Target = Callable[..., object]  # (*operands, call: CustomCall) -> value of call.shape
TARGETS: Entered[str, Target] = Entered()
REGISTERED: set[str] = set()  # Names of the user's functions, whose errors are the user's.


def own_target(instruction: Instruction) -> str:
    """The target of a custom call that is no function of the user's; "" of any other op."""
    target = instruction.attributes.get("custom_call_target")
    return target if isinstance(target, str) and target not in REGISTERED else ""


HANDLERS: set[str] = set()  # names of targets that are handlers of XLA's FFI, which are C functions


def is_handled(instruction: Instruction) -> bool:
    """Whether native code calls an instruction's handlers: its operands and results lie by rows."""
    if instruction.get("custom_call_target") not in HANDLERS:
        return False
    given = instruction.get("operand_layout_constraints") or ()
    assert isinstance(given, tuple), "shapes"
    shapes = (*given, instruction.shape)
    leaves = (leaf for shape in shapes for leaf in shape.leaves() if leaf.is_array)
    return all(leaf.layout is None or leaf.layout.is_default_order for leaf in leaves)
