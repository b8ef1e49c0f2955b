"""Literal: the value of a constant, bits kept exactly."""

from __future__ import annotations

import numpy as np
from msgspec import Struct

from hlo.errors import HloError
from hlo.ir.dtype import DType, from_numpy
from hlo.ir.shape import Shape
from hlo.process.memory import memory_error


class Literal(Struct, frozen=True, eq=False):
    """A shape with its value: a read-only array in logical order, a tuple of Literals, or None.

    None: the text said `{...}` (elided); such a literal can be printed and verified, never run.

    >>> hlo.Literal.of(np.float32([1, 2])).shape.dims
    (2,)
    """

    shape: Shape
    value: np.ndarray | tuple[Literal, ...] | None

    @staticmethod
    def of(array: object, shape: Shape | None = None) -> Literal:
        """The literal of an array (or a Python scalar, with a shape); HloError where it is none."""
        try:
            return _made(array, shape)
        except MemoryError:
            size = np.asarray(array).nbytes if shape is None else shape.size_bytes
            raise memory_error(size, "literal: its array takes") from None
        except (TypeError, ValueError, OverflowError) as error:
            what = f"a {type(array).__name__}" + (f" as {shape}" if shape is not None else "")
            raise HloError("literal", f"literal: {what} cannot be had: {error}") from error

    @staticmethod
    def of_tuple(elements: tuple[Literal, ...]) -> Literal:
        return Literal(Shape.tuple(e.shape for e in elements), elements)

    @staticmethod
    def elided(shape: Shape) -> Literal:
        return Literal(shape, None)

    @property
    def is_elided(self) -> bool:
        """Whether any part of the value was left out of the text."""
        if isinstance(self.value, tuple):
            return any(e.is_elided for e in self.value)
        return self.value is None

    @property
    def array(self) -> np.ndarray:
        """The value of an array literal that is not elided."""
        assert isinstance(self.value, np.ndarray), "an array literal with a value"
        return self.value

    @property
    def is_uniform(self) -> bool:
        """Whether all elements of an array literal have equal bits (and there is one)."""
        if self.is_elided or not self.array.size:
            return False
        data = np.ascontiguousarray(self.array).reshape(-1).view(np.uint8)
        rows = data.reshape(self.array.size, -1)
        return bool((rows == rows[0]).all())

    def same_bits(self, other: Literal) -> bool:
        """Equal shapes and identical bits (NaN payloads and the sign of zero count)."""
        if self.shape != other.shape:
            return False
        a, b = self.value, other.value
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            return a is b or a.tobytes() == b.tobytes()
        if isinstance(a, tuple) and isinstance(b, tuple):
            return all(x.same_bits(y) for x, y in zip(a, b, strict=True))
        return a is None and b is None


def _made(array: object, shape: Shape | None) -> Literal:
    found = np.asarray(array, dtype=None if shape is None else shape.dtype.numpy)
    if shape is None:
        shape = Shape.array(_dtype_of(found.dtype), found.shape)
    data = np.ascontiguousarray(found.reshape(shape.dims)).reshape(shape.dims)
    if shape.is_array and shape.dtype.bits < 8:
        data = _without_spare_bits(data, shape.dtype)
    if data.flags.writeable:
        if _is_shared(found, array) and np.may_share_memory(found, data):
            data = data.copy()
        data.flags.writeable = False
    return Literal(shape, data)


def _without_spare_bits(data: np.ndarray, dtype: DType) -> np.ndarray:
    """Zeros in the bits of a byte that are no element's: NumPy holds any there."""
    codes = data.view(np.uint8)
    spare = np.uint8(0xFF & (-1 << dtype.bits))
    return (codes & ~spare).view(data.dtype) if (codes & spare).any() else data


def _is_shared(found: np.ndarray, array: object) -> bool:
    """Whether others may write to an array that was found in what somebody gave."""
    return found is array or found.base is not None


def _dtype_of(numpy: np.dtype) -> DType:
    found = from_numpy(numpy)
    if found is None:
        raise TypeError(f"no HLO element type for NumPy's {numpy}")
    return found
