"""Ring: the numbers that a contraction adds and multiplies, and how memory's elements become them.

    memory (bf16, s8, c64, ...) --loaded--> parts of ring vectors --stored--> memory

A part is one vector of the ring's scalar; complex numbers have two (real, imaginary). Float types
narrower than f32 are summed in f32 (where the target says so, all in f64), integers narrower than
s32 in 32 bits (wrapping at the end is wrapping all along), pred with and/or. Does not know loops.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from hlo.backend.ir.values import poison
from hlo.backend.ir.writer import Value, Writer, mangled, vector_of
from hlo.backend.isa.dot_products import DotProduct
from hlo.backend.isa.target import Target
from hlo.backend.lanes import masked
from hlo.backend.lanes.types import compute_scalar, decoded, encoded, rounded, storage_scalar
from hlo.backend.lanes.types import parts as parts_of
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

Parts = tuple[Value, ...]


class Ring(Struct, frozen=True):
    """The numbers of a contraction, and their sums and products in vectors.

    result: the type whose arithmetic it is; lanes: of one machine vector of `scalar`. dot: what
    multiplies, where factors are words of several elements (words/words.py).
    """

    target: Target
    result: DType
    scalar: str
    parts: int
    lanes: int
    registers: int
    fused: bool
    dot: DotProduct | None = None

    @property
    def vector(self) -> str:
        return vector_of(self.scalar, self.lanes)

    @property
    def scalar_bytes(self) -> int:
        return 8 if self.scalar in ("double", "i64") else 4

    @property
    def dtype_name(self) -> str:
        """HLO's name of the scalars, as a schedule says it."""
        return {"float": "f32", "double": "f64", "i32": "s32", "i64": "s64"}[self.scalar]

    def type(self, lanes: int) -> str:
        return vector_of(self.scalar, lanes)

    def zero(self, w: Writer, lanes: int) -> Parts:
        return (w.zero(self.type(lanes)),) * self.parts

    def add(self, w: Writer, a: Parts, b: Parts) -> Parts:
        opcode = "or" if self.result.is_pred else "fadd" if self.rounds else "add"
        return tuple(w.binary(opcode, x, y) for x, y in zip(a, b, strict=True))

    def multiply_add(self, w: Writer, total: Parts, a: Parts, b: Parts) -> Parts:
        """total + a * b."""
        if self.parts == 1:
            return (self.multiply_add_part(w, total[0], a[0], b[0]),)
        real = self.multiply_add_part(w, total[0], a[0], b[0])
        imaginary = self.multiply_add_part(w, total[1], a[0], b[1])
        negated = w.unary("fneg", a[1])
        return (
            self.multiply_add_part(w, real, negated, b[1]),
            self.multiply_add_part(w, imaginary, a[1], b[0]),
        )

    @property
    def factors(self) -> Ring:
        """The numbers of which the factors consist: words, where these are longer than a sum."""
        is_wide = self.dot is not None and self.dot.word_bits > 8 * self.scalar_bytes
        return ring_of(dt.S64, self.target) if is_wide else self

    @property
    def rows(self) -> int:
        """Rows that a product takes at once, and vectors of a row's columns."""
        return self.dot.rows if self.dot else 1

    @property
    def terms(self) -> int:
        """Additions to each part of a sum that one step of depth is."""
        return self.dot.group if self.dot else self.parts

    def multiply_add_part(self, w: Writer, total: Value, a: Value, b: Value) -> Value:
        if self.dot is not None:
            return self.dot.multiply_add(w, total, a, b)
        if self.rounds and self.fused:
            return w.intrinsic("llvm.fma", total.type, a, b, total)
        if self.rounds:
            return w.binary("fadd", total, w.binary("fmul", a, b))
        if self.result.is_pred:
            return w.binary("or", total, w.binary("and", a, b))
        return w.binary("add", total, w.binary("mul", a, b))

    @property
    def rounds(self) -> bool:
        """Whether sums do: those of floats."""
        return self.scalar in ("float", "double")


