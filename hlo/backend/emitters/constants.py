"""Constants and index values as lanes: scalar literals inline, arrays as data beside the kernel."""

from __future__ import annotations

import math

import numpy as np

from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes
from hlo.errors import HloError
from hlo.hashing import hasher
from hlo.ir.dtype import DType
from hlo.ir.literal import Literal


def scalar(w: Writer, literal: Literal) -> Lanes:
    """The lanes (one) of an array literal whose elements are all equal."""
    if literal.is_elided:
        raise HloError("elided-constant", "constant: the value is {...}, expected a literal")
    value = literal.array.reshape(-1)[:1]
    dtype = literal.shape.dtype
    if dtype.is_complex:
        part = dtype.component.numpy
        assert part is not None, "a component is a number"
        pair = value.view(part)
        return _component(w, pair[0:1], dtype.component), _component(w, pair[1:2], dtype.component)
    return _component(w, value, dtype)


def _component(w: Writer, value: np.ndarray, dtype: DType) -> Value:
    kind = types.compute_scalar(dtype)
    if dtype.is_pred:
        return Value("true" if value[0] else "false", "i1")
    if dtype.is_integral:
        return w.int(int(value[0]), kind)
    number = float(value[0])
    if not math.isnan(number):
        return w.float(number, kind)
    wide = value.astype(np.float64 if kind == "double" else np.float32)
    bits = w.int(int(wide.view(f"u{wide.itemsize}")[0]), "i64" if kind == "double" else "i32")
    return w.cast("bitcast", bits, kind)


def bits_of(literal: Literal, dtype: DType) -> Literal:
    """The same bytes as elements of another type."""
    assert dtype.numpy is not None, "an array type"
    bits = np.ascontiguousarray(literal.array).view(dtype.numpy).reshape(literal.shape.dims)
    return Literal.of(bits, literal.shape.with_dtype(dtype))


def array(w: Writer, literal: Literal) -> Value:
    """The address of the literal's elements, as they lie in memory."""
    if literal.is_elided:
        raise HloError("elided-constant", "constant: the value is {...}, expected a literal")
    data = np.ascontiguousarray(literal.array).tobytes()
    symbol = f".data.{hasher(data).hexdigest()[:20]}"
    text = "".join(f"\\{byte:02X}" for byte in data)
    definition = f'private unnamed_addr constant [{len(data)} x i8] c"{text}", align 64'
    w.enter_data(symbol, f"@{symbol} = {definition}")
    return Value(f"@{symbol}", "ptr")


def clamped_index(w: Writer, value: Value, dtype: DType, low: int, high: int) -> Value:
    """Integer lanes clamped on their own type, then as i64."""
    lanes = value.lanes
    if dtype.bits < 8:
        wide = vector_of("i8", lanes)
        value = w.cast("sext" if dtype.is_signed else "zext", value, wide)
    bits = max(dtype.bits, 8)
    least, greatest = (
        (-(1 << bits - 1), (1 << bits - 1) - 1) if dtype.is_signed else (0, (1 << bits) - 1)
    )
    sign = "s" if dtype.is_signed else "u"
    if low > least:
        value = w.intrinsic(f"llvm.{sign}max", value.type, value, w.int(low, value.type))
    if high < greatest:
        value = w.intrinsic(f"llvm.{sign}min", value.type, value, w.int(high, value.type))
    return w.cast("sext" if dtype.is_signed else "zext", value, vector_of("i64", lanes))


def counted(w: Writer, index: Value, dtype: DType) -> Value:
    """Non-negative i32 or i64 lanes as lanes of an integral or floating type (iota)."""
    kind = types.compute_scalar(dtype)
    type = vector_of(kind, index.lanes)
    if kind in ("float", "double"):
        return w.cast("uitofp" if index.scalar_type == "i64" else "sitofp", index, type)
    if kind == index.scalar_type:
        return index
    narrower = int(kind[1:]) < int(index.scalar_type[1:])
    return w.cast("trunc" if narrower else "zext", index, type)
