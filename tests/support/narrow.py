"""Every code of every type narrower than f32: elementwise ops against the correctly rounded value.

    exact value of the op in f64 --rounded_codes--> the code that is right

The values of a type's codes are ml_dtypes', its rounding is a search between them, so that nothing
here is the program's own. An exact op has to give that code; a function is computed in f32 and
rounded once, so that it may give what a value within 1 ulp of f32 rounds to (`Wanted.low` to
`Wanted.high`), which is another code only where the value is that close to a halfway point.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import product

import numpy as np
from msgspec import Struct

import hlo
from hlo.backend.emitters.elementwise import emit
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.lanes.types import Lanes, decoded, encoded, rounded, storage_scalar
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ops.table import OPS
from tests.support.accuracy import FORMS, UNARY
from tests.support.lanes_jit import lanes_function

NARROW_FLOATS = [t for t in dt.ARRAY_TYPES if t.is_float and t.bits < 32]
SHORT_FLOATS = [t for t in NARROW_FLOATS if t.bits <= 8]
NARROW_INTEGERS = [t for t in dt.ARRAY_TYPES if t.is_integral and t.bits <= 16]

Function = Callable[..., np.ndarray]


class Op(Struct, frozen=True):
    """An instruction of the sweep: its text after the operands, and its exact value."""

    opcode: str
    exact: Function  # of f64 arrays
    result: DType | None = None  # the operands' type
    attributes: Mapping[str, object] = {}
    is_rounded_once: bool = True  # else within 1 ulp of f32, and then rounded

    def __str__(self) -> str:
        return " ".join([self.opcode, *(str(v) for v in self.attributes.values())])


def round_half_away(x: np.ndarray) -> np.ndarray:
    return np.copysign(np.floor(np.abs(x) + 0.5), x)  # exact: narrow numbers have few digits


def sign(x: np.ndarray) -> np.ndarray:
    return np.where((x == 0) | np.isnan(x), x, np.copysign(1.0, x))


def maximum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), y, x), np.maximum(x, y))


def minimum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.where((x == 0) & (y == 0), np.where(np.signbit(x), x, y), np.minimum(x, y))


def clamped(low: np.ndarray, x: np.ndarray, high: np.ndarray) -> np.ndarray:
    return minimum(maximum(x, low), high)


EXACT_UNARY: dict[str, Function] = {
    "abs": np.abs, "negate": np.negative, "sign": sign, "floor": np.floor, "ceil": np.ceil,
    "round-nearest-even": np.rint, "round-nearest-afz": round_half_away, "sqrt": np.sqrt,
    "real": np.positive, "imag": np.zeros_like,
}  # fmt: skip
MOVED = ("abs", "negate", "real")  # about no more than one bit, of NaNs too
CHAINED = ("abs", "negate", "sign", "floor", "round-nearest-even")
CHAINED_PAIRS = ("add", "subtract", "multiply", "atan2")
UNARY_OPS = [
    *(Op(name, f) for name, f in EXACT_UNARY.items()),
    Op("is-finite", np.isfinite, dt.PRED),
    *(Op(name, f, is_rounded_once=False) for name, f in UNARY.items() if name != "sqrt"),
]  # fmt: skip
COMPARISONS = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
    "GE": np.greater_equal,
}  # fmt: skip
BINARY_OPS = [
    *(Op(name, f) for name, f in {
        "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
        "remainder": np.fmod, "maximum": maximum, "minimum": minimum,
    }.items()),
    *(Op("compare", f, dt.PRED, {"direction": d}) for d, f in COMPARISONS.items()),
    Op("power", np.power, is_rounded_once=False),
    Op("atan2", np.arctan2, is_rounded_once=False),
]  # fmt: skip


def every_code(dtype: DType) -> np.ndarray:
    """All codes of a type, in the unsigned type of its items."""
    return np.arange(1 << dtype.bits).astype(f"u{dtype.item_bytes}")


def of_codes(codes: np.ndarray, dtype: DType) -> np.ndarray:
    """The elements with these codes."""
    if dtype.is_integral and dtype.bits < 8:
        high = codes.astype(np.int64)
        signed = high - ((high >> (dtype.bits - 1)) << dtype.bits) * dtype.is_signed
        return signed.astype(dtype.numpy)
    return codes.view(dtype.numpy)


def codes_of(x: np.ndarray, dtype: DType) -> np.ndarray:
    """The codes of elements, and nothing of what their bytes hold beside them."""
    if dtype.is_integral and dtype.bits < 8:
        return (x.astype(np.int64) & ((1 << dtype.bits) - 1)).astype(np.uint8)
    return np.ascontiguousarray(x).view(f"u{dtype.item_bytes}")


class Scale(Struct, frozen=True):
    """The values of a float type from zero up, and what lies beyond."""

    values: np.ndarray  # of codes 0, 1, ..
    middles: np.ndarray  # between a code and the next one; the last is where overflow begins
    beyond: int  # the code of overflow
    nan: int


@lru_cache(maxsize=32)
def scale_of(dtype: DType) -> Scale:
    codes = every_code(dtype)
    with np.errstate(all="ignore"):
        values = codes.view(dtype.numpy).astype(np.float64)
    negative = np.signbit(values) & ~np.isnan(values)
    end = int(np.argmax(~np.isfinite(values) | negative)) or len(codes)
    finite = values[:end]
    gap = finite[-1] - finite[-2]
    if dtype.is_scale:
        gap = finite[-1]
    middles = finite + np.diff(finite, append=finite[-1] + gap) / 2
    nans = np.flatnonzero(np.isnan(values))
    nan = int(nans[0]) if len(nans) else 1 << (dtype.bits - 1)  # -0 where there is no NaN
    is_infinite = end < len(codes) and np.isinf(values[end])
    has_nan = len(nans) > 0
    return Scale(finite, middles, end if is_infinite else nan if has_nan else end - 1, nan)


def rounded_codes(x: np.ndarray, dtype: DType) -> np.ndarray:
    """The code of the type's value nearest to f64 values, halves to even; NaN is one code.

    f8e8m0fnu: halves up; what is not positive is NaN.
    """
    scale = scale_of(dtype)
    size = np.abs(np.asarray(x, np.float64))
    has_sign = not dtype.is_scale
    below = np.searchsorted(scale.middles, size, "left")
    upper = np.searchsorted(scale.middles, size, "right")
    code = np.where(below % 2 == 0, below, upper) if has_sign else upper
    code = np.where(np.isinf(size) | (code >= len(scale.values)), scale.beyond, code)
    if not has_sign:
        return np.where(~(np.asarray(x) > 0), scale.nan, code).astype(np.uint8)
    no_sign = code == scale.nan
    if scale_of(dtype).nan == 1 << (dtype.bits - 1) and has_nan(dtype):
        no_sign |= code == 0  # there is no -0
    code = np.where(np.signbit(x) & ~no_sign, code | 1 << (dtype.bits - 1), code)
    return np.where(np.isnan(x), scale.nan, code).astype(f"u{dtype.item_bytes}")


def has_nan(dtype: DType) -> bool:
    assert dtype.float_format is not None
    return dtype.float_format.nan != "none"


def has_negatives(dtype: DType) -> bool:
    """Whether every number has its negative: not of f8e8m0fnu, nor the zero of the fnuz types."""
    assert dtype.float_format is not None
    return dtype.float_format.has_sign and dtype.float_format.nan != "negative-zero"


def one_nan(codes: np.ndarray, dtype: DType) -> np.ndarray:
    """The codes with every NaN as the same one: which, is nowhere said."""
    if not dtype.is_float or not has_nan(dtype):
        return codes
    return np.where(
        np.isnan(codes.view(dtype.numpy).astype(np.float32)), scale_of(dtype).nan, codes
    )


def exact_values(op: Op, operands: Sequence[np.ndarray], dtype: DType) -> np.ndarray:
    """In f64; f8e8m0fnu's as f32 numbers, in which the op is defined: far below 2^-127 comes 0."""
    with np.errstate(all="ignore"):
        exact = op.exact(*(x.astype(np.float64) for x in operands))
        return exact.astype(np.float32).astype(np.float64) if dtype.is_scale else exact


