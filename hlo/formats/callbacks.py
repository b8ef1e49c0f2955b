"""Python callbacks: custom calls that name a function of a list by its number.

A program's text holds the number alone. The functions come with what JAX lowers, or from the user:
`hlo.compile(module, callbacks=[f, g])`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.custom_call import CALLBACKS, enter_callback
from hlo.runtime.ffi_attributes import ffi_attributes

Function = Callable[..., object]
IN_PLACE = "xla_buffer_python_cpu_callback"  # of jax.experimental.buffer_callback


def dropped(*operands: object) -> object:
    """In the place of a function that is not called: its call gives its first operands on, and is
    no effect that has to be.
    """
    return operands


def enter_callbacks(
    module: Module, functions: Sequence[Function], *, gives_tuples: bool = False
) -> tuple[str, ...]:
    """Let a module's callbacks run these functions; gives the targets that they have now.

    A function takes arrays (None for a token) and gives what its call's shape says; gives_tuples:
    always a tuple, as JAX's own do. One of IN_PLACE takes a Context, buffers of its operands and
    then those of its results, which it fills. The module is edited. Raises HloError for a number
    without a function.
    """
    entered: dict[tuple[int, object], str] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.get("custom_call_target") not in CALLBACKS:
                continue
            number = _number(instruction, len(functions))
            function, key = functions[number], (number, _kept(instruction))
            if key not in entered:
                fills = instruction.get("custom_call_target") == IN_PLACE
                if fills and function is not dropped:
                    made = _filling(function, instruction)
                else:
                    made = _called(function, instruction.shape, gives_tuples=gives_tuples)
                entered[key] = enter_callback(made, sees_memory=fills or function is dropped)
            given = {**instruction.attributes, "custom_call_target": entered[key]}
            if functions[number] is dropped:
                given["custom_call_has_side_effect"] = False
            computation.set_attributes(instruction, given)
    return tuple(entered.values())


class Stage:
    """When a function is called: it equals any enumeration's member of that name."""

    name = "EXECUTE"

    def __eq__(self, other: object) -> bool:
        return getattr(other, "name", None) == self.name

    def __hash__(self) -> int:
        return hash(self.name)

    def __repr__(self) -> str:
        return f"ExecutionStage.{self.name}"


class Context:
    """What a function that fills buffers hears of its run."""

    stage = Stage()

    @property
    def stream(self) -> int:
        """There is none: the error that XLA's own context of a CPU raises, of JAX's type where JAX
        is loaded, else a RuntimeError.
        """
        errors = getattr(sys.modules.get("jax"), "errors", None)
        kind = getattr(errors, "JaxRuntimeError", RuntimeError)
        raise kind("UNIMPLEMENTED: XLA FFI GPU context is not available")


class Buffer(np.ndarray):
    """An operand or a result in a function's hands: an array on the memory itself."""

    @property
    def writeable(self) -> bool:
        return self.flags.writeable

    def __dlpack__(self, **options: Any) -> Any:
        own = np.asarray(self)
        return (own if self.writeable else own.copy()).__dlpack__(**options)


def _kept(instruction: Instruction) -> object:
    """What else the same function has to be told: which shapes it fills, from which operands."""
    if instruction.get("custom_call_target") != IN_PLACE:
        return None
    return str(instruction.shape), str(instruction.get("output_to_operand_aliasing"))


def _filling(function: Function, instruction: Instruction) -> Function:
    """A function of arrays that gives what another one has put into buffers."""
    shape = instruction.shape
    leaves = shape.elements if shape.is_tuple else (shape,)
    pairs = instruction.get("output_to_operand_aliasing") or ()
    begins = {(p.output[0] if p.output else 0): p.operand for p in pairs}  # type: ignore[attr-defined]  # an aliasing

    def call(*operands: object) -> object:
        given = [np.asarray(o) for o in operands]
        results = [
            np.array(given[begins[n]]) if n in begins else np.zeros(leaf.dims, leaf.dtype.numpy)
            for n, leaf in enumerate(leaves)
        ]
        for number, operand in begins.items():
            given[operand] = results[number]  # one memory, as the call says
        given = [array.view() for array in given]
        for array in given:
            array.flags.writeable = False
        function(Context(), *(a.view(Buffer) for a in (*given, *results)))
        return tuple(results) if shape.is_tuple else results[0]

    return call


def _number(instruction: Instruction, count: int) -> int:
    """Which function a call names: `{index = 2 : ui64}`; nothing where there is one alone."""
    index = ffi_attributes(str(instruction.get("backend_config", ""))).get("index")
    if index is None and count == 1:
        return 0
    if index is None or isinstance(index, str | dict) or not 0 <= int(index) < count:
        found = "unknown" if index is None else index
        message = f"{instruction.name}: a callback of number {found}, expected one of {count}"
        raise HloError("unsupported", message)
    return int(index)


def _called(function: Function, shape: Shape, *, gives_tuples: bool) -> Function:
    """A function as its call wants it: with a tuple for a tuple, an array for an array."""
    if function is dropped:
        count = len(shape.elements)
        return (lambda *o: o[:count]) if shape.is_tuple else (lambda *o: o[0])
    if not gives_tuples or shape.is_tuple:
        return function

    def call(*operands: object) -> object:
        made = function(*operands)
        assert isinstance(made, tuple), "what JAX's functions give"
        return made[0]

    return call
