"""How element types lie in memory and how they are computed: raw lanes <--> compute lanes.

    raw (as loaded: i8, i16, float, ...) --decoded--> lanes (i1, i4, float, ...) --encoded--> raw

pred is a byte in memory and i1 in lanes; integers below 8 bits take a byte in memory and are
LLVM's own iN in lanes, so that they wrap by themselves; floats below 32 bits are f32 in lanes,
holding only values of their own type (`rounded` after each op that may leave it). A complex value
is a pair of lanes of its component type, interleaved in memory.
"""

from __future__ import annotations

from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType

Lanes = Value | tuple[Value, Value]

BF16_CODE = "code of bf16"  # The name under which the code of bf16 lanes is noted beside them.

_FLOATS = {"f32": "float", "f64": "double"}

_FLOAT_BITS = {"half": 16, "bfloat": 16, "float": 32, "double": 64}


def compute_scalar(dtype: DType) -> str:
    """LLVM's type of one lane (of one component of a complex type)."""
    component = dtype.component
    if component.is_float:
        return _FLOATS.get(component.name, "float")
    return "i1" if component.is_pred else f"i{component.bits}"


def storage_scalar(dtype: DType) -> str:
    """LLVM's type of one element (component) in memory."""
    component = dtype.component
    if component.name in _FLOATS:
        return _FLOATS[component.name]
    return f"i{8 * component.item_bytes}"


def scalar_bits(scalar: str) -> int:
    """The bits of a scalar type of LLVM's."""
    return _FLOAT_BITS.get(scalar) or int(scalar[1:])


def parts(lanes: Lanes) -> tuple[Value, ...]:
    """The one or two vectors that lanes are made of."""
    return lanes if isinstance(lanes, tuple) else (lanes,)


def joined(values: tuple[Value, ...] | list[Value]) -> Lanes:
    """Lanes of one or two vectors."""
    return values[0] if len(values) == 1 else (values[0], values[1])


def width(lanes: Lanes) -> int:
    """Number of lanes, 1 for a scalar."""
    return parts(lanes)[0].lanes


def widens_quietly(target: Target, dtype: DType) -> bool:
    """Whether `decoded` lets f16's instruction widen NaNs, which makes signalling ones quiet."""
    form = dtype.float_format
    is_half = form is not None and form.exponent == 5 and form.nan == "ieee"  # or a part of one
    return is_half and target.isa.converts_halves


def decoded(w: Writer, target: Target, raw: Value, dtype: DType) -> Value:
    """Compute lanes of raw ones (of one component)."""
    component = dtype.component
    lanes = raw.lanes
    if component.name in _FLOATS:
        return raw
    if component.is_pred:
        return w.compare("icmp ne", raw, w.int(0, raw.type))
    if component.is_integral:
        return w.cast("trunc", raw, vector_of(f"i{component.bits}", lanes))
    if component is dt.BF16:
        if halves := target.isa.upper_halves(lanes):
            value = halves.spread(w, raw)
            w.note(value, BF16_CODE, raw)
            return value
        wide = w.cast("zext", raw, vector_of("i32", lanes))
        shifted = w.binary("shl", wide, w.int(16, wide.type))
        return w.cast("bitcast", shifted, vector_of("float", lanes))
    if component is dt.F16 and target.isa.converts_halves:
        half = w.cast("bitcast", raw, vector_of("half", lanes))
        value = w.cast("fpext", half, vector_of("float", lanes))
        w.note(value, dt.F16.name, raw)
        return value
    from hlo.backend.lanes.small_floats import decoded_small  # for programs with such types

    value = decoded_small(w, raw, component, has_halves=target.isa.converts_halves)
    w.note(value, component.name, raw)
    return value


def encoded(w: Writer, target: Target, value: Value, dtype: DType) -> Value:
    """Raw lanes of compute lanes that hold only values of the type."""
    component = dtype.component
    lanes = value.lanes
    storage = vector_of(storage_scalar(component), lanes)
    if component.name in _FLOATS:
        return value
    if component.is_pred:
        return w.cast("zext", value, storage)
    if component.is_integral:
        return w.cast("sext" if component.is_signed else "zext", value, storage)
    if component is dt.BF16:
        code = w.noted(value, BF16_CODE)
        if code is not None:
            return code
        if halves := target.isa.upper_halves(lanes):
            return halves.packed(w, w.noted(value, component.name) or value)
        bits = w.cast("bitcast", value, vector_of("i32", lanes))
        return w.cast("trunc", w.binary("lshr", bits, w.int(16, bits.type)), storage)
    known = w.noted(value, component.name)  # the lanes were rounded to the type before
    if known is not None:
        return known
    if component is dt.F16 and target.isa.converts_halves:
        half = w.cast("fptrunc", value, vector_of("half", lanes))
        return w.cast("bitcast", half, storage)
    from hlo.backend.lanes.small_floats import encoded_small  # as above

    return encoded_small(w, value, component)