def is_wrong(
    op: Op,
    operands: Sequence[np.ndarray],
    got: np.ndarray,
    dtype: DType,
    *,
    has_nan_bits: bool = True,
) -> np.ndarray:
    """Where a result is not what the op's exact value rounds to."""
    exact = exact_values(op, operands, dtype)
    result = op.result or dtype
    if result.is_pred:
        return got != exact
    codes = one_nan(codes_of(got, result), result)
    if op.opcode in MOVED and not dtype.is_scale and has_nan_bits:
        return codes_of(got, result) != moved_codes(op.opcode, codes_of(operands[0], dtype), dtype)
    wrong = codes != rounded_codes(exact, result)
    if op.is_rounded_once:
        return wrong
    with np.errstate(all="ignore"):
        unit = np.spacing(np.abs(exact).astype(np.float32)).astype(np.float64)
        unit = np.where(np.isfinite(unit), unit, 0)
        others = exact - unit, exact + unit  # signalling NaNs are invalid on some processors
    for other in others:
        inside = np.sign(other) == np.sign(exact)  # an error never changes the sign
        wrong &= (codes != rounded_codes(other, result)) | ~inside
    return wrong


def moved_codes(opcode: str, codes: np.ndarray, dtype: DType) -> np.ndarray:
    """abs, negate and real are about one bit, of NaNs as of numbers."""
    top = codes.dtype.type(1 << (dtype.bits - 1))
    if opcode == "real":
        return codes
    moved = codes & ~top if opcode == "abs" else codes ^ top
    if scale_of(dtype).nan == top and has_nan(dtype):  # the code of -0 is NaN, which stays
        return np.where((codes & ~top) == 0, codes, moved)
    return moved


