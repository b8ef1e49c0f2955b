"""custom-call: its row, and the registry of functions that targets name.

Source: docs/control.md 5.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import count
from typing import TYPE_CHECKING, Annotated, Generic

import numpy as np

from hlo.attributes.aliasing import OUTPUT_TO_OPERAND_ALIASING, OperandAlias
from hlo.attributes.dim_labels import DIM_LABELS, DimLabels
from hlo.attributes.enums import API_VERSION, OPERAND_PRECISION, PADDING_TYPE, SCHEDULE
from hlo.attributes.literal_value import LITERAL
from hlo.attributes.names import COMPUTATIONS
from hlo.attributes.scalars import BOOL, INT64, STRING
from hlo.attributes.shapes import SHAPES
from hlo.attributes.window import WINDOW, Window
from hlo.errors import HloError, Violation
from hlo.ir.literal import Literal
from hlo.ir.shape import ProgramShape, Shape, shape_text
from hlo.ops.attributes import Attributes, F
from hlo.ops.custom_targets import (
    HANDLERS,
    IDENTITIES,
    REGISTERED,
    TARGETS,
    UNINITIALISED,
    CustomCall,
    Target,
)
from hlo.ops.shape_rules import written
from hlo.ops.table import Op, Trait

if TYPE_CHECKING:
    from hlo.ops.callee import Callee
    from hlo.ops.context import Context

Array = np.ndarray


def register_custom_call(name: str, function: Callable[..., object]) -> None:
    """Let `custom_call_target="name"` run `function(*operands)`.

    Operands are arrays (tuples nested, tokens None) that the function may keep and write to; the
    result has the call's shape and types: a run raises HloError for another one.

    >>> hlo.register_custom_call("twice", lambda x: 2 * x)
    >>> call = 'custom-call(x), custom_call_target="twice"'
    >>> m = hlo.parse("HloModule m ENTRY e { x = f32[] parameter(0) ROOT r = f32[] " + call + " }")
    >>> hlo.compile(m)(np.float32(3))
    array(6., dtype=float32)
    """

    _register(name, lambda *operands: function(*map(_own, operands)))


def _register(name: str, function: Callable[..., object]) -> None:
    """Let a target run a function, which is given the program's own memory."""

    def target(*operands: object, call: CustomCall) -> object:
        return _conforming(function(*operands), call.shape, name)

    TARGETS[name] = target
    REGISTERED.add(name)
    HANDLERS.discard(name)


def _own(operand: object) -> object:
    """A copy of an operand, whose memory the program uses again as soon as the call is over."""
    if isinstance(operand, tuple):
        return tuple(map(_own, operand))
    return operand.copy() if isinstance(operand, np.ndarray) else operand


_numbers = count()
# How the names of targets begin that are functions of this process.
CALLBACK = "hlo.python_callback"


def enter_callback(function: Callable[..., object], *, sees_memory: bool = False) -> str:
    """A new target that runs a function of this process, until `leave_callbacks` ends it.

    sees_memory: it is given the operands where they lie, and keeps none.
    """
    name = f"{CALLBACK}.{next(_numbers)}"
    (_register if sees_memory else register_custom_call)(name, function)
    return name


def leave_callbacks(names: Iterable[str]) -> None:
    """Forget targets of `enter_callback`."""
    for name in names:
        TARGETS.pop(name, None)
        REGISTERED.discard(name)


def _conforming(value: object, shape: Shape, name: str) -> object:
    """The function's result, refused unless it has exactly the call's shape."""
    if shape.is_tuple:
        if not isinstance(value, tuple | list) or len(value) != len(shape.elements):
            raise _wrong_result(name, type(value).__name__, shape)
        return tuple(_conforming(v, s, name) for v, s in zip(value, shape.elements, strict=True))
    if not shape.is_array:
        return None
    array = np.asarray(value)
    if array.dtype != shape.dtype.numpy or array.shape != shape.dims:
        raise _wrong_result(name, f"{array.dtype.name}{list(array.shape)}", shape)
    return array.copy()


def _fitting(value: object, shape: Shape, name: str) -> object:
    """A target's result, refused where the call's shape has other parts or other dimensions."""
    if shape.is_tuple:
        parts = value if isinstance(value, tuple) else ()
        if len(parts) != len(shape.elements) or not isinstance(value, tuple):
            raise Violation("shape-mismatch", "result", str(shape), f"the parts of {name}'s")
        for part, element in zip(parts, shape.elements, strict=True):
            _fitting(part, element, name)
    elif isinstance(value, tuple):
        raise Violation("shape-mismatch", "result", str(shape), f"{name}'s {len(value)} parts")
    elif isinstance(value, np.ndarray) and value.shape != shape.dims and not shape.is_dynamic:
        found = f"{list(value.shape)}, the dimensions of {name}'s"
        raise Violation("shape-mismatch", "result", str(shape), found)
    return value


def _wrong_result(name: str, found: str, shape: Shape) -> Violation:
    return Violation("arguments", f"the result of {name!r}", found, str(shape))


