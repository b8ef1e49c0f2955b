"""Random valid instructions for test_ops_compiled: shapes of 0, 1, primes, all element types.

A Draw holds a Builder and the values of the parameters that it made; each function of FAMILIES
appends one instruction of its family and returns it. What breaks an op's rule is drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

import hlo
from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.window import Window, WindowDim
from hlo.ir.computation import Computation
from hlo.ir.dtype import DTYPES, DType
from hlo.ir.instruction import Instruction
from hlo.ops.numerics.representation import from_codes
from hlo.ops.table import OPS, Trait
from hlo.tools.cases.inputs import made_up_array

SIZES = (0, 1, 1, 2, 2, 3, 3, 4, 5, 7, 8, 13, 17, 31, 40)
LARGEST = 4000  # elements of an operand
ARRAYS = tuple(t for t in DTYPES.values() if t.is_array)
INTEGERS = tuple(t for t in ARRAYS if t.is_integral)
INDICES = tuple(DTYPES[n] for n in ("s8", "s16", "s32", "s32", "s64", "u8", "u32", "u64"))
FLOATS = tuple(t for t in ARRAYS if t.is_float)
WIDE = tuple(
    DTYPES[n]
    for n in ["f32", "f32", "f64", "bf16", "f16", "s32", "s8", "u16", "s64", "pred", "c64", "c128"]
)


class Draw:
    """A module under construction with the values of its parameters."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.b = hlo.Builder("draw")
        self.arguments: list[np.ndarray] = []
        self.parameters: list[Instruction] = []
        self.reducers: dict[tuple[str, str], Computation] = {}

    def pick(self, choices: object) -> object:
        return choices[int(self.rng.integers(len(choices)))]  # type: ignore[arg-type,index]

    def coin(self, chance: float = 0.5) -> bool:
        return bool(self.rng.random() < chance)

    def below(self, limit: int, least: int = 0) -> int:
        return int(self.rng.integers(least, max(limit, least + 1)))

    def dims(self, rank: int | None = None, *, empty: bool = True) -> tuple[int, ...]:
        rank = self.below(5) if rank is None else rank
        while True:
            sizes = tuple(int(self.pick(SIZES)) for _ in range(rank))  # type: ignore[call-overload]
            if empty and rank and self.coin(0.05):
                nothing = self.below(rank)
                sizes = tuple(0 if d == nothing else n for d, n in enumerate(sizes))
            if math.prod(sizes) <= LARGEST and (empty or 0 not in sizes):
                return sizes

    def order(self, count: int) -> tuple[int, ...]:
        return tuple(int(n) for n in self.rng.permutation(count))

    def some(self, count: int) -> tuple[int, ...]:
        return tuple(d for d in range(count) if self.coin())

    def array(
        self, dims: tuple[int, ...], dtype: DType, kind: str = "ints", limit: int | None = None
    ) -> Instruction:
        """A parameter. kind "ints": small whole numbers, whose sums are exact in any order."""
        shape = hlo.Shape.array(dtype, dims)
        self.arguments.append(
            self.bits(shape) if kind == "bits" else made_up_array(shape, kind, self.rng, limit)
        )
        return self.parameter(shape)

    def parameter(self, shape: hlo.Shape) -> Instruction:
        """The parameter for the last of the arguments."""
        made = self.b.parameter(f"p{len(self.arguments)}", shape)
        self.parameters.append(made)
        return made

    def bits(self, shape: hlo.Shape) -> np.ndarray:
        """Random bits: NaNs of every payload."""
        dtype = shape.dtype
        assert dtype.numpy is not None, "an array"
        if dtype.is_pred or dtype.bits < 8:
            codes = self.rng.integers(0, 2 if dtype.is_pred else 1 << dtype.bits, shape.dims)
            return from_codes(codes.astype(np.uint8), dtype)
        raw = self.rng.integers(0, 256, shape.size * dtype.item_bytes).astype(np.uint8)
        return raw.view(dtype.numpy).reshape(shape.dims)

    def indices(self, dims: tuple[int, ...], largest: int) -> Instruction:
        """Integers from a little below 0 to a little above `largest`."""
        dtype: DType = self.pick(INDICES)  # type: ignore[assignment]
        low, high = dtype.int_range
        values = self.rng.integers(max(low, -2), min(high, largest + 2) + 1, dims)
        self.arguments.append(values.astype(dtype.numpy).reshape(dims))
        return self.b.parameter(f"i{len(self.arguments)}", hlo.Shape.array(dtype, dims))

    def reducer(self, opcode: str, dtype: DType) -> Computation:
        key = (opcode, dtype.name)
        if key not in self.reducers:
            self.reducers[key] = self.b.scalar_computation(opcode, dtype)
        return self.reducers[key]

    def reducing(self, dtype: DType) -> str:
        """An opcode that reduces elements of the type."""
        if dtype.is_pred:
            return str(self.pick(("and", "or", "xor")))
        if dtype.is_complex:
            return "add"
        if dtype.is_float:
            return str(self.pick(("add", "add", "maximum", "minimum")))
        return str(self.pick(("add", "multiply", "maximum", "minimum", "and", "or", "xor")))

    def window(self, dims: tuple[int, ...], *, dilations: bool = True) -> Window:
        """A window of which at least one fits, where the sizes allow that."""
        rows = []
        for n in dims:
            size = self.below(min(n, 5) + 1, 1)
            low, high = (self.below(size + 1) - self.coin(0.2) for _ in range(2))
            base, holes = ((1 + self.below(3) if self.coin(0.2) else 1) for _ in range(2))
            if not dilations:
                base = holes = 1
                low, high = max(low, 0), max(high, 0)
            rows.append(WindowDim(size, 1 + self.below(3), low, high, base, holes))
        return Window(tuple(rows))


