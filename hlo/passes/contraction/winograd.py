"""winograd: convolutions of 3x3 windows as products of transformed tiles; inexact, for fast mode.

    y = A' ((G w G') * (B' x B)) A  for each tile of m x m results, m + 2 x m + 2 elements of x

for every place of a tile a product over the features: (m + 2)^2 products stand for 9 m^2, a quarter
for m = 4, 1 / 2.25 for m = 2 (Winograd 1980; Lavin and Gray 2015, arXiv 1509.09308). Tiles are
transformed by one fusion with a result for each place, the kernel by another, and the products by a
third one, whose results are put where they belong.

Numbers grow while they are transformed, and cancel at the end: of a sum of n products of numbers up
to x and w, the result is off by growth n x w 2^-24 at most, beside what sums of n terms are off
themselves; a factor of 1 would be the direct sum's (`Transform.growth` computes it from the
matrices, as |A'|^2 |B'|^2 |G|^2 in the norm of row sums). Such bounds are far off: beside f64, on
numbers of a normal distribution, m = 4 errs six to ten times as much as the direct sum does (root
mean square; the largest error 17 to 29 times), m = 2 up to twice.
A number that is not finite spreads over the tiles that it is in, and what is finite may overflow
where the direct sum does not.

Taken where it takes less by COMMON's rates: products, and bytes of all arrays between.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.padding import PaddingDim
from hlo.attributes.slices import SliceDim
from hlo.attributes.window import Window, WindowDim
from hlo.ir import dtype as dt
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.machine import COMMON
from hlo.ops.making import make
from hlo.passes.liveness import replace as put_in_place
from hlo.passes.liveness import replaceable
from hlo.passes.loop_making import adopted, element, new_computation, parameter
from hlo.passes.patterns.matching import is_plain, splat

LEAST_GAIN = 1.3  # Times as fast by the estimate.
LEAST_PRODUCTS = 1 << 22  # In all: each kernel takes its time to be made.
TAPS = 3
Row = tuple[Fraction, ...]
Matrix = tuple[Row, ...]


def _matrix(*rows: Sequence[int | str]) -> Matrix:
    return tuple(tuple(map(Fraction, row)) for row in rows)


class Transform(Struct, frozen=True):
    """The matrices of tiles of `tile` results along a dimension: A', B' and G."""

    tile: int
    results: Matrix
    elements: Matrix
    taps: Matrix

    @property
    def size(self) -> int:
        """Elements of a tile along a dimension."""
        return self.tile + TAPS - 1

    @property
    def growth(self) -> float:
        """By how much numbers grow at most, in all transforms together."""
        norms = [
            max(sum(map(abs, row)) for row in m) for m in (self.results, self.elements, self.taps)
        ]
        return float(norms[0] * norms[1] * norms[2]) ** 2


# Points 0, 1, -1 and infinity; and 2 and -2 besides.
TRANSFORMS = (
    Transform(
        2,
        _matrix((1, 1, 1, 0), (0, 1, -1, 1)),
        _matrix((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
        _matrix((1, 0, 0), ("1/2", "1/2", "1/2"), ("1/2", "-1/2", "1/2"), (0, 0, 1)),
    ),
    Transform(
        4,
        _matrix(
            (1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)
        ),
        _matrix(
            (4, 0, -5, 0, 1, 0), (0, -4, -4, 1, 1, 0), (0, 4, -4, -1, 1, 0),
            (0, -2, -1, 2, 1, 0), (0, 2, -1, -2, 1, 0), (0, 4, 0, -5, 0, 1),
        ),
        _matrix(
            ("1/4", 0, 0), ("-1/6", "-1/6", "-1/6"), ("-1/6", "1/6", "-1/6"),
            ("1/24", "1/12", "1/6"), ("1/24", "-1/12", "1/6"), (0, 0, 1),
        ),
    ),
)  # fmt: skip


class Layer(Struct, frozen=True):
    """A convolution's sizes, as its tiles see them.

    images, rows, columns: of the result. before: zeros above and left of the base.
    """

    images: int
    rows: int
    columns: int
    inputs: int
    outputs: int
    base: tuple[int, int]
    before: tuple[int, int]

    @property
    def products(self) -> int:
        return TAPS**2 * self.images * self.rows * self.columns * self.inputs * self.outputs

    def tiles(self, t: Transform) -> tuple[int, int]:
        """Along rows and columns."""
        return -(-self.rows // t.tile), -(-self.columns // t.tile)

    def time(self, t: Transform) -> float:
        """An estimate in microseconds: products, and what goes through memory between them."""
        down, across = self.tiles(t)
        places = t.size**2
        tiles = self.images * down * across
        results = self.images * self.rows * self.columns * self.outputs
        padded = self.images * (down * t.tile + 2) * (across * t.tile + 2) * self.inputs
        moved = 3 * padded + 2 * places * tiles * (self.inputs + self.outputs)
        moved += 3 * results + (TAPS**2 + 2 * places) * self.inputs * self.outputs
        ops = 2 * places * tiles * self.inputs * self.outputs
        bytes_ = moved * dt.F32.item_bytes
        return ops / COMMON.rates.contracted_ops + bytes_ / COMMON.rates.memory_bytes


def winograd(module: Module) -> bool:
    """Convolutions of 3x3 windows as products of transformed tiles, where that takes less.

    Inexact (see the head of the file), so only fast mode runs it. O(instructions).
    """
    changed = False
    for convolution in replaceable(module, "convolution"):
        layer = _layer(convolution)
        transform = None if layer is None else _chosen(layer)
        if layer is not None and transform is not None:
            put_in_place(convolution, _rewritten(module, convolution, layer, transform))
            changed = True
    return changed


def _chosen(layer: Layer) -> Transform | None:
    """The transform that takes least, if that is worth it."""
    best = min(TRANSFORMS, key=layer.time)
    direct = 2 * layer.products / COMMON.rates.contracted_ops
    is_large = layer.products >= LEAST_PRODUCTS
    return best if is_large and direct >= LEAST_GAIN * layer.time(best) else None


def _layer(convolution: Instruction) -> Layer | None:
    """What is convolved, if it is of that form: f32, images with features innermost, no groups."""
    labels, window = convolution.get("dim_labels"), convolution.get("window")
    if not isinstance(labels, DimLabels) or not isinstance(window, Window):
        return None
    shapes = [*(o.shape for o in convolution.operands), convolution.shape]
    if len(shapes) != 3 or not all(s.is_array and s.dtype is dt.F32 and s.size for s in shapes):
        return None
    groups = {convolution.get("feature_group_count"), convolution.get("batch_group_count")}
    orders = [
        (labels.lhs_batch, *labels.lhs_spatial, labels.lhs_feature),
        (labels.out_batch, *labels.out_spatial, labels.out_feature),
    ]
    is_last = all(order == (0, 1, 2, 3) for order in orders)
    is_small = all(
        replace(w, pad_low=0, pad_high=0, reversed=False) == WindowDim(TAPS) for w in window.dims
    )
    if not is_last or not is_small or groups - {None, 1} or not all(map(is_plain, shapes)):
        return None
    if convolution.get("convolution_kind") not in (None, "", "unset", "fprop"):
        return None
    (images, rows, columns, outputs), base = shapes[2].dims, shapes[0].dims
    down, across = window.dims
    before = (down.pad_low, across.pad_low)
    return Layer(images, rows, columns, base[3], outputs, (base[1], base[2]), before)


def _rewritten(module: Module, convolution: Instruction, layer: Layer, t: Transform) -> Instruction:
    """The transforms, the products between them, and their results in their places."""
    x, w = convolution.operands
    tiles = _fused(module, convolution, _Elements(layer, t), [_padded(convolution, x, layer, t)])
    taps = _fused(module, convolution, _Taps(layer, t), [_turned(convolution, w)])
    down, across = layer.tiles(t)
    shape = Shape.array(dt.F32, (layer.images, down, across, layer.outputs))
    sides = {"lhs_contracting_dims": (3,), "rhs_contracting_dims": (0,)}
    beside = {
        name: convolution.attributes[name]
        for name in ("operand_precision",)
        if name in convolution.attributes
    }
    products = [
        make(
            convolution, "dot", element(tiles, n), element(taps, n), shape=shape, **sides, **beside
        )
        for n in range(t.size**2)
    ]
    results = _fused(module, convolution, _Results(layer, t), products)
    return _placed(convolution, results, layer, t)


def _padded(like: Instruction, x: Instruction, layer: Layer, t: Transform) -> Instruction:
    """The base with zeros around it, cut off where no tile reaches: whole tiles."""
    room = [PaddingDim(0, 0)]
    for count, size, before in zip(layer.tiles(t), layer.base, layer.before, strict=True):
        room.append(PaddingDim(before, count * t.tile + TAPS - 1 - size - before))
    zero = splat(like, 0, x.shape.with_dims(()))
    return make(like, "pad", x, zero, padding=(*room, PaddingDim(0, 0)))


def _turned(convolution: Instruction, w: Instruction) -> Instruction:
    """The kernel as [row, column, input, output], its window from first to last."""
    labels, window = convolution["dim_labels"], convolution["window"]
    assert isinstance(labels, DimLabels)
    assert isinstance(window, Window)
    order = (*labels.rhs_spatial, labels.rhs_input_feature, labels.rhs_output_feature)
    if order != (0, 1, 2, 3):
        w = make(convolution, "transpose", w, dimensions=order)
    backwards = tuple(k for k, d in enumerate(window.dims) if d.reversed)
    return make(convolution, "reverse", w, dimensions=backwards) if backwards else w


def _placed(like: Instruction, results: Instruction, layer: Layer, t: Transform) -> Instruction:
    """Results of all places of a tile, each where it belongs; what is beyond the ends cut off."""
    down, across = layer.tiles(t)
    one = Shape.array(dt.F32, (layer.images, down, 1, across, 1, layer.outputs))
    places = [make(like, "reshape", element(results, n), shape=one) for n in range(t.tile**2)]
    rows = [
        make(like, "concatenate", *places[k : k + t.tile], dimensions=(4,))
        for k in range(0, len(places), t.tile)
    ]
    whole = make(like, "concatenate", *rows, dimensions=(2,))
    sizes = (layer.images, down * t.tile, across * t.tile, layer.outputs)
    whole = make(like, "reshape", whole, shape=Shape.array(dt.F32, sizes))
    if sizes == like.shape.dims:
        return whole
    return make(like, "slice", whole, slice=tuple(SliceDim(0, n) for n in like.shape.dims))


# -- transforms ------------------------------------------------------------------------------------


def _fused(
    module: Module,
    like: Instruction,
    side: _Elements | _Taps | _Results,
    operands: list[Instruction],
) -> Instruction:
    """A fusion of a transform, whose results are all places of a tile, row-major."""
    made = new_computation(like, "winograd")
    given = [parameter(made, n, o.shape) for n, o in enumerate(operands)]
    results = _Writing(made, side).transformed(side.read(made, given), side.matrix)
    shape = Shape.tuple(r.shape for r in results)
    made.root = made.new("tuple", shape, results)
    made = adopted(module, like, made)
    assert like.computation is not None, "an instruction in a computation"
    attributes = {"kind": "kLoop", "calls": made}
    return like.computation.new(
        "fusion", shape, operands, attributes, like=like, name="winograd_fusion"
    )


class _Side(Struct, frozen=True):
    """A transform of what tiles hold."""

    layer: Layer
    transform: Transform


class _Elements(_Side, frozen=True):
    """The base's: every tile-th element from each place on."""

    @property
    def matrix(self) -> Matrix:
        return self.transform.elements

    @property
    def shape(self) -> Shape:
        layer = self.layer
        dims = (layer.images, *layer.tiles(self.transform), layer.inputs)
        return Shape.array(dt.F32, dims)

    def read(self, made: Computation, given: list[Instruction]) -> list[list[Instruction]]:
        t, (x,) = self.transform, given

        def cut(first: int, count: int) -> SliceDim:
            return SliceDim(first, first + (count - 1) * t.tile + 1, t.tile)

        down, across = self.layer.tiles(t)
        images, features = SliceDim(0, self.layer.images), SliceDim(0, self.layer.inputs)
        return [
            [
                made.new("slice", self.shape, [x],
                         {"slice": (images, cut(i, down), cut(j, across), features)})
                for j in range(t.size)
            ]
            for i in range(t.size)
        ]  # fmt: skip