def converted(x: np.ndarray, source: DType, target: DType) -> np.ndarray:
    """The codes (of complex types and f64, f32: the values) that elements have as `target`."""
    with np.errstate(all="ignore"):
        values = x.astype(np.float64 if source.is_float else np.int64)
        if target.is_pred:
            return values != 0
        if target.is_float and target.bits < 32:
            return rounded_codes(values, target)
        if not target.is_integral:
            return values.astype(target.numpy)
    least, greatest = target.int_range
    if source.is_float:
        # Python's comparisons and integers are exact, and an infinity is cut before it is one.
        numbers = np.where(np.isnan(values), 0, values).tolist()
        whole = [least if v < least else greatest if v > greatest else int(v) for v in numbers]
    else:
        whole = values.tolist()
    bits = np.array([v & ((1 << target.bits) - 1) for v in whole], np.uint64)
    return bits.astype(f"u{target.item_bytes}")


def conversion_faults(engine: str, source: DType) -> list[str]:
    """What `convert` gets wrong of all codes of a type, to every other type."""
    x = of_codes(every_code(source), source)
    targets = [t for t in dt.ARRAY_TYPES if t is not source]
    if engine == "sse":
        targets = [t for t in targets if not t.is_complex]
    ops = [Op("convert", np.positive, t) for t in targets]
    found = []
    for target, got in zip(targets, results(engine, ops, [x], source), strict=True):
        want, seen = converted(x, source, target), np.asarray(got)
        if target.is_integral or (target.is_float and target.bits < 32):
            seen = one_nan(codes_of(seen, target), target)
        same = same_values(seen, want)
        wrong = np.flatnonzero(~same)
        if len(wrong):
            k = wrong[0]
            found.append(
                f"{source} to {target}: {len(wrong)} wrong; {x[k]} -> {seen[k]}, not {want[k]}"
            )
    return found


def same_values(got: np.ndarray, want: np.ndarray) -> np.ndarray:
    """Equal codes; equal values, zeros of one sign, any NaN as another."""
    if want.dtype.kind not in "fc":
        return np.asarray(got == want)
    with np.errstate(invalid="ignore"):
        equal = (got == want) & (np.signbit(got.real) == np.signbit(want.real))
    return np.asarray(equal | (np.isnan(got) & np.isnan(want)))


MOVES = """HloModule moves
ENTRY e {{
  p = pred[{n}] parameter(0)
  x = {t}[{n}] parameter(1)
  y = {t}[{n}] parameter(2)
  one = {t}[] constant(1)
  ones = {t}[{n}] broadcast(one), dimensions={{}}
  chosen = {t}[{n}] select(p, x, y)
  copied = {t}[{n}] copy(x)
  reversed = {t}[{n}] reverse(x), dimensions={{0}}
  filled = {t}[{n}] select(p, x, ones)
  other = {t}[{n}] select(p, reversed, x)
  negated = {t}[{n}] negate(x)
  absolute = {t}[{n}] abs(negated)
  mixed = {t}[{n}] select(p, negated, absolute)
  twice = {t}[{n}] negate(negated)
  front = {t}[{h}] slice(x), slice={{[0:{h}]}}
  back = {t}[{h}] slice(negated), slice={{[{h}:{n}]}}
  joined = {t}[{n}] concatenate(back, front), dimensions={{0}}
  flipped = {t}[{n}] negate(joined)
  padded = {t}[{n}] pad(front, one), padding={h}_0
  bits = u{b}[{n}] bitcast-convert(x)
  again = {t}[{n}] bitcast-convert(bits)
  ROOT t = ({types}) tuple({names})
}}
"""