def elementwise(d: Draw) -> Instruction:
    opcode = str(d.pick(ELEMENTWISE))
    dims = d.dims()
    kind = str(d.pick(("normal", "special", "wild", "ints")))
    dtype: DType = d.pick(ARRAYS)  # type: ignore[assignment]
    if dtype.is_scale and opcode in ("imag", "complex"):
        return elementwise(d)  # it has no zero
    if dtype.is_complex:  # at infinities formulas differ: tests/differential has those
        kind = "normal"
    if opcode == "convert":
        return d.b.convert(d.array(dims, dtype, kind), d.pick(ARRAYS))  # type: ignore[arg-type]
    if opcode == "reduce-precision":
        bits = {"exponent_bits": 1 + d.below(9), "mantissa_bits": d.below(24)}
        return d.b.emit(opcode, d.array(dims, dtype, kind), **bits)  # type: ignore[arg-type]
    if opcode == "compare":
        x, y = d.array(dims, dtype, kind), d.array(dims, dtype, kind)
        total = "TOTALORDER" if dtype.is_float and d.coin(0.3) else None
        return d.b.compare(x, y, str(d.pick(("EQ", "NE", "GE", "GT", "LE", "LT"))), type=total)
    if opcode == "select":
        p = d.array(dims if d.coin(0.8) else (), DTYPES["pred"])
        return d.b.emit(opcode, p, d.array(dims, dtype, kind), d.array(dims, dtype, kind))
    if opcode == "clamp":
        edge = dims if d.coin() else ()
        low, x, high = d.array(edge, dtype), d.array(dims, dtype, kind), d.array(edge, dtype)
        return d.b.emit(opcode, low, x, high)
    operands = [d.array(dims, dtype, kind) for _ in range(OPS[opcode].arity or 1)]
    return d.b.emit(opcode, *operands)


ELEMENTWISE = tuple(
    name
    for name, row in OPS.items()
    if row.traits & Trait.ELEMENTWISE and name != "stochastic-convert"
)