def ring_of(result: DType, target: Target) -> Ring:
    """The arithmetic of a contraction with this result type."""
    component = result.component
    if component.is_float:
        scalar = "double" if component is dt.F64 or target.on_doubles else "float"
    else:
        scalar = "i64" if result.bits == 64 else "i32"
    lanes = target.vector_bytes // (8 if scalar in ("double", "i64") else 4)
    parts = components(result)
    return Ring(target, result, scalar, parts, lanes, target.machine.registers, target.isa.fuses)


# -- memory ------------------------------------------------------------------------------------


def components(dtype: DType) -> int:
    """2 for a complex type."""
    return 1 if dtype.component is dtype else 2


def is_plain(dtype: DType, ring: Ring) -> bool:
    """Whether elements in memory are the ring's numbers."""
    return storage_scalar(dtype) == ring.scalar and ring.parts == components(dtype) == 1


def element_address(w: Writer, base: Value, index: Value, dtype: DType) -> Value:
    """The address of an element; a complex one is a pair."""
    if index.integer == 0:
        return base
    scalar = storage_scalar(dtype)
    return w.address(base, index, scalar if components(dtype) == 1 else f"[2 x {scalar}]")


def loaded(
    w: Writer, ring: Ring, dtype: DType, address: Value, lanes: int, mask: Value | None = None
) -> Parts:
    """Consecutive elements as ring numbers; lanes that the mask leaves out are zero."""
    scalar, count = storage_scalar(dtype), components(dtype)
    align = dtype.component.item_bytes
    if count == 2 and mask is not None:
        mask = masked.doubled(w, mask)
    raw = masked.load(w, vector_of(scalar, lanes * count), address, align, mask)
    if count == 1:
        return converted(w, ring, dtype, (raw,))
    if lanes == 1:
        return converted(w, ring, dtype, (w.extract(raw, 0), w.extract(raw, 1)))
    return converted(w, ring, dtype, tuple(w.every_second(raw, k) for k in (0, 1)))


def gathered(w: Writer, ring: Ring, dtype: DType, base: Value, offsets: Value) -> Parts:
    """Elements at offsets (a vector of i64); every offset has to be good."""
    scalar, count, lanes = storage_scalar(dtype), components(dtype), offsets.lanes
    type, align = vector_of(scalar, lanes), dtype.component.item_bytes
    addresses = _addresses(w, scalar, count, base, offsets)
    parts = tuple(masked.gather(w, type, at, align, None, poison(type)) for at in addresses)
    return converted(w, ring, dtype, parts)


def _addresses(w: Writer, scalar: str, count: int, base: Value, offsets: Value) -> Iterator[Value]:
    """The addresses of each component of elements at offsets."""
    for part in range(count):
        index = offsets
        if count == 2:
            index = w.binary("shl", offsets, w.int(1, offsets.type))
            index = w.binary("add", index, w.int(part, offsets.type))
        yield w.address(base, index, scalar)


def stored(
    w: Writer, ring: Ring, dtype: DType, parts: Parts, address: Value, mask: Value | None = None
) -> None:
    """Ring numbers as consecutive elements."""
    written(w, dtype, narrowed(w, ring, dtype, parts), address, mask)


def written(
    w: Writer, dtype: DType, form: Parts, address: Value, mask: Value | None = None
) -> None:
    """Components in memory form as consecutive elements."""
    if mask is not None and components(dtype) == 2:
        mask = masked.doubled(w, mask)
    masked.store(w, _interleaved(w, form), address, dtype.component.item_bytes, mask)


def scattered(
    w: Writer, dtype: DType, form: Parts, base: Value, offsets: Value, mask: Value
) -> None:
    """Components in memory form to elements at offsets, the masked lanes only."""
    addresses = _addresses(w, storage_scalar(dtype), components(dtype), base, offsets)
    for value, at in zip(form, addresses, strict=True):
        masked.scatter(w, value, at, dtype.component.item_bytes, mask)


