"""Microkernel: a tile of the result kept in registers while depth runs.

    acc[r][v] += splat(a[r]) * b[v]    r < rows, v < vectors; one outer product per depth

A factor is read where it lies (any strides, converted on the way) or from its panel. Sums that
round are made block by block (sum_blocks.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import gcd

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, advanced, divided, times
from hlo.backend.ir.control import loop
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.problem.ring import Parts, Ring, element_address, loaded
from hlo.backend.kernels.contraction.problem.sum_blocks import Cut
from hlo.ir.dtype import DType

Tile = list[list[Parts]]  # [row][vector]
UNKNOWN = Value("%depths", "i64")  # Stands for a size while there is no code yet.


class Factor(Struct, frozen=True):
    """How the microkernel reads one factor.

    dtype: of the elements in memory, None for a panel of ring numbers. unit: elements to the next
    row (a factor of rows) or 1 (of columns); part: ring scalars of a panel to the next part.
    spread: a factor of rows that differs in each column: vectors, where others have one number.
    """

    ring: Ring
    dtype: DType | None
    unit: int = 1
    part: int = 0
    spread: bool = False

    def moved(self, w: Writer, base: Value, steps: Value) -> Value:
        """base + steps, in elements or in ring scalars of the panel."""
        if self.dtype is None:
            return advanced(w, base, steps, self.ring.factors.scalar)
        return element_address(w, base, steps, self.dtype)

    def numbers(self, w: Writer, at: Value, row: int, masks: list[Value | None]) -> list[Parts]:
        """Row `row` at the depth to which `at` points, for each vector of columns."""
        if self.spread:
            moved = self.moved(w, at, w.int(row * self.unit))
            return [self.vector(w, moved, v, mask) for v, mask in enumerate(masks)]
        return [self._number(w, at, row)] * len(masks)

    def _number(self, w: Writer, at: Value, row: int) -> Parts:
        ring = self.ring
        if self.dtype is not None:
            address = element_address(w, at, w.int(row * self.unit), self.dtype)
            parts = loaded(w, ring, self.dtype, address, 1)
        else:
            addresses = [
                advanced(w, at, i * self.part + row * self.unit, ring.scalar)
                for i in range(ring.parts)
            ]
            parts = tuple(w.load(a, ring.scalar, ring.scalar_bytes) for a in addresses)
        return tuple(w.splat(p, ring.lanes) for p in parts)

    def pair(self, w: Writer, at: Value, row: int) -> Value:
        """The words of two rows at the depth to which `at` points, in a vector."""
        words = self.ring.factors
        type = words.type(2)
        first, second = (self.moved(w, at, w.int(n * self.unit)) for n in (row, row + 1))
        if self.unit == 1:
            return w.load(first, type, words.scalar_bytes)
        numbers = (w.load(a, words.scalar, words.scalar_bytes) for a in (first, second))
        lower, upper = numbers
        return w.insert(w.insert(w.zero(type), lower, 0), upper, 1)

    def pairs(self, w: Writer, at: Value, v: int, mask: Value | None) -> tuple[Value, Value]:
        """The words of vector `v` of the columns, two columns in a vector."""
        lanes, words = self.ring.lanes, self.ring.factors
        at = self.moved(w, at, w.int(v * lanes))
        if self.dtype is None:
            whole = w.load(at, words.type(lanes), words.scalar_bytes)
        else:
            (whole,) = loaded(w, words, self.dtype, at, lanes, mask)
        lower, upper = (w.shuffle(whole, whole, half) for half in (range(2), range(2, lanes)))
        return lower, upper

    def vector(self, w: Writer, at: Value, v: int, mask: Value | None) -> Parts:
        """Vector `v` of the columns at the depth to which `at` points."""
        ring = self.ring
        if self.dtype is not None:
            address = element_address(w, at, w.int(v * ring.lanes), self.dtype)
            return loaded(w, ring, self.dtype, address, ring.lanes, mask)
        return tuple(
            w.load(
                advanced(w, at, i * self.part + v * ring.lanes, ring.scalar),
                ring.vector,
                ring.scalar_bytes,
            )
            for i in range(ring.parts)
        )


class DepthAxis(Struct, frozen=True):
    """One loop over depth; steps of both factors in their own units.

    multiple: a number that divides a size that is known at run time only.
    """

    size: Value
    lhs: int
    rhs: int
    multiple: int = 1

    @property
    def known(self) -> int | None:
        """The size, where it is a constant."""
        return self.size.integer

    def block(self, rounds: int) -> DepthAxis:
        """A block of rounds; the last one may be shorter, where no number of them is known."""
        known = self.known
        is_whole = known is not None and known % rounds == 0
        size = Value(str(rounds), "i64") if is_whole else UNKNOWN
        multiple = gcd(rounds, self.multiple if known is None else known)
        return DepthAxis(size, self.lhs, self.rhs, multiple)


class Microkernel(Struct, frozen=True):
    """A tile of rows x (vectors * lanes). cut: where depth is cut into blocks of sums."""

    rows: int
    vectors: int
    lhs: Factor
    rhs: Factor
    depth: tuple[DepthAxis, ...]
    unroll: int = 1
    cut: Cut | None = None

    @property
    def ring(self) -> Ring:
        return self.lhs.ring


Step = Callable[[Value, Value, list[Value]], list[Value]]


def product(
    w: Writer,
    micro: Microkernel,
    lhs: Value,
    rhs: Value,
    tile: Tile | None,
    masks: list[Value | None],
) -> Tile:
    """tile (None: zeros) + the product over all of depth; lhs and rhs point at depth 0."""

    def step(a: Value, b: Value, values: list[Value]) -> list[Value]:
        return _outer_product(w, micro, a, b, values, masks)

    zeros = _flat(zero_tile(w, micro))
    if not micro.ring.rounds:
        start = zeros if tile is None else _flat(_in_squares(w, micro, tile))
        sums = _over_depth(w, micro, micro.depth, lhs, rhs, start, step)
        return _in_rows(w, micro, _unflat(sums, micro))
    if micro.cut is None:
        sums = _over_depth(w, micro, micro.depth, lhs, rhs, zeros, step)
    else:
        sums = _in_blocks(w, micro, micro.depth, lhs, rhs, zeros, step, _sizes(micro, 0))
    made = _in_rows(w, micro, _unflat(sums, micro))
    return made if tile is None else _unflat(_added(w, micro, _flat(tile), _flat(made)), micro)


def _in_rows(w: Writer, micro: Microkernel, tile: Tile) -> Tile:
    """The tile's rows, where its sums are squares: those of rows r and r + 1 lie in places r."""
    dot = micro.ring.dot
    return tile if dot is None else _by_pairs(w, tile, dot.rows, dot.in_rows)