def movement(d: Draw) -> Instruction:  # noqa: PLR0911  # one per op
    dtype: DType = d.pick(ARRAYS)  # type: ignore[assignment]
    dims = d.dims()
    x = d.array(dims, dtype, "bits")
    rank = len(dims)
    match d.below(11):
        case 0:
            return d.b.transpose(x, d.order(rank))
        case 1:
            out = list(dims)
            places = sorted(d.order(rank + 2)[:rank])
            out = [int(d.pick((1, 2, 3))) for _ in range(rank + 2)]  # type: ignore[call-overload]
            for p, n in zip(places, dims, strict=True):
                out[p] = n
            shuffled = d.order(rank) if d.coin() else tuple(range(rank))
            moved = d.b.transpose(x, shuffled)
            onto = tuple(places[k] for k in np.argsort(shuffled))
            shape = hlo.Shape.array(dtype, out)
            return d.b.broadcast(x if d.coin() else moved, dimensions=onto, shape=shape)
        case 2:
            starts = [d.below(n + 1) for n in dims]
            limits = [d.below(n + 1, s) for n, s in zip(dims, starts, strict=True)]
            return d.b.slice(x, starts, limits, [1 + d.below(4) for _ in dims])
        case 3:
            rows = [(d.below(7) - 2, d.below(7) - 2, d.below(3) * d.coin(0.4)) for _ in dims]
            return d.b.pad(x, d.array((), dtype, "bits"), rows)
        case 4:
            at = d.below(rank)
            others = [
                d.array((*dims[:at], int(d.pick(SIZES)), *dims[at + 1 :]), dtype, "bits")  # type: ignore[call-overload]
                for _ in range(d.below(4))
            ]
            return d.b.concat_in_dim([x, *others], at)
        case 5:
            return d.b.reverse(x, d.some(rank))
        case 6:
            return d.b.bitcast_convert(x, d.pick(ARRAYS))  # type: ignore[arg-type]
        case 7:
            starts = [d.indices((), n) for n in dims]
            return d.b.dynamic_slice(x, starts, [d.below(n + 1) for n in dims])
        case 8:
            update = d.array(tuple(d.below(n + 1) for n in dims), dtype, "bits")
            return d.b.dynamic_update_slice(x, update, [d.indices((), n) for n in dims])
        case 9:
            return d.b.reshape(x, refactored(d, math.prod(dims)))
        case _:
            return d.b.iota(hlo.Shape.array(dtype, dims), d.below(rank))


