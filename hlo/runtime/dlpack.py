"""DLPack for every element type: also for bf16 and the 8-bit floats, which NumPy's own lacks.

    object with __dlpack__ --array_of--> NumPy array over the same memory
    NumPy array --to_dlpack--> object with __dlpack__ over the same memory

NumPy makes and takes the capsules, so that memory ends where it should; for types that it does not
know they pass as integers of the same width, and only the type's code is changed in the capsule.
Source: the structures of dlpack.h, version 1.1.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

CPU = 1
PLAIN, VERSIONED = b"dltensor", b"dltensor_versioned"
TENSOR_AT = {PLAIN: 0, VERSIONED: 32}  # behind version, context, end and flags
UNSIGNED = 1
CODES = {
    "bfloat16": 4, "float8_e3m4": 7, "float8_e4m3": 8, "float8_e4m3b11fnuz": 9,
    "float8_e4m3fn": 10, "float8_e4m3fnuz": 11, "float8_e5m2": 12, "float8_e5m2fnuz": 13,
    "float8_e8m0fnu": 14,
}  # fmt: skip
NAMES = {code: name for name, code in CODES.items()}


class _Tensor(ctypes.Structure):
    """The head of DLTensor."""

    _fields_ = (
        ("memory", ctypes.c_void_p), ("device", ctypes.c_int32), ("number", ctypes.c_int32),
        ("rank", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
    )  # fmt: skip


def _python(name: str, result: Any) -> Callable[[object, bytes], Any]:
    """A question about a capsule by its name, of Python's C API."""
    kind = ctypes.PYFUNCTYPE(result, ctypes.py_object, ctypes.c_char_p)
    return kind((name, ctypes.pythonapi))


_is_capsule = _python("PyCapsule_IsValid", ctypes.c_int)
_pointer = _python("PyCapsule_GetPointer", ctypes.c_void_p)


def _tensor(capsule: object) -> _Tensor:
    """What a capsule that nobody has taken describes."""
    for name, offset in TENSOR_AT.items():
        if _is_capsule(capsule, name):
            return _Tensor.from_address(_pointer(capsule, name) + offset)
    raise BufferError("no DLPack capsule that can be taken")


def array_of(value: Any) -> np.ndarray:
    """The array that an object offers, over its memory. Raises BufferError for other devices."""
    capsule = value.__dlpack__()
    tensor = _tensor(capsule)
    name = NAMES.get(tensor.code)
    if name is None or tensor.device != CPU:
        return np.from_dlpack(_given(capsule, tensor))
    import ml_dtypes  # for those who have such arrays

    tensor.code = UNSIGNED
    return np.from_dlpack(_given(capsule, tensor)).view(getattr(ml_dtypes, name))


def _given(capsule: object, tensor: _Tensor) -> Any:
    return _Capsule(capsule, tensor)


class _Capsule:
    """A capsule as the object that gave it."""

    def __init__(self, capsule: object, tensor: _Tensor) -> None:
        self._capsule = capsule
        self._device = (tensor.device, tensor.number)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._device

    def __dlpack__(self, **keywords: object) -> object:
        return self._capsule


def to_dlpack(array: np.ndarray) -> Offered:
    """What other libraries take by DLPack: `torch.from_dlpack(hlo.to_dlpack(result))`.

    No bytes are copied. For element types that NumPy lacks, such as bf16, of ml_dtypes.

    >>> np.from_dlpack(hlo.to_dlpack(np.arange(3)))
    array([0, 1, 2])
    """
    return Offered(array)


class Offered:
    """An array that other libraries take by DLPack, whatever its element type."""

    def __init__(self, array: np.ndarray) -> None:
        self._code = CODES.get(array.dtype.name)
        if self._code is not None:
            array = array.view(f"u{array.dtype.itemsize}")
        self._array = array

    def __dlpack_device__(self) -> tuple[int, int]:
        return CPU, 0

    def __dlpack__(self, **keywords: Any) -> object:
        """A capsule, with the protocol's keywords as NumPy understands them."""
        capsule = self._array.__dlpack__(**keywords)
        if self._code is not None:
            _tensor(capsule).code = self._code
        return capsule
