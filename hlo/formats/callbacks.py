"""Python callbacks: custom calls that name a function of a list by its number.

A program's text holds the number alone. The functions come with what JAX lowers, or from the user:
`hlo.compile(module, callbacks=[f, g])`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ops.custom_call import CALLBACKS, enter_callback
from hlo.runtime.ffi_attributes import ffi_attributes

Function = Callable[..., object]


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
                is_single = gives_tuples and not instruction.shape.is_tuple
                called = functions[number]
                entered[number] = enter_callback(_single(called) if is_single else called)
            given = {**instruction.attributes, "custom_call_target": entered[number]}
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


def _single(function: Function) -> Function:
    """A function that gives a tuple of one, as one that gives it alone."""

    def call(*operands: object) -> object:
        made = function(*operands)
        assert isinstance(made, tuple), "what JAX's functions give"
        return made[0]

    return call
