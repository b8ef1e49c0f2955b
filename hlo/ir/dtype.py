"""Element types, one frozen row each, interned: compare them with `is`.

A row says all that is known of a type: reader, printer, reference and code ask it, and ask its
format for what a float can hold. Arrays of a type that NumPy has no items of do not exist. Small
types have theirs from ml_dtypes, which is loaded when one of them is first asked for.

Sources: docs/semantics.md 1; the OCP 8-bit and MX float specifications.
"""

from __future__ import annotations

from enum import Enum, auto

import numpy as np
from msgspec import Struct


class Kind(Enum):
    """What a type's values are."""

    PRED = auto()
    SIGNED = auto()
    UNSIGNED = auto()
    FLOAT = auto()
    COMPLEX = auto()
    TOKEN = auto()
    OPAQUE = auto()
    TUPLE = auto()
    BUFFER = auto()


class FloatFormat(Struct, frozen=True):
    """Layout of a binary float: sign, exponent, mantissa (stored bits), bias, and its specials.

    nan: "ieee" (exponent all ones, mantissa non-zero), "ones" (all exponent and mantissa bits one),
    "negative-zero" (the code 100...0, the fnuz types) or "none".
    has_sign: a format without one is a scale: powers of two, of which code 0 is the least.
    """

    exponent: int
    mantissa: int
    bias: int
    has_inf: bool
    nan: str
    has_sign: bool = True


class DType(Struct, frozen=True, eq=False):
    """One element type. `bits` is the logical width; arrays hold `numpy` items, one per element.

    items: the name of these in NumPy or ml_dtypes; empty for what has no elements.
    part: of a complex type, the type of its real and its imaginary part.
    """

    name: str
    kind: Kind
    bits: int
    items: str = ""
    float_format: FloatFormat | None = None
    part: DType | None = None

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"<{self.name}>"

    def __reduce__(self) -> tuple[object, ...]:
        return dtype, (self.name,)

    @property
    def is_pred(self) -> bool:
        return self.kind is Kind.PRED

    @property
    def is_signed(self) -> bool:
        return self.kind is Kind.SIGNED

    @property
    def is_unsigned(self) -> bool:
        return self.kind is Kind.UNSIGNED

    @property
    def is_integral(self) -> bool:
        """Signed or unsigned; pred is not integral in HLO."""
        return self.kind in (Kind.SIGNED, Kind.UNSIGNED)

    @property
    def is_float(self) -> bool:
        return self.kind is Kind.FLOAT

    @property
    def is_narrow_float(self) -> bool:
        """Whether it is computed in wider lanes than it has in memory, so that results are
        rounded."""
        return self.is_float and self.bits < 32

    @property
    def is_complex(self) -> bool:
        return self.kind is Kind.COMPLEX

    @property
    def is_array(self) -> bool:
        """Whether arrays of this type have elements (not a token, opaque, tuple or buffer)."""
        return self.items != ""

    @property
    def numpy(self) -> np.dtype | None:
        """What arrays of this type hold; None for what has no elements."""
        if self.items and self.name not in _NUMPY:
            _enter_small_types()
        return _NUMPY.get(self.name)

    @property
    def component(self) -> DType:
        """The type of a complex type's parts; the type itself otherwise."""
        return self.part or self

    @property
    def is_scale(self) -> bool:
        """Whether its values are powers of two alone, without zero and without negative ones."""
        return self.float_format is not None and not self.float_format.has_sign

    @property
    def least_power(self) -> float:
        """The least value of a scale."""
        assert self.float_format is not None, f"{self.name} is a scale"
        return 2.0**-self.float_format.bias

    @property
    def item_bytes(self) -> int:
        """Bytes of one element in memory as we hold it (a sub-byte element takes one byte)."""
        assert self.items, f"{self.name} has no elements"
        return (self.bits + 7) // 8

    @property
    def int_range(self) -> tuple[int, int]:
        """Least and greatest value of an integral type."""
        if self.is_signed:
            return -(1 << (self.bits - 1)), (1 << (self.bits - 1)) - 1
        return 0, (1 << self.bits) - 1


def _float(name: str, items: str, form: FloatFormat) -> DType:
    bits = form.has_sign + form.exponent + form.mantissa
    return DType(name, Kind.FLOAT, bits, items, form)