class _Taps(_Side, frozen=True):
    """The kernel's."""

    @property
    def matrix(self) -> Matrix:
        return self.transform.taps

    @property
    def shape(self) -> Shape:
        return Shape.array(dt.F32, (self.layer.inputs, self.layer.outputs))

    def read(self, made: Computation, given: list[Instruction]) -> list[list[Instruction]]:
        (w,) = given
        features = tuple(SliceDim(0, n) for n in self.shape.dims)
        taps: list[list[Instruction]] = [[] for _ in range(TAPS)]
        for i, j in product(range(TAPS), repeat=2):
            cut = {"slice": (SliceDim(i, i + 1), SliceDim(j, j + 1), *features)}
            one = made.new("slice", self.shape.with_dims((1, 1, *self.shape.dims)), [w], cut)
            taps[i].append(made.new("reshape", self.shape, [one]))
        return taps


class _Results(_Side, frozen=True):
    """The products'."""

    @property
    def matrix(self) -> Matrix:
        return self.transform.results

    @property
    def shape(self) -> Shape:
        layer = self.layer
        return Shape.array(dt.F32, (layer.images, *layer.tiles(self.transform), layer.outputs))

    def read(self, made: Computation, given: list[Instruction]) -> list[list[Instruction]]:
        del made
        size = self.transform.size
        return [given[k : k + size] for k in range(0, len(given), size)]


