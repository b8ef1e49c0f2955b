"""bind: values that stay the same over calls become constants of a program.

    module, values by name or number --bind--> a module without these parameters

Constant factors of products and convolutions are packed when the program is compiled; what depends
on constants alone is computed then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from msgspec.structs import replace

from hlo.attributes.aliasing import Donation, InputAlias
from hlo.errors import HloError
from hlo.ir.graph import clone_module
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import ProgramShape
from hlo.tools.cases.arrays import as_written


def bind(module: Module, values: Mapping[Any, object]) -> Module:
    """A new module in which parameters of the entry are constants; the others keep their order.

    values: arrays by the parameters' names (str) or numbers (int), of their shapes and types;
    nothing is cast.
    Raises HloError `arguments` for what is no mapping, a name that is none, a value that does not
    fit, a parameter that is no array, or one whose memory the program may write over.

    >>> bound = hlo.bind(hlo.read("examples/axpy.hlo"), {"alpha": np.float32(2)})
    >>> [p.name for p in bound.entry.parameters]
    ['x', 'y']
    """
    given: object = values
    if not isinstance(given, Mapping):
        message = f"bind: found {type(given).__name__}, expected arrays by names or numbers"
        raise HloError("arguments", message, help="for instance {0: array} or {'weights': array}")
    made = clone_module(module)
    entry = made.entry
    parameters = entry.parameters
    bound = {_parameter(module, parameters, key): value for key, value in values.items()}
    given_away = _given_away(made)
    for parameter, value in bound.items():
        number = _number(parameter)
        if number in given_away:
            message = f"bind: {parameter.name} is given away or becomes a result, expected one that"
            raise HloError("arguments", f"{message} stays as it is", parameter.span)
        literal = _literal(parameter, value)
        constant = entry.new("constant", parameter.shape, (), {"literal": literal}, like=parameter)
        entry.replace_uses(parameter, constant)
        entry.remove(parameter)
    left = [p for p in parameters if p not in bound]
    numbers = {_number(p): n for n, p in enumerate(left)}
    for parameter in left:
        attributes = {**parameter.attributes, "parameter_number": numbers[_number(parameter)]}
        entry.set_attributes(parameter, attributes)
    made.attributes = {k: _renumbered(v, numbers) for k, v in made.attributes.items()}
    return made


def _number(parameter: Instruction) -> int:
    number = parameter["parameter_number"]
    assert isinstance(number, int), "a parameter's number"
    return number


def _parameter(module: Module, parameters: tuple[Instruction, ...], key: str | int) -> Instruction:
    found = [p for p in parameters if key in (p.name, _number(p))]
    if not found:
        names = ", ".join(p.name for p in parameters) or "none"
        message = f"bind: {module.name} has no parameter {key}, expected one of {names}"
        raise HloError("arguments", message)
    return found[0]


def _given_away(module: Module) -> set[int]:
    """Parameters whose memory results may have."""
    return {
        row.parameter
        for value in module.attributes.values()
        if isinstance(value, tuple)
        for row in value
        if isinstance(row, InputAlias | Donation)
    }


def _literal(parameter: Instruction, value: object) -> Literal:
    shape = parameter.shape
    if not shape.is_array:
        message = f"bind: {parameter.name} is {shape}, expected an array"
        raise HloError("arguments", message, parameter.span)
    array = as_written(np.asarray(value), shape)
    if array.shape != shape.dims or array.dtype != shape.dtype.numpy:
        found = f"{array.dtype}[{','.join(map(str, array.shape))}]"
        message = f"bind: {parameter.name} is {shape}, found a value of {found}"
        raise HloError("arguments", message, parameter.span)
    return Literal.of(array, shape)


def _renumbered(value: object, numbers: Mapping[int, int]) -> object:
    """A header's attribute for the parameters that are left."""
    if isinstance(value, ProgramShape):
        kept = sorted(numbers, key=numbers.__getitem__)
        return replace(value, parameters=tuple(value.parameters[n] for n in kept))
    if isinstance(value, tuple) and any(isinstance(row, InputAlias | Donation) for row in value):
        return tuple(replace(row, parameter=numbers[row.parameter]) for row in value)
    return value