PRED = DType("pred", Kind.PRED, 8, "bool")
S1 = DType("s1", Kind.SIGNED, 1, "int1")
S2 = DType("s2", Kind.SIGNED, 2, "int2")
S4 = DType("s4", Kind.SIGNED, 4, "int4")
S8 = DType("s8", Kind.SIGNED, 8, "int8")
S16 = DType("s16", Kind.SIGNED, 16, "int16")
S32 = DType("s32", Kind.SIGNED, 32, "int32")
S64 = DType("s64", Kind.SIGNED, 64, "int64")
U1 = DType("u1", Kind.UNSIGNED, 1, "uint1")
U2 = DType("u2", Kind.UNSIGNED, 2, "uint2")
U4 = DType("u4", Kind.UNSIGNED, 4, "uint4")
U8 = DType("u8", Kind.UNSIGNED, 8, "uint8")
U16 = DType("u16", Kind.UNSIGNED, 16, "uint16")
U32 = DType("u32", Kind.UNSIGNED, 32, "uint32")
U64 = DType("u64", Kind.UNSIGNED, 64, "uint64")
F4E2M1FN = _float("f4e2m1fn", "float4_e2m1fn", FloatFormat(2, 1, 1, False, "none"))
F6E2M3FN = _float("f6e2m3fn", "float6_e2m3fn", FloatFormat(2, 3, 1, False, "none"))
F6E3M2FN = _float("f6e3m2fn", "float6_e3m2fn", FloatFormat(3, 2, 3, False, "none"))
F8E8M0FNU = _float("f8e8m0fnu", "float8_e8m0fnu", FloatFormat(8, 0, 127, False, "ones", False))
F8E3M4 = _float("f8e3m4", "float8_e3m4", FloatFormat(3, 4, 3, True, "ieee"))
F8E4M3 = _float("f8e4m3", "float8_e4m3", FloatFormat(4, 3, 7, True, "ieee"))
F8E4M3FN = _float("f8e4m3fn", "float8_e4m3fn", FloatFormat(4, 3, 7, False, "ones"))
F8E4M3FNUZ = _float("f8e4m3fnuz", "float8_e4m3fnuz", FloatFormat(4, 3, 8, False, "negative-zero"))
F8E4M3B11FNUZ = _float(
    "f8e4m3b11fnuz", "float8_e4m3b11fnuz", FloatFormat(4, 3, 11, False, "negative-zero")
)
F8E5M2 = _float("f8e5m2", "float8_e5m2", FloatFormat(5, 2, 15, True, "ieee"))
F8E5M2FNUZ = _float("f8e5m2fnuz", "float8_e5m2fnuz", FloatFormat(5, 2, 16, False, "negative-zero"))
BF16 = _float("bf16", "bfloat16", FloatFormat(8, 7, 127, True, "ieee"))
F16 = _float("f16", "float16", FloatFormat(5, 10, 15, True, "ieee"))
F32 = _float("f32", "float32", FloatFormat(8, 23, 127, True, "ieee"))
F64 = _float("f64", "float64", FloatFormat(11, 52, 1023, True, "ieee"))
C64 = DType("c64", Kind.COMPLEX, 64, "complex64", part=F32)
C128 = DType("c128", Kind.COMPLEX, 128, "complex128", part=F64)
TOKEN = DType("token", Kind.TOKEN, 0)
OPAQUE = DType("opaque", Kind.OPAQUE, 0)
TUPLE = DType("tuple", Kind.TUPLE, 0)
BUFFER = DType("buffer", Kind.BUFFER, 0)

# The rows of this file, in their order.
ARRAY_TYPES: tuple[DType, ...] = tuple(
    row for row in list(globals().values()) if isinstance(row, DType) and row.is_array
)
DTYPES: dict[str, DType] = {
    t.name: t for t in (*ARRAY_TYPES, TOKEN, OPAQUE)
}  # the names that text may use
# NumPy's own, and those of ml_dtypes once it is loaded: by our names, and back.
_NUMPY = {t.name: np.dtype(t.items) for t in ARRAY_TYPES if hasattr(np, t.items)}
_BY_NUMPY = {items: DTYPES[name] for name, items in _NUMPY.items()}


def _enter_small_types() -> None:
    """Enter the types whose items ml_dtypes has. Of two threads that do so, both enter the same."""
    import ml_dtypes

    for row in ARRAY_TYPES:
        if row.name not in _NUMPY:
            items = np.dtype(getattr(ml_dtypes, row.items))
            _BY_NUMPY[items] = row
            _NUMPY[row.name] = items


def dtype(name: str | DType) -> DType:
    """The element type called `name`; KeyError for an unknown name."""
    if isinstance(name, DType):
        return name
    return DTYPES.get(name) or {"tuple": TUPLE, "buffer": BUFFER}[name]


def from_numpy(numpy: np.dtype) -> DType | None:
    """The element type that arrays of a NumPy dtype hold, if there is one."""
    items = np.dtype(numpy)
    if items not in _BY_NUMPY and len(_NUMPY) < len(ARRAY_TYPES):
        _enter_small_types()
    return _BY_NUMPY.get(items)