def _in_squares(w: Writer, micro: Microkernel, tile: Tile) -> Tile:
    """The reverse."""
    dot = micro.ring.dot
    return tile if dot is None else _by_pairs(w, tile, dot.rows, dot.in_squares)


def _by_pairs(
    w: Writer,
    tile: Tile,
    rows: int,
    change: Callable[[Writer, Value, Value], tuple[Value, Value]],
) -> Tile:
    """What lies in two rows, at the same vector, changed into two others."""
    if rows == 1:
        return tile
    changed: Tile = []
    for first, second in zip(tile[::2], tile[1::2], strict=True):
        pairs = [change(w, a, b) for (a,), (b,) in zip(first, second, strict=True)]
        changed += [[(a,) for a, _ in pairs], [(b,) for _, b in pairs]]
    return changed


def _in_blocks(
    w: Writer,
    micro: Microkernel,
    axes: tuple[DepthAxis, ...],
    lhs: Value,
    rhs: Value,
    totals: list[Value],
    step: Step,
    sizes: Sequence[int],
) -> list[Value]:
    """totals + the sums of all blocks, each made on its own. sizes: of blocks, and of theirs."""
    cut, axis, inner = micro.cut, axes[0], axes[1:]
    assert cut is not None, "asked for where depth is cut"
    level = len(micro.depth) - len(axes)
    rounds, *smaller = sizes
    zeros = _flat(zero_tile(w, micro))

    def body(i: Value, carried: list[Value]) -> list[Value]:
        a, b, *found = carried
        block = (_block(w, axis, rounds, i), *inner)
        if smaller:
            own = _in_blocks(w, micro, block, a, b, zeros, step, smaller)
        elif level == cut.level:
            own = _over_depth(w, micro, block, a, b, zeros, step)
        else:
            start = zeros if cut.sizes else found
            own = _in_blocks(w, micro, inner, a, b, start, step, _sizes(micro, level + 1))
        is_added = smaller or level == cut.level or cut.sizes
        found = _added(w, micro, found, own) if is_added else own
        following_a = micro.lhs.moved(w, a, w.int(rounds * axis.lhs))
        following_b = micro.rhs.moved(w, b, w.int(rounds * axis.rhs))
        return [following_a, following_b, *found]

    count = divided(w, add(w, axis.size, w.int(rounds - 1)), rounds)
    return loop(w, count, [lhs, rhs, *totals], body)[2:]


def _sizes(micro: Microkernel, level: int) -> Sequence[int]:
    """Of the blocks of the loop at a level."""
    cut = micro.cut
    assert cut is not None, "asked for where depth is cut"
    return cut.blocks(level) or (1,)