def refactored(d: Draw, count: int) -> tuple[int, ...]:
    """Sizes whose product is `count`."""
    sizes = [count]
    for _ in range(d.below(4)):
        n = sizes.pop()
        factor = int(d.pick([k for k in range(1, max(n, 1) + 1) if n % k == 0]))  # type: ignore[call-overload]
        sizes += [factor, n // factor]
    return tuple(int(n) for n in d.rng.permutation(sizes))


def reduction(d: Draw) -> Instruction:
    dtype: DType = d.pick((*ARRAYS, *WIDE))  # type: ignore[assignment]
    dims = d.dims(1 + d.below(4))
    opcode = d.reducing(dtype)
    x = d.array(dims, dtype)
    if d.coin(0.8):
        return d.b.reduce(x, d.array((), dtype), d.reducer(opcode, dtype), d.some(len(dims)))
    order = d.array(dims, DTYPES["s32"])
    number = d.b.constant(-7, "s32")
    return d.b.reduce([x, order], [d.array((), dtype), number], best(d, dtype), d.some(len(dims)))


def best(d: Draw, dtype: DType) -> Computation:
    """The pair with the larger value; of equal ones the smaller number."""
    f = d.b.subcomputation("best")
    value, number = hlo.Shape.array(dtype), hlo.Shape.array("s32")
    a, i = f.parameter("a", value), f.parameter("i", number)
    b, j = f.parameter("b", value), f.parameter("j", number)
    ahead = f.or_(f.gt(a, b), f.and_(f.eq(a, b), f.lt(i, j)))
    return f.finish(f.tuple(f.select(ahead, a, b), f.select(ahead, i, j)))


def window(d: Draw) -> Instruction:
    dtype: DType = d.pick(WIDE)  # type: ignore[assignment]
    dims = d.dims(1 + d.below(3), empty=d.coin(0.2))
    x = d.array(dims, dtype)
    opcode = d.reducing(dtype)
    f = d.reducer("add" if opcode == "multiply" else opcode, dtype)
    zero = d.array((), dtype)
    if d.coin(0.75) or dtype.is_complex or dtype.is_pred:
        return d.b.emit("reduce-window", x, zero, window=d.window(dims), to_apply=f)
    frame = d.window(dims, dilations=False)
    windows = d.b.emit("reduce-window", x, zero, window=frame, to_apply=f).shape.dims
    better = d.b.subcomputation("better")
    scalar = hlo.Shape.array(dtype)
    p, q = better.parameter("p", scalar), better.parameter("q", scalar)
    select = better.finish(better.ge(p, q))
    source = d.array(windows, dtype)
    add = d.reducer("add", dtype)
    return d.b.emit("select-and-scatter", x, source, zero, window=frame, select=select, scatter=add)


def sort(d: Draw) -> Instruction:
    dtype: DType = d.pick((*ARRAYS, *WIDE))  # type: ignore[assignment]
    dims = d.dims(1 + d.below(3))
    at = d.below(len(dims))
    x = d.array(dims, dtype, str(d.pick(("ints", "special"))))
    if d.coin(0.2):
        return d.b.emit("topk", x, k=d.below(dims[-1] + 1, 1), largest=d.coin())
    payloads = [d.array(dims, d.pick(ARRAYS), "special") for _ in range(d.below(3))]  # type: ignore[arg-type]
    f = d.b.subcomputation("order")
    heads = [
        f.parameter(f"x{2 * k + side}", hlo.Shape.array(y.shape.dtype))
        for k, y in enumerate((x, *payloads))
        for side in range(2)
    ]
    direction = str(d.pick(("LT", "GT")))
    total = "TOTALORDER" if dtype.is_float else None
    before = f.finish(f.compare(heads[0], heads[1], direction, type=total))
    return d.b.sort([x, *payloads], before, at, is_stable=True)


def contraction(d: Draw) -> Instruction:
    return convolution(d) if d.coin(0.4) else dot(d)


def dot(d: Draw) -> Instruction:
    dtype: DType = d.pick((*ARRAYS, *WIDE, *WIDE))  # type: ignore[assignment]
    batch, free, other, deep = (d.dims(d.below(2 if k else 3)) for k in range(4))
    names = [("b", batch), ("k", deep)]
    lhs = [(kind, i) for kind, sizes in (*names, ("m", free)) for i in range(len(sizes))]
    rhs = [(kind, i) for kind, sizes in (*names, ("n", other)) for i in range(len(sizes))]
    lhs = [lhs[k] for k in d.order(len(lhs))]
    rhs = [rhs[k] for k in d.order(len(rhs))]
    sizes = {"b": batch, "k": deep, "m": free, "n": other}
    if math.prod((*batch, *free, *other, *deep)) > 40000:
        return dot(d)
    x, y = (d.array(tuple(sizes[k][i] for k, i in side), dtype) for side in (lhs, rhs))
    keys = {
        f"{side}_{what}_dims": [row.index((kind, i)) for i in range(len(sizes[kind]))]
        for side, row in (("lhs", lhs), ("rhs", rhs))
        for what, kind in (("batch", "b"), ("contracting", "k"))
    }
    made = d.b.emit("dot", x, y, **keys)  # type: ignore[arg-type]
    if dtype.is_integral and d.coin(0.3):
        made.shape = made.shape.with_dtype("s32")
    if dtype.is_float and d.coin(0.3):
        made.shape = made.shape.with_dtype("f32")
    return made


def convolution(d: Draw) -> Instruction:
    dtype: DType = d.pick(WIDE)  # type: ignore[assignment]
    spatial = d.below(3)
    grid = d.dims(spatial, empty=d.coin(0.1))
    frame = Window(
        tuple(
            WindowDim(w.size, w.stride, w.pad_low, w.pad_high, w.base_dilation, w.window_dilation,
                      d.coin(0.2))
            for w in d.window(grid).dims
        )
    )  # fmt: skip
    groups, batches = [(1, 1), (1, 1), (2, 1), (1, 2), (3, 1)][d.below(5)]
    width, depth = 1 + d.below(4), groups * batches * (1 + d.below(3))
    n = batches * (1 + d.below(3))
    orders = [d.order(spatial + 2) for _ in range(3)]
    labels = DimLabels(*(part for o in orders for part in (o[0], o[1], o[2:])))  # type: ignore[arg-type]

    def laid(order: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(size for _, size in sorted(zip(order, sizes, strict=True)))

    x = d.array(laid(orders[0], (n, groups * width, *grid)), dtype)
    sizes = tuple(w.size for w in frame.dims)
    y = d.array(laid(orders[1], (width, depth, *sizes)), dtype)
    return d.b.emit(
        "convolution", x, y, window=frame, dim_labels=labels, feature_group_count=groups,
        batch_group_count=batches,
    )  # fmt: skip


def indexing(d: Draw) -> Instruction:
    """gather or scatter: some dimensions are indexed, others kept, some batched."""
    dtype: DType = d.pick((*ARRAYS, *WIDE))  # type: ignore[assignment]
    dims = d.dims(1 + d.below(3))
    rank = len(dims)
    batching = (0,) if rank > 1 and d.coin(0.2) else ()
    rest = [k for k in range(rank) if k not in batching]
    mapped = [k for k in d.order(rank) if k in rest][: 1 + d.below(len(rest))]
    window = [1 if k in batching else d.below(n + 1) for k, n in enumerate(dims)]
    gone = [k for k in rest if window[k] == 1 and d.coin(0.7)]
    outer = (*[dims[k] for k in batching], *d.dims(d.below(3)))
    if math.prod(outer) > 300:
        return indexing(d)
    at = d.below(len(outer) + 1, len(batching))
    last = max((dims[k] for k in mapped), default=0)
    indices = d.indices((*outer[:at], len(mapped), *outer[at:]), last)
    kept = [window[k] for k in rest if k not in gone]
    total = len(outer) + len(kept)
    offsets = sorted(d.order(total)[: len(kept)])
    x = d.array(dims, dtype)
    if d.coin():
        return d.b.emit(
            "gather", x, indices, offset_dims=offsets, collapsed_slice_dims=gone,
            start_index_map=mapped, operand_batching_dims=batching,
            start_indices_batching_dims=batching, index_vector_dim=at, slice_sizes=window,
        )  # fmt: skip
    # Each update is rounded where it lands: sums of narrow floats depend on the order.
    narrow = dtype.is_float and dtype.bits < 16
    reducing = "maximum" if narrow else d.reducing(dtype)
    left, inner = iter(outer), iter(kept)
    dims_of_updates = tuple(next(inner) if k in offsets else next(left) for k in range(total))
    update = d.array(dims_of_updates, dtype)
    return d.b.emit(
        "scatter", x, indices, update, update_window_dims=offsets, inserted_window_dims=gone,
        scatter_dims_to_operand_dims=mapped, input_batching_dims=batching,
        scatter_indices_batching_dims=batching, index_vector_dim=at,
        to_apply=d.reducer(reducing, dtype),
    )  # fmt: skip


def called(d: Draw) -> Instruction:
    """Ops with computations of their own, generators of bits, shapes of more than one result."""
    match d.below(5):
        case 0:
            return mapped(d)
        case 1:
            words = int(d.pick((2, 3)))  # type: ignore[call-overload]
            state = d.array((words,), DTYPES["u64"], "bits")
            shape = hlo.Shape.array(d.pick(GENERATED), d.dims())  # type: ignore[arg-type]
            algorithm = "rng_three_fry" if words == 2 else "rng_philox"
            return d.b.rng_bit_generator(algorithm, state, shape)
        case 2:
            return reduced(d)
        case 3:
            return scattered_together(d)
        case _:
            return ordered(d)


GENERATED = tuple(DTYPES[n] for n in ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64"))


def mapped(d: Draw) -> Instruction:
    """A map of a small computation on two arrays."""
    dtype: DType = d.pick(WIDE)  # type: ignore[assignment]
    dims = d.dims()
    f = d.b.subcomputation("mapped")
    scalar = hlo.Shape.array(dtype)
    x, y = f.parameter("x", scalar), f.parameter("y", scalar)
    root = f.select(f.eq(x, y), f.multiply(x, x), f.add(x, y))
    return d.b.map([d.array(dims, dtype), d.array(dims, dtype)], f.finish(root))


def reduced(d: Draw) -> Instruction:
    """A sum whose computation is more than one op."""
    dtype: DType = d.pick(INTEGERS)  # type: ignore[assignment]
    f = d.b.subcomputation("sum")
    scalar = hlo.Shape.array(dtype)
    acc, x = f.parameter("acc", scalar), f.parameter("x", scalar)
    add = f.finish(f.add(acc, f.and_(x, x)))
    dims = d.dims(1 + d.below(3))
    return d.b.reduce(d.array(dims, dtype), d.array((), dtype), add, d.some(len(dims)))


def scattered_together(d: Draw) -> Instruction:
    """A scatter of two arrays, each with a reduction of its own."""
    n, count, width = d.below(9, 1), d.below(12), d.below(6)
    types: list[DType] = [d.pick(INTEGERS), d.pick(INTEGERS)]  # type: ignore[list-item]
    f = d.b.subcomputation("both")
    old = [f.parameter(f"old{k}", hlo.Shape.array(t)) for k, t in enumerate(types)]
    new = [f.parameter(f"new{k}", hlo.Shape.array(t)) for k, t in enumerate(types)]
    both = f.finish(f.tuple(f.add(old[0], new[0]), f.maximum(old[1], new[1])))
    inputs = [d.array((n, width), t) for t in types]
    indices = d.indices((count, 1), n)
    updates = [d.array((count, width), t) for t in types]
    return d.b.emit(
        "scatter", *inputs, indices, *updates, update_window_dims=(1,), inserted_window_dims=(0,),
        scatter_dims_to_operand_dims=(0,), index_vector_dim=1, to_apply=both,
    )  # fmt: skip


def ordered(d: Draw) -> Instruction:
    """A sort by two keys."""
    first: DType = d.pick(INTEGERS)  # type: ignore[assignment]
    second: DType = d.pick(INTEGERS)  # type: ignore[assignment]
    dims = d.dims(1 + d.below(3))
    f = d.b.subcomputation("by_two_keys")
    a, b = (f.parameter(n, hlo.Shape.array(first)) for n in "ab")
    c, e = (f.parameter(n, hlo.Shape.array(second)) for n in "ce")
    before = f.finish(f.or_(f.lt(a, b), f.and_(f.eq(a, b), f.gt(c, e))))
    arrays = [d.array(dims, first), d.array(dims, second)]
    return d.b.sort(arrays, before, d.below(len(dims)), is_stable=d.coin())


Family = Callable[[Draw], Instruction]
FAMILIES: dict[str, Family] = {
    f.__name__: f
    for f in (elementwise, movement, indexing, reduction, window, sort, contraction, called)
}


def drawn(d: Draw, family: Family) -> Instruction:
    """One instruction of the family."""
    while True:
        try:
            return family(d)
        except hlo.HloError:
            continue