def has_nan_codes(dtype: DType) -> bool:
    """Whether NaNs of the type differ in bits that its lanes, or the way back, do not keep.

    Lanes of bf16 are its codes and zeros.
    """
    form = dtype.float_format
    return (
        dtype.is_narrow_float and dtype is not dt.BF16 and form is not None and (form.nan == "ieee")
    )


def selected(
    w: Writer, target: Target, condition: Value, pair: tuple[Lanes, Lanes], dtype: DType
) -> Lanes:
    """One lane or the other, and its code where that says more than the lane."""
    both = list(zip(*map(parts, pair), strict=True))
    result = joined([w.select(condition, a, b) for a, b in both])
    if has_nan_codes(dtype) and isinstance(result, Value):
        codes = [_known_code(w, target, v, dtype) for v in both[0]]
        if codes[0] is not None and codes[1] is not None:
            w.note(result, dtype.name, w.select(condition, codes[0], codes[1]))
    return result


def _known_code(w: Writer, target: Target, value: Value, dtype: DType) -> Value | None:
    """The code of lanes that came from one, or of a constant, where LLVM computes it."""
    return encoded(w, target, value, dtype) if value.is_constant else w.noted(value, dtype.name)


def rounded(
    w: Writer, target: Target, lanes: Lanes, dtype: DType, *, has_short_nans: bool = False
) -> Lanes:
    """Lanes rounded to the type's precision, nearest even; themselves where nothing is lost.
    has_short_nans: every NaN is quiet and of the type, as is what IEEE arithmetic on it makes.
    """
    if not dtype.is_narrow_float:
        return lanes
    assert isinstance(lanes, Value), "narrow floats are not complex"
    if dtype is dt.BF16:
        return _rounded_bf16(w, target, lanes, has_short_nans=has_short_nans)
    code = encoded(w, target, lanes, dtype)
    value = decoded(w, target, code, dtype)
    w.note(value, dtype.name, code)
    return value


def _rounded_bf16(w: Writer, target: Target, value: Value, *, has_short_nans: bool) -> Value:
    """An instruction, where one does it as the mode says (x86's flushes subnormal numbers:
    docs/measurements.md 5), else integer arithmetic. A NaN of bf16 has no bits below, so that the
    carry leaves it alone.
    """
    isa = target.isa
    short = isa.bf16_codes(w, value, flushes=target.mode == "fast")
    if short is not None:
        result = decoded(w, target, short, dt.BF16)
        w.note(result, BF16_CODE, short)
        return result
    words = vector_of("i32", value.lanes)
    kept = isa.bf16_carried(w, w.cast("bitcast", value, words))
    if not has_short_nans:
        kept = isa.bf16_quieted(w, kept, value)
    result = w.cast("bitcast", w.binary("and", kept, w.int(-65536, words)), value.type)
    w.note(result, dt.BF16.name, w.cast("bitcast", kept, value.type))
    return result


def splat(w: Writer, lanes: Lanes, count: int) -> Lanes:
    """Scalars in every lane; vectors as they are."""
    return joined([v if v.lanes == count else w.splat(v, count) for v in parts(lanes)])


def of_one_width(w: Writer, *lanes: Lanes) -> tuple[Value, ...]:
    """Real numbers, scalars among them in as many lanes as the widest has."""
    most = max(width(x) for x in lanes)
    return tuple(w.splat(x, most) for x in lanes if isinstance(x, Value))


def on_doubles(w: Writer, opcode: str, x: Value, y: Value) -> Value:
    """A product or quotient of floats by that operation on doubles: the same bits.

    None of the numbers is subnormal as a double. A product is exact (48 of 53 bits), and a quotient
    has more than twice a float's bits and two (Figueroa, When is double rounding innocuous?, 1995),
    so that narrowing it, for which processors have no assist, rounds as the float's operation.
    LLVM knows that, too, and would make the float's operation of it but for the fence.
    """
    type = vector_of("double", x.lanes)
    wide = w.binary(opcode, w.cast("fpext", x, type), w.cast("fpext", y, type))
    return w.cast("fptrunc", w.intrinsic("llvm.arithmetic.fence", type, wide), x.type)