def _block(w: Writer, axis: DepthAxis, rounds: int, number: Value) -> DepthAxis:
    """One block's part of a loop."""
    block = axis.block(rounds)
    if block.known is not None:
        return block
    left = w.binary("sub", axis.size, times(w, number, rounds))
    return replace(block, size=w.intrinsic("llvm.umin", "i64", left, w.int(rounds)))


def _added(w: Writer, micro: Microkernel, left: list[Value], right: list[Value]) -> list[Value]:
    pairs = zip(_unflat(left, micro), _unflat(right, micro), strict=True)
    return _flat([[micro.ring.add(w, a, b) for a, b in zip(x, y, strict=True)] for x, y in pairs])


def zero_tile(w: Writer, micro: Microkernel) -> Tile:
    """Sums before the first product."""
    zero = micro.ring.zero(w, micro.ring.lanes)
    return [[zero] * micro.vectors for _ in range(micro.rows)]


def _over_depth(
    w: Writer,
    micro: Microkernel,
    axes: tuple[DepthAxis, ...],
    lhs: Value,
    rhs: Value,
    values: list[Value],
    step: Step,
) -> list[Value]:
    """The nest of depth loops; pointers advance by addition, short loops are unrolled."""
    if not axes:
        return step(lhs, rhs, values)
    axis, inner = axes[0], axes[1:]

    def once(a: Value, b: Value, values: list[Value], i: int) -> list[Value]:
        a = micro.lhs.moved(w, a, w.int(i * axis.lhs))
        b = micro.rhs.moved(w, b, w.int(i * axis.rhs))
        return _over_depth(w, micro, inner, a, b, values, step)

    if (unroll := unrolled(micro, axes)) == 0:
        for i in range(axis.known or 0):
            values = once(lhs, rhs, values, i)
        return values

    def body(_: Value, carried: list[Value]) -> list[Value]:
        a, b, *rest = carried
        for i in range(unroll):
            rest = once(a, b, rest, i)
        following_a = micro.lhs.moved(w, a, w.int(unroll * axis.lhs))
        following_b = micro.rhs.moved(w, b, w.int(unroll * axis.rhs))
        return [following_a, following_b, *rest]

    count = divided(w, axis.size, unroll)
    return loop(w, count, [lhs, rhs, *values], body)[2:]


def unrolled(micro: Microkernel, axes: tuple[DepthAxis, ...]) -> int:
    """Steps of the outermost of these loops that a round takes; 0: all, there is no loop."""
    axis, inner = axes[0], axes[1:]
    static = axis.known
    if static is not None and static * _unroll_factor(inner) <= micro.unroll:
        return 0
    whole = (static or axis.multiple) % micro.unroll == 0
    return micro.unroll if not inner and whole else 1


def _unroll_factor(axes: tuple[DepthAxis, ...]) -> int:
    result = 1
    for axis in axes:
        result *= axis.known or 1 << 40
    return result


def _outer_product(
    w: Writer,
    micro: Microkernel,
    a: Value,
    b: Value,
    values: list[Value],
    masks: list[Value | None],
) -> list[Value]:
    ring = micro.ring
    if ring.rows == 2:
        return _outer_squares(w, micro, a, b, values, masks)
    vectors = [micro.rhs.vector(w, b, v, masks[v]) for v in range(micro.vectors)]
    tile = _unflat(values, micro)
    for r in range(micro.rows):
        numbers = micro.lhs.numbers(w, a, r, masks)
        tile[r] = [
            ring.multiply_add(w, total, number, vector)
            for total, number, vector in zip(tile[r], numbers, vectors, strict=True)
        ]
    return _flat(tile)


def _outer_squares(
    w: Writer,
    micro: Microkernel,
    a: Value,
    b: Value,
    values: list[Value],
    masks: list[Value | None],
) -> list[Value]:
    """The same of two rows by two columns: squares side by side lie in two rows of the tile."""
    ring = micro.ring
    columns = [micro.rhs.pairs(w, b, v, masks[v]) for v in range(micro.vectors)]
    tile = _unflat(values, micro)
    for r in range(0, micro.rows, 2):
        rows = micro.lhs.pair(w, a, r)
        for v, sides in enumerate(columns):
            for n, side in enumerate(sides):
                (total,) = tile[r + n][v]
                tile[r + n][v] = (ring.multiply_add_part(w, total, rows, side),)
    return _flat(tile)


def _flat(tile: Tile) -> list[Value]:
    return [part for row in tile for parts in row for part in parts]


def _unflat(values: list[Value], micro: Microkernel) -> Tile:
    each = iter(values)
    return [
        [tuple(next(each) for _ in range(micro.ring.parts)) for _ in range(micro.vectors)]
        for _ in range(micro.rows)
    ]
