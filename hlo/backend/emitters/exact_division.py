"""Division of many f16, f32 or f64 numbers by one, rounded as the division that it replaces.

    q = x / y from three numbers that hold for all x (`Divisor`): a product and three sums of one

With z = 1/y rounded to nearest, q0 one of x/y's two neighbours and r = x - q0 y, which is exact,
q0 + r z rounds to x/y rounded (Markstein 1990). q0 is x down + x rest: 1/y in two parts of one
sign, so that zeros keep theirs. A vector with a number of which this may not hold (infinite, NaN,
tiny but not zero, huge) is divided; integers that were converted are none of these, so that nothing
is looked at. A vector division takes 10 cycles (f64: 16), this about 4.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from msgspec import Struct

from hlo.backend.ir.records import Arithmetic, Load
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.types import Lanes
from hlo.backend.math.scaling import FORMATS
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.table import OPS, Trait, opcodes

# Exponents of y and of x within which no step leaves the normal numbers.
_Y_RANGE = {"float": (-24, 30), "double": (-60, 60)}
_X_RANGE = {"float": (-70, 90), "double": (-800, 800)}
_INTEGER = {"float": "i32", "double": "i64"}
_NUMPY: dict[str, Callable[[float], np.floating]] = {"float": np.float32, "double": np.float64}
# Types that are divided so; bf16 has a shorter way (uniform_division.py).
_NAMES = ("f32", "f64", "f16")
MANY = 4096  # For fewer elements the code is not worth its compilation.
# The same of f64: vectors are half as long, and a division takes half as long again.
MANY_DOUBLES = 512
_MOVES = opcodes(Trait.REPEATS | Trait.REGROUPS | Trait.PERMUTES) - {"bitcast"}
# Elements of a row of f32 that is divided by a number of its own. Emerald Rapids: rows of 64 take
# 1.09 times as long, softmax of rows of 128 and more 0.97 to 0.98, attention of 512 tokens 0.97.
LONG = 128


class Divisor(Struct, frozen=True):
    """y, its reciprocal rounded (z), the same in two parts, and whether y is in range."""

    y: Value
    near: Value
    down: Value
    rest: Value
    fits: Value | None = None  # None: it is known to be
    is_negative: bool = False


def divided(
    nest: Nest, instruction: Instruction, xs: Sequence[Lanes], ys: Sequence[Lanes] = ()
) -> list[Lanes] | None:
    """The quotients where vectors are divided by one number that an outer loop knows."""
    if not _applies(nest, instruction, xs, ys):
        return None
    divisors: dict[Lanes, Divisor] = {}
    for y in ys:
        assert isinstance(y, Value), "a real number"
        if y not in divisors:
            with nest.at(nest.depth_of(y)):
                divisors[y] = known(nest.w, y) if y.is_constant else prepared(nest.w, y)
    own, dtype = [divisors[y] for y in ys], instruction.shape.dtype
    numbers = [x for x in xs if isinstance(x, Value)]
    if _are_whole(instruction.operands[0], dtype) and all(d.fits is None for d in own):
        results = [_short(nest.w, x, d) for x, d in zip(numbers, own, strict=True)]
    else:
        waits = nest.target.waits_for_subnormals
        results = quotients(nest.w, numbers, own, on_doubles=waits)
    return [types.rounded(nest.w, nest.target, q, dtype, has_short_nans=True) for q in results]


def _are_whole(x: Instruction, dtype: DType) -> bool:
    """Whether what is divided counts, or was converted from integers: zeros, numbers in range."""
    while x.opcode in _MOVES:
        (x,) = x.operands
    wide = dtype is dt.F32 or dtype is dt.F64
    is_converted = x.opcode == "convert" and x.operands[0].shape.dtype.is_integral
    return wide and (is_converted or x.opcode == "iota")


def _applies(
    nest: Nest, instruction: Instruction, xs: Sequence[Lanes], ys: Sequence[Lanes]
) -> bool:
    dtype = instruction.shape.dtype
    many = MANY_DOUBLES if dtype is dt.F64 else MANY
    if instruction.opcode != "divide" or instruction.shape.size < many:
        return False
    if dtype.name not in _NAMES or not nest.target.isa.divides_slowly:
        return False
    y = ys[0]
    if any(types.width(x) == 1 for x in xs) or not isinstance(y, Value):
        return False
    if y.lanes > 1:
        return all(isinstance(o, Value) and _is_column(nest, o) for o in ys)
    if any(other != y for other in ys):
        return False
    if y.type == "float" and not _waits_for_divider(nest, instruction, xs, y):
        return False
    return _fits(y) if y.is_constant else nest.depth_of(y) < nest.depth


def _waits_for_divider(nest: Nest, instruction: Instruction, xs: Sequence[Lanes], y: Value) -> bool:
    """Whether a loop of floats does: the divider works beside the other units, which have more to
    do where functions are. By a number that the program computes, only a long row of numbers that
    are read is worth it, and where subnormal ones are looked for in any case.
    """
    computation, by = instruction.computation, instruction.operands[1]
    assert computation is not None, "compiled instructions stand in one"
    if y.is_constant:
        return not computation.fact(_has_functions)
    if by.opcode != "broadcast" or not nest.target.waits_for_subnormals:
        return False
    is_long = instruction.shape.size >= LONG * by.operands[0].shape.size
    return is_long and all(_is_read(nest, x) for x in xs)


def _is_read(nest: Nest, x: Lanes) -> bool:
    """Whether it was loaded in the innermost loop."""
    records = nest.path[-1].records
    return isinstance(x, Value) and any(isinstance(r, Load) and r.name == x.text for r in records)


def _is_column(nest: Nest, y: Value) -> bool:
    """Whether each lane has a number of its own that an outer loop knows."""
    return y.scalar_type == "double" and not y.is_constant and nest.depth_of(y) < nest.depth


def _has_functions(computation: Computation) -> bool:
    costs = (OPS[instruction.opcode].cost for instruction in computation.instructions)
    return any(cost.is_high and not cost.divides for cost in costs)


def _fits(y: Value) -> bool:
    """Of a constant."""
    low, high = _Y_RANGE[y.type]
    return y.number is not None and 2.0**low <= abs(y.number) < 2.0**high


def known(w: Writer, y: Value) -> Divisor:
    """What divides by a number in the code."""
    form, value = _NUMPY[y.type], y.number
    assert value is not None, "a constant"
    from fractions import Fraction  # for divisions alone

    near, exact = float(form(1.0) / form(value)), 1 / Fraction(value)
    is_beyond = abs(Fraction(near)) > abs(exact)
    down = float(np.nextafter(form(near), form(0.0))) if is_beyond else near
    rest = float(exact - Fraction(down))
    z, first, second = (w.float(part, y.type) for part in (near, down, rest))
    return Divisor(y, z, first, second, is_negative=value < 0.0)


def prepared(w: Writer, y: Value) -> Divisor:
    """The same for numbers that the program computes; only positive ones are in range."""
    low, high = _Y_RANGE[y.scalar_type]
    one, integer = w.float(1.0, y.type), vector_of(_INTEGER[y.scalar_type], y.lanes)
    near = w.binary("fdiv", one, y)
    left = _fma(w, w.unary("fneg", y), near, one)
    is_beyond = w.compare("fcmp olt", left, w.float(0.0, y.type))
    step = w.cast("sext", is_beyond, integer)
    code = w.binary("add", w.cast("bitcast", near, integer), step)
    down = w.cast("bitcast", code, y.type)
    rest = w.binary("fmul", _fma(w, w.unary("fneg", y), down, one), near)
    enough = w.compare("fcmp oge", y, w.float(2.0**low, y.type))
    little = w.compare("fcmp olt", y, w.float(2.0**high, y.type))
    fits = w.binary("and", enough, little)
    if y.lanes > 1:
        fits = w.intrinsic("llvm.vector.reduce.and", "i1", fits, suffix=f"v{y.lanes}i1")
    return Divisor(y, near, down, rest, fits)


def quotients(
    w: Writer, xs: Sequence[Value], divisors: Sequence[Divisor], *, on_doubles: bool = False
) -> list[Value]:
    """Vectors divided each by its number, or numbers; one test for all. Opens basic blocks.

    on_doubles: whether floats that the short way does not divide are, as a processor takes less
    time for this than for subnormal ones.
    """
    quick, slow, done = (w.new_label(p) for p in ("quick", "slow", "done"))
    is_bad = w.any_lane(*[_are_outside(w, x) for x in xs])
    for fits in dict.fromkeys(d.fits for d in divisors if d.fits is not None):
        is_bad = w.binary("or", is_bad, w.binary("xor", fits, Value("true", "i1")))
    pairs = list(zip(xs, divisors, strict=True))
    splats = [_splats(w, x, d) for x, d in pairs]
    w.branch_if(is_bad, slow, quick)
    w.label(quick)
    with w.region():
        found = [
            _product(w, x, y, parts, is_negative=d.is_negative)
            for (x, d), (*parts, y) in zip(pairs, splats, strict=True)
        ]
    w.branch(done)
    w.label(slow)
    divided = []
    for x, (*_, y) in zip(xs, splats, strict=True):
        if on_doubles and x.scalar_type == "float":
            with w.region():
                divided.append(types.on_doubles(w, "fdiv", x, y))
        else:
            divided.append(w.assign(Arithmetic, x.type, "fdiv", x, y))
    w.branch(done)
    w.label(done)
    return [
        w.phi(a.type, (a, quick), (b, slow), is_tight=True).value
        for a, b in zip(found, divided, strict=True)
    ]


def _splats(w: Writer, x: Value, d: Divisor) -> list[Value]:
    """A divisor's reciprocal in parts, the divisor last, for all lanes."""
    return [w.splat(v, x.lanes) for v in (d.down, d.rest, d.near, d.y)]


