"""Arguments of a run, checked against the entry's parameters; nothing is cast silently.

    what the caller gave --check--> nested tuples of NumPy arrays of exactly the parameters' types

An array parameter takes a NumPy array of its dtype and shape with any strides, or anything with
`__array__`, DLPack or the buffer protocol (what those raise is an error of the argument, and so are
masked elements); a scalar one also a Python number that its type holds exactly. A dimension `<=n`
takes any size up to n, or a Dynamic. Tuples nest; a token is None.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from hlo.errors import HloError
from hlo.ir.dtype import PRED, DType, from_numpy
from hlo.ir.instruction import Instruction
from hlo.ir.shape import UNBOUNDED, Shape, shape_text
from hlo.runtime.dlpack import array_of
from hlo.runtime.dynamic import Dynamic

LONGEST_NUMBER = 256  # bits that a message writes out
Number = bool | int | float | complex


def checked_arguments(
    parameters: Sequence[Instruction], arguments: Sequence[object]
) -> tuple[object, ...]:
    """The arguments as values, one per parameter; HloError code `arguments` says what is wrong."""
    if len(parameters) != len(arguments):
        wanted = ", ".join(f"{p.name}: {shape_text(p.shape, layout=False)}" for p in parameters)
        count = f"{len(arguments)} argument{'' if len(arguments) == 1 else 's'}"
        raise HloError("arguments", f"{count}, expected {len(parameters)} ({wanted or 'none'})")
    return tuple(checked_parameter(parameters, n, a) for n, a in enumerate(arguments))


def checked_parameter(parameters: Sequence[Instruction], number: int, argument: object) -> object:
    """One argument as a value of its parameter's shape."""
    parameter = parameters[number]
    return checked_argument(argument, parameter.shape, f"argument {number} ({parameter.name})")


def checked_argument(value: object, shape: Shape, name: str) -> object:
    """One argument, or part of one, as a value of `shape`."""
    if shape.is_tuple:
        if not isinstance(value, tuple | list) or len(value) != len(shape.elements):
            raise _refused(name, _found(value), f"a tuple of {len(shape.elements)}")
        parts = zip(value, shape.elements, strict=True)
        return tuple(
            checked_argument(v, s, f"{name}, element {i}") for i, (v, s) in enumerate(parts)
        )
    if shape.is_token:
        if value is not None:
            raise _refused(name, _found(value), "None, for a token")
        return None
    if not shape.is_array:
        raise HloError("unsupported", f"{name} is of shape {shape}, which has no values")
    return _checked_array(value, shape, name)


def _checked_array(value: object, shape: Shape, name: str) -> np.ndarray:
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        return _exact_scalar(value, shape, name)
    try:
        array = as_array(value)
    except MemoryError:
        raise
    except Exception as error:  # what it offers is its own code, which may raise anything
        found = f"{_found(value)} whose array cannot be had ({type(error).__name__}: {error})"
        raise _refused(name, found, shape_text(shape, layout=False)) from error
    if array is None:
        raise _refused(name, _found(value), shape_text(shape, layout=False))
    if array.dtype != shape.dtype.numpy or not _fits(array.shape, shape):
        raise _refused(name, _array_text(array), shape_text(shape, layout=False))
    return array


def as_array(value: object) -> np.ndarray | None:
    """The array that an object is or offers, its type unchanged; None if it has none.

    Raises whatever the object's own code does, ValueError for elements that are masked.
    """
    if isinstance(value, np.ndarray):
        if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
            _check_mask(value)
        return np.asarray(value)
    if isinstance(value, Dynamic):
        return value.valid()
    if isinstance(value, np.generic):
        return np.asarray(value)
    if hasattr(value, "__array__"):
        try:
            return np.asarray(value)
        except TypeError:  # a bf16 tensor of a library that knows no ml_dtypes
            if not hasattr(value, "__dlpack__"):
                raise
    if hasattr(value, "__dlpack__"):
        return array_of(value)
    try:
        return np.asarray(memoryview(value))  # type: ignore[arg-type]  # tried: not all objects are
    except TypeError:
        return None


def _check_mask(value: np.ma.MaskedArray) -> None:
    """A mask says that elements do not count; programs have no such elements."""
    count = int(np.count_nonzero(np.ma.getmaskarray(value)))
    if count:
        raise ValueError(f"{count} of its elements are masked; value.filled(x) gives them a value")


def _fits(sizes: tuple[int, ...], shape: Shape) -> bool:
    """Whether an array of these sizes is a value of `shape`: dynamic dimensions may be smaller."""
    if sizes == shape.dims:
        return True
    if len(sizes) != shape.rank:
        return False
    return all(
        bound in (size, UNBOUNDED) or (dynamic and size < bound)
        for size, bound, dynamic in zip(sizes, shape.dims, shape.dynamic, strict=True)
    )


def _exact_scalar(value: Number, shape: Shape, name: str) -> np.ndarray:
    """A Python number as a rank-0 array, when the type holds exactly that number."""
    expected = shape_text(shape, layout=False)
    if shape.rank:
        raise _refused(name, _number_text(value), expected)
    if not _holds(value, shape.dtype):
        raise _refused(name, _number_text(value), f"{expected}, which does not hold it exactly")
    with np.errstate(all="ignore"):
        return np.asarray(value).astype(shape.dtype.numpy)


def _number_text(value: Number) -> str:
    if isinstance(value, int) and value.bit_length() > LONGEST_NUMBER:
        return f"an integer of {value.bit_length()} bits"
    return f"the number {value!r}"


def _holds(value: Number, dtype: DType) -> bool:
    if isinstance(value, bool) or dtype is PRED:
        return isinstance(value, bool) and dtype is PRED
    if dtype.is_integral:
        least, greatest = dtype.int_range
        return isinstance(value, int) and least <= value <= greatest
    if isinstance(value, complex):
        return dtype.is_complex and all(
            _holds(part, dtype.component) for part in (value.real, value.imag)
        )
    try:
        wide = float(value)
    except OverflowError:
        return False
    with np.errstate(all="ignore"):
        held = float(np.asarray(wide).astype(dtype.component.numpy))
    return held == value or (math.isnan(wide) and math.isnan(held))


def _found(value: object) -> str:
    if value is None:
        return "None"
    if isinstance(value, tuple | list):
        return f"a {type(value).__name__} of {len(value)}"
    return f"a {type(value).__name__}"


def _array_text(array: np.ndarray) -> str:
    known = from_numpy(array.dtype) if array.dtype.isnative else None
    name = known.name if known else str(array.dtype)
    return f"{name}[{','.join(map(str, array.shape))}]"


def _refused(name: str, found: str, expected: str) -> HloError:
    return HloError("arguments", f"{name} is {found}, expected {expected}")