def moved(p: np.ndarray, x: np.ndarray, y: np.ndarray, dtype: DType) -> dict[str, np.ndarray]:
    """The codes of MOVES's results from the codes of its operands."""
    half = len(x) // 2
    one = np.full_like(x, rounded_codes(np.ones(1), dtype)[0])
    if dtype.is_scale:
        negated = absolute = twice = np.full_like(x, 255)
    else:
        negated, absolute = moved_codes("negate", x, dtype), moved_codes("abs", x, dtype)
        twice = x
    joined = np.concatenate([negated[half:], x[:half]])
    flipped = (np.full_like(x, 255) if dtype.is_scale
               else moved_codes("negate", joined, dtype))  # fmt: skip
    return {
        "chosen": np.where(p, x, y), "copied": x, "reversed": x[::-1],
        "filled": np.where(p, x, one), "other": np.where(p, x[::-1], x), "negated": negated,
        "absolute": absolute, "mixed": np.where(p, negated, absolute), "twice": twice,
        "joined": joined, "flipped": flipped, "padded": np.concatenate([one[half:], x[:half]]),
        "again": x,
    }  # fmt: skip


def movement_faults(engine: str, dtype: DType) -> list[str]:
    """Which moves of codes, those of NaNs too, are not to the bit."""
    x = every_code(dtype)
    y, p = np.random.default_rng(1).permutation(x), np.random.default_rng(2).random(len(x)) < 0.5
    want = moved(p, x, y, dtype)
    names = [n for n in want if n != "again" or dtype.bits in (4, 8, 16)]
    text = MOVES.format(t=dtype, n=len(x), h=len(x) // 2, b=dtype.bits, names=", ".join(names),
                        types=", ".join([f"{dtype}[{len(x)}]"] * len(names)))  # fmt: skip
    lines = [line for line in text.splitlines() if dtype.bits != 6 or "bitcast" not in line]
    module = hlo.parse("\n".join(lines))
    arguments = p, of_codes(x, dtype), of_codes(y, dtype)
    got = RUNS[engine](module, *arguments)
    return [f"{name} of {dtype}: {count} wrong" for name, a in zip(names, got, strict=True)
            if (count := int((codes_of(np.asarray(a), dtype) != want[name]).sum()))]  # fmt: skip


def chain_faults(engine: str, dtype: DType) -> list[str]:
    """What two exact ops after each other, in one kernel, get wrong of all codes."""
    x = of_codes(every_code(dtype), dtype)
    firsts = [Op(name, EXACT_UNARY[name]) for name in CHAINED]
    seconds = [*firsts, *(op for op in BINARY_OPS if op.opcode in CHAINED_PAIRS)]
    pairs = list(product(firsts, seconds))
    lines = [f"  x = {dtype}[{len(x)}] parameter(0)"]
    lines += [f"  y{k} = {dtype}[{len(x)}] {op.opcode}(x)" for k, op in enumerate(firsts)]
    for k, (first, second) in enumerate(pairs):
        read = f"y{firsts.index(first)}" + (", x" if second.opcode in CHAINED_PAIRS else "")
        lines.append(f"  r{k} = {dtype}[{len(x)}] {second.opcode}({read})")
    got = RUNS[engine](hlo.parse(whole(lines, [dtype] * len(pairs), len(x))), x)
    found = []
    for (first, second), result in zip(pairs, got, strict=True):
        between = of_codes(rounded_codes(exact_values(first, [x], dtype), dtype), dtype)
        operands = [between, x] if second.opcode in CHAINED_PAIRS else [between]
        wrong = is_wrong(second, operands, np.asarray(result), dtype, has_nan_bits=False)
        if wrong.any():
            k = int(np.argmax(wrong))
            found.append(
                f"{second} of {first} of {dtype}: {wrong.sum()} wrong; {x[k]} -> {result[k]}"
            )
    return found