def _short(w: Writer, x: Value, d: Divisor) -> Value:
    """A vector of which all is in range, divided."""
    *parts, y = _splats(w, x, d)
    return _product(w, x, y, parts, is_negative=d.is_negative)


def _are_outside(w: Writer, x: Value) -> Value:
    """For each lane, whether it is neither zero nor in range."""
    kind = x.scalar_type
    fmt, (low, high) = FORMATS[kind], _X_RANGE[kind]
    type = vector_of(_INTEGER[kind], x.lanes)
    least, limit = (fmt.bias + e << fmt.mantissa + 1 for e in (low, high))
    code = w.cast("bitcast", x, type)
    size = w.binary("add", code, code)  # the sign is shifted out
    below = w.binary("add", size, w.int(-1, type))
    tiny = w.compare("icmp ult", below, w.int(least - 1, type))
    huge = w.compare("icmp uge", size, w.int(limit, type))
    return w.binary("or", tiny, huge)


def _product(
    w: Writer, x: Value, y: Value, reciprocal: Sequence[Value], *, is_negative: bool
) -> Value:
    """x / y. The remainder's sign is chosen such that a zero's is the quotient's in the end."""
    down, rest, near = reciprocal
    first = _fma(w, x, down, w.binary("fmul", x, rest))
    if is_negative:
        return _fma(w, _fma(w, w.unary("fneg", first), y, x), near, first)
    excess = _fma(w, first, y, w.unary("fneg", x))
    return _fma(w, w.unary("fneg", excess), near, first)


def _fma(w: Writer, a: Value, b: Value, c: Value) -> Value:
    return w.intrinsic("llvm.fma", a.type, a, b, c)