def target_function(name: str) -> Target:
    """The function of a target; a Violation that names close ones where there is none."""
    if name in TARGETS:
        return TARGETS[name]
    import difflib

    near = difflib.get_close_matches(name, TARGETS, n=1)
    hint = f"did you mean {near[0]!r}?" if near else ""
    expected = "a known target, or one given to hlo.register_custom_call"
    raise Violation("unsupported", "custom_call_target", f'"{name}"', expected, help=hint)


def check_target(name: str, operands: tuple[Shape, ...], shape: Shape) -> None:
    """Raise the Violation that a call of the target gives whatever its operands' values are."""
    function = target_function(name)
    if function is _refused_callback:
        raise _callback_refusal(name)
    if function is _identity:
        _check_identity(operands, shape)


class CustomCallAttributes(Attributes, Generic[F], frozen=True, kw_only=True):
    window: Annotated[Window | None, WINDOW, "given"] = None
    dim_labels: Annotated[DimLabels | None, DIM_LABELS, "given"] = None
    feature_group_count: Annotated[int, INT64] = 1
    batch_group_count: Annotated[int, INT64] = 1
    operand_precision: Annotated[tuple[str, ...], OPERAND_PRECISION] = ()
    padding_type: Annotated[str, PADDING_TYPE] = "PADDING_INVALID"
    custom_call_target: Annotated[str, STRING, "always"]
    operand_layout_constraints: Annotated[tuple[Shape, ...] | None, SHAPES, "given"] = None
    custom_call_has_side_effect: Annotated[bool, BOOL] = False
    literal: Annotated[Literal | None, LITERAL, "given"] = None
    output_to_operand_aliasing: Annotated[tuple[OperandAlias, ...], OUTPUT_TO_OPERAND_ALIASING] = ()
    schedule: Annotated[str, SCHEDULE] = "SCHEDULE_NONE"
    api_version: Annotated[str, API_VERSION] = "API_VERSION_ORIGINAL"
    called_computations: Annotated[tuple[F, ...], COMPUTATIONS] = ()


class CustomCallOp(Op):
    """The value that the target's function gives. C1: constraints match the operands (parser)."""

    opcode = "custom-call"
    record = CustomCallAttributes
    traits = Trait.CARRIES | Trait.BUFFERS | Trait.MOVES_MEMORY | Trait.EXPANDED
    inferable = False
    takes_shape = True
    takes_context = True

    @staticmethod
    def infer(
        *operands: Shape, attrs: CustomCallAttributes[ProgramShape], shape: Shape | None
    ) -> Shape:
        return written(shape)

    @staticmethod
    def evaluate(
        *operands: object, attrs: CustomCallAttributes[Callee], shape: Shape, context: Context
    ) -> object:
        instruction, name = context.instruction, attrs.custom_call_target
        call = CustomCall(
            name,
            shape,
            tuple(o.shape for o in instruction.operands),
            str(instruction.attributes.get("backend_config", "")),
            attrs.called_computations,
            context,
        )
        function = target_function(name)
        if name in REGISTERED:
            return function(*operands, call=call)
        try:
            return _fitting(function(*operands, call=call), shape, name)
        except (HloError, Violation, MemoryError):
            raise
        except Exception as error:  # from NumPy or LAPACK, of shapes that the target does not take
            found = f"{len(operands)} operands and the result {shape_text(shape)} ({error})"
            expected = f"those of {name}"
            raise Violation("shape-mismatch", "", found, expected) from error


def _identity(*operands: object, call: CustomCall) -> object:
    """The operand, where its shape is the result's."""
    _check_identity(call.operand_shapes, call.shape)
    return operands[0]


def _check_identity(operands: tuple[Shape, ...], shape: Shape) -> None:
    if len(operands) != 1 or operands[0].without_layout() != shape.without_layout():
        found = ", ".join(map(str, operands)) or "none"
        raise Violation("unsupported", "operand 0", found, f"{shape} on one device")


def _uninitialised(*operands: object, call: CustomCall) -> object:
    return np.zeros(call.shape.dims, call.shape.dtype.numpy)


def _seed(*operands: object, call: CustomCall) -> object:
    """The run's seed."""
    return np.array(call.context.seed % 2**64, np.uint64)


def _refused_callback(*operands: object, call: CustomCall) -> object:
    raise _callback_refusal(call.target)


def _callback_refusal(name: str) -> Violation:
    return Violation(
        "unsupported",
        "custom_call_target",
        f'"{name}", a Python function of the process that traced the program',
        "a target that a text file can name",
        help="hlo.compile(module, callbacks=[...]) takes the functions, in their order",
    )


CALLBACKS = (
    "xla_ffi_python_cpu_callback", "xla_ffi_partitioned_python_cpu_callback",
    "xla_buffer_python_cpu_callback", "xla_python_cpu_callback",
)  # fmt: skip
for _name in IDENTITIES:
    TARGETS.enter(_name, _identity)
for _name in CALLBACKS:
    TARGETS.enter(_name, _refused_callback)
TARGETS.enter(UNINITIALISED, _uninitialised)
TARGETS.enter("GetRngSeed", _seed)
