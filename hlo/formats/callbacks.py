"""Python callbacks: custom calls that name a function of a list by its number.

A program's text holds the number alone. The functions come with what JAX lowers, or from the user:
`hlo.compile(module, callbacks=[f, g])`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.ops.custom_call import CALLBACKS, enter_callback
from hlo.runtime.ffi_attributes import ffi_attributes

Function = Callable[..., object]


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
    always a tuple, as JAX's own do. The module is edited. Raises HloError for a number without a
    function.
    """
    entered: dict[int, str] = {}
    for computation in module.computations:
        for instruction in computation.instructions:
            if instruction.get("custom_call_target") not in CALLBACKS:
                continue
            number = _number(instruction, len(functions))
            if number not in entered:
                entered[number] = enter_callback(
                    _called(functions[number], instruction.shape, gives_tuples=gives_tuples)
                )
            given = {**instruction.attributes, "custom_call_target": entered[number]}
            if functions[number] is dropped:
                given["custom_call_has_side_effect"] = False
            computation.set_attributes(instruction, given)
    return tuple(entered.values())


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
