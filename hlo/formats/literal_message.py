"""Literals as messages, in both directions.

    Literal --literal_message--> LiteralProto --literal_of--> Literal

A literal's numbers stand in the order of its layout, in a field of their type: packed numbers, or
bytes, of which an element smaller than one takes a whole one.
"""

from __future__ import annotations

import numpy as np

from hlo.errors import HloError
from hlo.formats.message import ARRAYS, Message
from hlo.formats.shape_message import shape_message, shape_text
from hlo.ir.dtype import DType
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape, stored
from hlo.parser.parse import parse_shape
from hlo.process.memory import numpy_problem

ELIDED = "a constant({...}) has no value, expected one: --fill-elided, hlo.fill_elided"


def literal_message(literal: Literal) -> Message:
    """The message of a literal. Raises HloError `elided-constant` where its value was left out."""
    made = Message("LiteralProto", shape=shape_message(literal.shape))
    if isinstance(literal.value, tuple):
        made["tuple_literals"] = [literal_message(part) for part in literal.value]
    elif literal.value is None:
        if literal.shape.is_array:
            raise HloError("elided-constant", ELIDED)
    else:
        made[_field(literal.shape.dtype)] = _written(literal.shape, literal.array)
    return made


def _field(dtype: DType) -> str:
    return f"{dtype.name}s"


def _written(shape: Shape, array: np.ndarray) -> object:
    """An array's numbers as its field has them."""
    order = () if shape.layout is None else shape.layout.minor_to_major[::-1]
    flat = np.ascontiguousarray(array.transpose(order)).reshape(-1)
    dtype = shape.dtype
    if dtype.is_complex:
        return flat.view(np.float32 if dtype.bits == 64 else np.float64)
    if dtype.name in ("pred", "s32", "s64", "u32", "u64", "f32", "f64"):
        return flat
    if dtype.bits < 8:
        return (flat.view(np.uint8) & ((1 << dtype.bits) - 1)).tobytes()
    return flat.tobytes()


def literal_of(message: Message) -> Literal:
    """The literal that a message says. Raises HloError where it fits no shape."""
    return _literal(message, parse_shape(shape_text(message.child("shape"))))


def _literal(message: Message, shape: Shape) -> Literal:
    """Calls itself for each level of tuples, which the shape's parser bounds."""
    if shape.is_tuple:
        parts = message.children("tuple_literals")
        if len(parts) != len(shape.elements):
            raise _wrong(shape, f"{len(parts)} literals", str(len(shape.elements)))
        pairs = zip(parts, shape.elements, strict=True)
        return Literal(shape, tuple(_literal(part, element) for part, element in pairs))
    if not shape.is_array:
        return Literal(shape, None)
    if shape.is_dynamic or "dynamic_sizes" in message or "sparse_indices" in message:
        raise HloError("unsupported", f"a literal {shape}, expected static and dense sizes")
    problem = numpy_problem(shape.dims, shape.dtype.item_bytes)
    if problem:
        raise HloError("limit", f"a literal {shape} has {problem}")
    order = () if shape.layout is None else shape.layout.minor_to_major[::-1]
    if sorted(order) != list(range(shape.rank)):
        raise HloError(
            "message", f"a literal {shape}, expected a layout that orders its dimensions"
        )
    flat = _read(message, shape)
    dims = stored(shape).dims
    array = flat.reshape(dims).transpose(tuple(order.index(d) for d in range(len(dims))))
    return Literal.of(np.ascontiguousarray(array), shape)


def _read(message: Message, shape: Shape) -> np.ndarray:
    """The numbers of a literal, as many as its shape has, in the order in which they lie."""
    dtype = shape.dtype
    name = _field(dtype)
    value = message.values.get(name, b"" if message.type.fields[name].kind == "bytes" else ())
    numpy = dtype.numpy
    assert numpy is not None, "an array's type"
    if isinstance(value, bytes):
        flat = _unpacked(value, dtype, shape.size)
        if flat is None:
            raise _wrong(shape, f"{len(value)} bytes", f"those of {shape.size} elements")
        return flat
    held = ARRAYS[message.type.fields[name].kind]
    flat = np.asarray(value, held).astype(held, copy=True)
    expected = shape.size * (2 if dtype.is_complex else 1)
    if flat.size != expected:
        raise _wrong(shape, f"{flat.size} numbers", str(expected))
    return flat.view(numpy)


def _unpacked(data: bytes, dtype: DType, size: int) -> np.ndarray | None:
    """The elements that bytes hold; None where they are not as many."""
    numpy = dtype.numpy
    assert numpy is not None, "an array's type"
    if len(data) != size * numpy.itemsize:
        return None
    return np.frombuffer(data, numpy)


def _wrong(shape: Shape, found: str, expected: str) -> HloError:
    return HloError("message", f"a literal {shape} of {found}, expected {expected}")