class _Writing:
    """Sums of multiples, in a computation under construction."""

    def __init__(self, made: Computation, side: _Elements | _Taps | _Results) -> None:
        self.made, self.shape = made, side.shape
        self.factors: dict[Fraction, Instruction] = {}

    def transformed(self, x: list[list[Instruction]], matrix: Matrix) -> list[Instruction]:
        """matrix x matrix', row-major."""
        columns = [self._column([row[j] for row in x], matrix) for j in range(len(x[0]))]
        rows = [self._column([column[i] for column in columns], matrix) for i in range(len(matrix))]
        return [place for row in rows for place in row]

    def _column(self, x: list[Instruction], matrix: Matrix) -> list[Instruction]:
        """matrix x. Two rows that are a sum and a difference of the same parts share these."""
        results: list[Instruction] = []
        while len(results) < len(matrix):
            row, *others = matrix[len(results) :]
            halves = _halves(row, others[0]) if others else None
            if halves is None:
                results.append(self._sum(x, row))
                continue
            a, b = (self._sum(x, half) for half in halves)
            results += [self._op("add", a, b), self._op("subtract", a, b)]
        return results

    def _sum(self, x: list[Instruction], row: Row) -> Instruction:
        total: Instruction | None = None
        for factor, value in sorted(zip(row, x, strict=True), key=lambda pair: pair[0] < 0):
            if not factor:
                continue
            term = self._multiple(value, abs(factor))
            if total is None:
                total = term if factor > 0 else self._op("negate", term)
            else:
                total = self._op("add" if factor > 0 else "subtract", total, term)
        assert total is not None, "a row with a number in it"
        return total

    def _multiple(self, value: Instruction, factor: Fraction) -> Instruction:
        if factor == 1:
            return value
        if factor not in self.factors:
            scalar = Shape.array(dt.F32, ())
            literal = Literal.of(np.array(float(factor), np.float32), scalar)
            one = self.made.new("constant", scalar, (), {"literal": literal})
            spread = self.made.new("broadcast", self.shape, [one], {"dimensions": ()})
            self.factors[factor] = spread
        return self._op("multiply", value, self.factors[factor])

    def _op(self, opcode: str, *operands: Instruction) -> Instruction:
        return self.made.new(opcode, self.shape, operands)


def _halves(row: Row, after: Row) -> tuple[Row, Row] | None:
    """Two rows without a common place, whose sum and difference these are; both of a few terms."""
    pairs = list(zip(row, after, strict=True))
    even, odd = (tuple((a + sign * b) / 2 for a, b in pairs) for sign in (1, -1))
    is_shared = not any(a and b for a, b in zip(even, odd, strict=True))
    return (even, odd) if is_shared and sum(map(bool, row)) > 2 else None