def whole(lines: Sequence[str], types: Sequence[DType], count: int) -> str:
    """A module of these lines, whose results are r0, r1, .."""
    names = ", ".join(f"r{k}" for k in range(len(types)))
    shapes = ", ".join(f"{t}[{count}]" for t in types)
    root = f"  ROOT t = ({shapes}) tuple({names})"
    return "\n".join(["HloModule sweep", "ENTRY e {", *lines, root, "}"])


def text_of(op: Op, dtype: DType, count: int, name: str, arity: int) -> str:
    operands = ", ".join("xyz"[:arity])
    attributes = "".join(f", {k}={v}" for k, v in op.attributes.items())
    return f"  {name} = {op.result or dtype}[{count}] {op.opcode}({operands}){attributes}"


def module_of(ops: Sequence[Op], dtype: DType, count: int, arity: int) -> hlo.Module:
    """A module with all of the ops as results."""
    lines = [f"  {'xyz'[k]} = {dtype}[{count}] parameter({k})" for k in range(arity)]
    lines += [text_of(op, dtype, count, f"r{k}", arity) for k, op in enumerate(ops)]
    return hlo.parse(whole(lines, [op.result or dtype for op in ops], count))


def compiled(module: hlo.Module, *arguments: np.ndarray) -> list[np.ndarray]:
    return list(hlo.compile(module, cache=False)(*arguments))


def unfused(module: hlo.Module, *arguments: np.ndarray) -> list[np.ndarray]:
    """A kernel an op, without passes."""
    return list(hlo.compile(module, "", cache=False)(*arguments))


def interpreted(module: hlo.Module, *arguments: np.ndarray) -> list[np.ndarray]:
    return list(hlo.evaluate(module, *arguments))


RUNS = {"compiled": compiled, "unfused": unfused, "interpreted": interpreted}


def results(
    engine: str, ops: Sequence[Op], operands: Sequence[np.ndarray], dtype: DType
) -> list[np.ndarray]:
    """The ops' results, from one module."""
    if engine == "sse":
        return sse_results(ops, operands, dtype)
    return RUNS[engine](module_of(ops, dtype, len(operands[0]), len(operands)), *operands)


def sse_results(ops: Sequence[Op], operands: Sequence[np.ndarray], dtype: DType) -> list:
    """The lanes that a machine without AVX2 and F16C would run."""

    def body(w: Writer, t: object, loaded: list[Value]) -> list[Value]:
        lanes: list[Lanes] = [decoded(w, t, raw, dtype) for raw in loaded]
        found = []
        for op in ops:
            result = op.result or dtype
            types = [dtype] * len(operands)
            attrs = OPS[op.opcode].record.of(dict(op.attributes))
            value = emit(op.opcode, w, t, lanes, types, result, attrs)
            if op.opcode not in MOVED or not has_negatives(dtype):
                value = rounded(w, t, value, result)
            found.append(encoded(w, t, value, result))
        return found

    scalars = [storage_scalar(dtype)] * len(operands)
    results = [storage_scalar(op.result or dtype) for op in ops]
    run = lanes_function(body, scalars, results, lanes=4, target=FORMS["sse"]())
    got = run(*(codes_of(x, dtype) for x in operands))
    return [of_codes(g, op.result or dtype) if not (op.result or dtype).is_pred else g.view(bool)
            for g, op in zip(got, ops, strict=True)]  # fmt: skip


ENGINES = (*RUNS, "sse")


def faults(
    engine: str, ops: Sequence[Op], operands: Sequence[np.ndarray], dtype: DType
) -> list[str]:
    """What an engine gets wrong: of each op how many codes, and the first of them."""
    found = []
    for op, got in zip(ops, results(engine, ops, operands, dtype), strict=True):
        got = np.asarray(got)
        wrong = np.flatnonzero(is_wrong(op, operands, got, dtype))
        if len(wrong):
            k = wrong[0]
            values = ", ".join(f"{x[k]} (code {codes_of(x, dtype)[k]:#x})" for x in operands)
            want = exact_values(op, operands, dtype)[k]
            found.append(f"{op} of {dtype}: {len(wrong)} wrong; ({values}) = {got[k]}, not {want}")
    return found


def every_pair(dtype: DType) -> list[np.ndarray]:
    """Two arrays that hold each code beside each."""
    codes = every_code(dtype)
    x, y = np.meshgrid(codes, codes, indexing="ij")
    return [of_codes(np.ascontiguousarray(a.ravel()), dtype) for a in (x, y)]