def _interleaved(w: Writer, parts: Parts) -> Value:
    if len(parts) == 1:
        return parts[0]
    real, imaginary = parts
    if real.lanes == 1:
        type = vector_of(real.scalar_type, 2)
        return w.insert(w.insert(poison(type), real, 0), imaginary, 1)
    return w.interleaved(real, imaginary)


# -- conversions -------------------------------------------------------------------------------


def converted(w: Writer, ring: Ring, dtype: DType, raw: Parts) -> Parts:
    """Components as they lie in memory, as HLO's convert to the ring's result type has them."""
    return all_parts(w, ring, tuple(_component(w, ring, dtype.component, value) for value in raw))


def all_parts(w: Writer, ring: Ring, values: Parts) -> Parts:
    """Components in the ring's scalar: a real number's imaginary part is zero among complex ones,
    and real ones leave it out.
    """
    if ring.parts == 2 and len(values) == 1:
        return (values[0], w.zero(values[0].type))
    return values[: ring.parts]


def _component(w: Writer, ring: Ring, dtype: DType, raw: Value) -> Value:
    """One component in the ring's scalar; integers wrap, which does no harm before the end."""
    return as_numbers(w, ring, dtype, decoded(w, ring.target, raw, dtype))


def as_numbers(w: Writer, ring: Ring, dtype: DType, value: Value) -> Value:
    """Lanes of a type, as loop kernels compute with them, in the ring's scalar."""
    type = ring.type(value.lanes)
    is_float = ring.scalar in ("float", "double")
    if dtype.is_float:
        if not is_float:
            return _float_to_int(w, ring, value, type)
        return w.cast("fpext" if ring.scalar == "double" else "fptrunc", value, type)
    if ring.result.is_pred and not dtype.is_pred:
        value = w.compare("icmp ne", value, w.zero(value.type))
        return w.cast("zext", value, type)
    if is_float:
        return w.cast("sitofp" if dtype.is_signed else "uitofp", value, type)
    if dtype.bits > 8 * ring.scalar_bytes:
        return w.cast("trunc", value, type)
    return w.cast("sext" if dtype.is_signed else "zext", value, type)


def _float_to_int(w: Writer, ring: Ring, value: Value, type: str) -> Value:
    """Towards zero, saturating, NaN to 0, as convert does; for pred whether it is not zero."""
    if ring.result.is_pred:
        flag = w.compare("fcmp une", value, w.zero(value.type))
        return w.cast("zext", flag, type)
    narrow = vector_of(f"i{ring.result.bits}", value.lanes)
    name = "llvm.fptosi.sat" if ring.result.is_signed else "llvm.fptoui.sat"
    suffix = f"{_short(narrow)}.{_short(value.type)}"
    result = w.intrinsic(name, narrow, value, suffix=suffix)
    return w.cast("sext" if ring.result.is_signed else "zext", result, type)


def _short(type: str) -> str:
    if type.startswith("<"):
        return mangled(type)
    return {"float": "f32", "double": "f64", "half": "f16"}.get(type, type)


def narrowed(w: Writer, ring: Ring, dtype: DType, parts: Parts) -> Parts:
    """Ring numbers as components in memory, rounded once."""
    component = dtype.component
    return tuple(_narrowed(w, ring, component, value) for value in parts)


def _narrowed(w: Writer, ring: Ring, dtype: DType, value: Value) -> Value:
    if dtype.is_float:
        value = w.cast("fptrunc", value, vector_of(compute_scalar(dtype), value.lanes))
        (value,) = parts_of(rounded(w, ring.target, value, dtype))
    elif dtype.is_pred:
        value = w.compare("icmp ne", value, w.zero(value.type))
    else:
        value = w.cast("trunc", value, vector_of(f"i{dtype.bits}", value.lanes))
    return encoded(w, ring.target, value, dtype)


def partial_type(ring: Ring) -> DType:
    """The element type that holds the ring's numbers as they are."""
    if ring.parts == 2:
        return dt.C128 if ring.scalar == "double" else dt.C64
    return {"float": dt.F32, "double": dt.F64, "i32": dt.S32, "i64": dt.S64}[ring.scalar]
