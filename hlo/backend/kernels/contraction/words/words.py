"""Words: factors whose elements a dot product takes by two or four, as factors of 32-bit words.

    Contraction, Ring --in_words--> Worded: a contraction of words, and what makes them

Elements that follow each other along the innermost axis of depth share a word, the first in its
low bits; the last word of an odd depth is filled up with zero. A factor that lies along that axis
is words as it stands, if its elements need no conversion; others are copied, in the order in which
they lie (packing.py), or are columns that become words where the product packs them
(packing/interleaving.py). What is left is a product like those of f32 and s32, of a half or a
quarter of the depth.

Quads of 8 bits are signed or unsigned as the instruction has them. Where none multiplies factors of
these kinds, lhs's elements are turned into the other kind by their sign bit, which moves all of
them by 128: what a row of zeros would give, moved so, is then taken from every row (zeros.py).

Words of 64 bits serve instructions that multiply two rows by two columns, where the machine's do
more work so.

What elements hold which types' numbers, elements.py says.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.isa.dot_products import DotProduct
from hlo.backend.kernels.contraction.problem.axes import (
    Axes,
    Axis,
    Contraction,
    Joined,
    Operand,
    extent,
    normal,
    reach,
)
from hlo.backend.kernels.contraction.problem.elements import holds
from hlo.backend.kernels.contraction.problem.ring import Ring
from hlo.indexing.affine import row_major_strides
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.machine import COMMON

# Smaller products take less time than the copies.
LEAST_DEPTH = 16
LEAST_FLOPS = 1 << 16
NEAR_BYTES = COMMON.first_cache.bytes  # Of a matrix that is read in place however often.
PAIR = 2  # Elements of a word.
_QUAD_ELEMENTS = (dt.U8, dt.S8)
_HALVES = (dt.S16, dt.U16)
_PAIRS = (*((a, b) for a in _HALVES for b in _HALVES), (dt.BF16, dt.BF16))
MOST_COPIES = 2  # An element that more windows share is not copied for each.
# Elements along depth from which words that begin at every element pay: each is copied twice.
LEAST_SHARED = 8


Place = tuple[str, int]  # of an axis: a set of a contraction's, the axis's number in it


class Words(Struct, frozen=True):
    """One factor as words. axes: sizes and the source's strides in elements, in the order of the
    words, row-major; pairs: the number among them of the axis that the words' elements lie along.
    is_copied: else they lie in the source. element: of the words; is_moved: whether the sign bit of
    each is turned over. offset: of the contraction's element 0 among the words. is_joined: words
    are made while they are packed (_is_joined).
    """

    source: Operand
    dot: DotProduct
    axes: tuple[tuple[int, int], ...]
    pairs: int
    is_copied: bool
    element: DType
    is_moved: bool = False
    offset: int = 0
    is_joined: bool = False

    @property
    def sizes(self) -> tuple[int, ...]:
        """In words."""
        group = self.dot.group
        return tuple(-(-s // group) if n == self.pairs else s for n, (s, _) in enumerate(self.axes))

    @property
    def is_along_depth(self) -> bool:
        """Whether words follow each other along depth."""
        return self.pairs == len(self.axes) - 1

    @property
    def size_bytes(self) -> int:
        return prod(self.sizes) * self.dot.word.item_bytes


class Worded(Struct, frozen=True):
    """A contraction on words, and its factors.

    contraction: of words that lie where the factors did; ring: with the dot product.
    """

    contraction: Contraction
    ring: Ring
    lhs: Words
    rhs: Words


def in_words(
    c: Contraction, ring: Ring, early: Collection[int] = (), known: Collection[int] = ()
) -> Worded | None:
    """The contraction on words; None where no instruction, or no order of elements, serves.

    early: buffers that are copied before the loop around, which costs a step nothing; known: those
    that are copied when the program is compiled.
    """
    dot, is_moved = dot_product(c, ring)
    if dot is None or c.is_diagonal or (dot.rows > 1 and c.n < ring.lanes):
        return None
    if c.flops < LEAST_FLOPS:
        return None
    orders = (_worded(each, ring, dot, early, known, is_moved=is_moved) for each in _orders(c, dot))
    return next((worded for worded in orders if worded is not None), None)


def _orders(c: Contraction, dot: DotProduct) -> Iterator[Contraction]:
    """The contraction, and with other axes of depth as the innermost one, whose elements share
    words: as the features of pictures that are not.
    """
    yield c
    for n, axis in reversed(list(enumerate(c.depth[:-1]))):
        if axis.size >= LEAST_DEPTH and axis.size % dot.group == 0:
            yield replace(c, depth=(*c.depth[:n], *c.depth[n + 1 :], axis))


def _worded(
    c: Contraction,
    ring: Ring,
    dot: DotProduct,
    early: Collection[int],
    known: Collection[int],
    *,
    is_moved: bool,
) -> Worded | None:
    """The contraction on words along the innermost axis of depth."""
    if not c.depth or c.depth[-1].size < LEAST_SHARED:
        return None
    lhs, left = _words(c, "lhs", dot, is_moved=is_moved)
    rhs, right = _words(c, "rhs", dot)
    if lhs is None:
        lhs, left = _array_words(c, "lhs", dot, is_moved=is_moved)
    if rhs is None:
        rhs, right = _array_words(c, "rhs", dot)
    is_shared = False
    if lhs is None and rhs is not None and not is_moved:
        is_shared, (lhs, left) = True, _shared_words(c, "lhs", dot)
    elif rhs is None and lhs is not None and not is_moved:
        is_shared, (rhs, right) = True, _shared_words(c, "rhs", dot)
    if lhs is None or rhs is None:
        return None
    if not is_shared and _is_joined(c, lhs, rhs, (*early, *known)):
        rhs, right = replace(rhs, is_joined=True), _element_strides(c, dot)
    if not _pays(c, dot, [lhs, rhs], early):
        return None
    if c.depth[-1].size < LEAST_DEPTH and not is_shared:
        return None
    ring = replace(ring, dot=dot, registers=ring.registers - dot.aside)
    words = _of_words(c, lhs, left, right, rhs)  # of a product whose factors may be exchanged
    return Worded(normal(words, ring.lanes, keeps_sides=True), ring, lhs, rhs)


def _is_joined(c: Contraction, lhs: Words, rhs: Words, kept: Collection[int]) -> bool:
    """Whether columns become words where the product packs them, and not in memory before.

    Each element of rhs is in one word, and what is packed are the words that a copy would have
    held, one by one, so the sums are the same. A copy takes a way through memory and back for all
    of rhs, and so do what computes it and what looks for subnormal numbers there. Of a batch's
    small matrices, which a product reads where they lie, all are copied at a time. kept: buffers of
    which words are made once for many products. What zeros give, where lhs is moved, is a product
    that packs them once more. Zen 4, two threads, bytes: 32 x 3072 x 768 0.93 of the time with a
    copy, 4096 x 64 x 512 0.94, 128^3 to 2048^3 0.98 to 1.02.
    """
    if not rhs.is_copied or rhs.is_along_depth or rhs.dot.rows > 1:
        return False
    if len(c.depth) != 1 or len(c.columns) != 1 or c.k % rhs.dot.group or c.columns[0].rhs != 1:
        return False
    is_small = c.batches > 1 and c.k * c.n * rhs.source.dtype.item_bytes <= NEAR_BYTES
    return c.rhs.prologue is not None or not (is_small or c.rhs.buffer in kept)


def _element_strides(c: Contraction, dot: DotProduct) -> dict[Place, int]:
    """How far a step of each axis moves among rhs's elements; along depth as many as a word has."""
    places = [(name, n) for name in ("batch", "columns", "depth")
              for n, a in enumerate(getattr(c, name)) if a.rhs]  # fmt: skip
    pairs = ("depth", len(c.depth) - 1)
    return {p: _axis(c, p).rhs * (dot.group if p == pairs else 1) for p in places}


def product_of_rows(c: Contraction, ring: Ring) -> tuple[DotProduct | None, bool]:
    """The instruction on words that are made in registers, of one row by vectors of columns, whose
    words hold the factors' numbers as they are, or lhs's moved; whether they are. Quads of 8 bits
    before pairs of 16.
    """
    lhs, rhs = c.lhs.dtype, c.rhs.dtype
    kinds = [(a, b) for a in _QUAD_ELEMENTS for b in _QUAD_ELEMENTS if holds(b, rhs)]
    if not (lhs.is_integral and lhs.bits <= 8):
        kinds = []
    kinds = sorted(kinds, key=lambda kind: not holds(kind[0], lhs))
    kinds += [kind for kind in _PAIRS if all(map(holds, kind, (lhs, rhs)))]
    for kind in kinds:
        turned = ring.target.isa.dot_product(*reversed(kind))
        dot = ring.target.isa.dot_product(*kind) or (turned and turned.turned)
        if dot and ring.parts == 1 and dot.sums == ring.scalar and not ring.result.is_pred:
            return dot, not holds(kind[0], lhs)
    return None, False


def beside_words(
    c: Contraction, dot: DotProduct, *, is_moved: bool
) -> tuple[Contraction, Words] | None:
    """The contraction whose lhs is words, what makes them, and rhs as it is: of the one axis of
    depth, whose size is that of elements, each word of lhs is as many steps of rhs as it has
    elements.
    """
    words, strides = _words(c, "lhs", dot, is_moved=is_moved)
    if words is None:
        return None

    def moved(name: str) -> tuple[Axis, ...]:
        axes: Axes = getattr(c, name)
        return tuple(replace(a, lhs=strides.get((name, n), 0)) for n, a in enumerate(axes))

    batch, rows, depth = (moved(name) for name in ("batch", "rows", "depth"))
    return replace(c, batch=batch, rows=rows, depth=depth, lhs=_operand(words)), words


def has_words(c: Contraction, ring: Ring) -> bool:
    """Whether some instruction multiplies words of the factors' elements."""
    return dot_product(c, ring)[0] is not None


def _pays(c: Contraction, dot: DotProduct, factors: list[Words], early: Collection[int]) -> bool:
    """Whether copies take less time than dot products save, on machines of all caches: a product
    and its sum are one instruction for floats, two for integers, and a share of one for words.
    Columns that are joined while they are packed are written to a cache.
    """
    rates = COMMON.rates
    copies = [f for f in factors if f.is_copied and f.source.buffer not in early]
    is_near = sum(map(_moved_bytes, copies)) <= COMMON.last_cache.bytes
    copied_bytes = rates.cached_bytes if is_near else rates.memory_bytes
    copying_us = sum(
        _moved_bytes(f) / (rates.cached_bytes if f.is_joined else copied_bytes) for f in copies
    )
    instructions = 2 if dot.element.is_integral else 1
    saved_us = c.flops * (instructions - 1 / dot.group) / rates.contracted_ops
    return saved_us > copying_us


def _moved_bytes(words: Words) -> int:
    """What is read and written where a factor becomes words."""
    read = prod(words.sizes) * words.dot.group * words.source.dtype.item_bytes
    return read + words.size_bytes


def dot_product(c: Contraction, ring: Ring) -> tuple[DotProduct | None, bool]:
    """The instruction for the operands' types, if its sums are the ring's numbers; whether lhs's
    elements are moved.
    """
    types = (c.lhs.dtype, c.rhs.dtype)
    if all(t.is_integral and t.bits <= 8 for t in types):
        quads, is_moved = _quads(c, ring)
        if quads is not None:
            return quads, is_moved
    kinds = (kind for kind in _PAIRS if all(map(holds, kind, types)))
    found = (_of_ring(c, ring, lhs, rhs) for lhs, rhs in kinds)
    return next((dot for dot in found if dot is not None), None), False


def _of_ring(c: Contraction, ring: Ring, lhs: DType, rhs: DType) -> DotProduct | None:
    """The instruction for words of these elements, in either order, if its sums are the ring's
    numbers: of two rows by two columns, where the machine does more work so.
    """
    isa = ring.target.isa
    asked = [isa.square_product] * _squares_pay(c) + [isa.dot_product]
    for ask in asked:
        dot, turned = ask(lhs, rhs), ask(rhs, lhs)
        dot = dot or (turned.turned if turned else None)
        if dot and dot.sums == ring.scalar and ring.parts == 1 and not ring.result.is_pred:
            return dot
    return None


def _squares_pay(c: Contraction) -> bool:
    """Whether squares take fewer cycles than dot products, on machines of all caches: an odd row
    is computed twice.
    """
    cycles, pairs = COMMON.cycles, -(-c.m // 2)
    return c.m > 1 and pairs / cycles.squares < c.m / cycles.dots


def _quads(c: Contraction, ring: Ring) -> tuple[DotProduct | None, bool]:
    """The instruction whose words hold the factors' elements, or rhs's and lhs's moved ones."""
    lhs, rhs = c.lhs.dtype, c.rhs.dtype
    kinds = [(a, b) for a in _QUAD_ELEMENTS for b in _QUAD_ELEMENTS if holds(b, rhs)]
    found = [(_of_ring(c, ring, a, b), not holds(a, lhs)) for a, b in kinds]
    usable = [(dot, is_moved) for dot, is_moved in found if dot is not None]
    return min(usable, key=lambda each: each[1], default=(None, False))


def _order(c: Contraction, side: str) -> list[Place] | None:
    """The axes that move a factor, in the order of its words: those that lie one after the other
    in memory come last. None where nothing does.
    """
    free = "rows" if side == "lhs" else "columns"
    batch, own, outer = ([
        (name, n) for n, a in enumerate(getattr(c, name)) if getattr(a, side) and a.size > 1
    ] for name in ("batch", free, "depth"))  # fmt: skip
    pairs = ("depth", len(c.depth) - 1)
    outer = [place for place in outer if place != pairs]
    if getattr(c.depth[-1], side) == 1:
        return [*batch, *own, *outer, pairs]
    if own and getattr(_axis(c, own[-1]), side) == 1:
        return [*batch, *outer, pairs, *own]
    return None


def _axis(c: Contraction, place: Place) -> Axis:
    found: Axis = getattr(c, place[0])[place[1]]
    return found


def _words(
    c: Contraction, side: str, dot: DotProduct, *, is_moved: bool = False
) -> tuple[Words | None, dict[Place, int]]:
    """A factor's words, and how far one step of each axis moves among them."""
    order = _order(c, side)
    if order is None:
        return None, {}
    pairs = order.index(("depth", len(c.depth) - 1))
    axes = [(_axis(c, place).size, getattr(_axis(c, place), side)) for place in order]
    source: Operand = getattr(c, side)
    element = dot.element if side == "lhs" else dot.other or dot.element
    words = Words(source, dot, tuple(axes), pairs, True, element, is_moved)
    others = [stride for n, (_, stride) in enumerate(axes) if n != pairs]
    whole = axes[pairs][0] % dot.group == 0 and words.is_along_depth
    if (
        whole
        and source.dtype is element
        and not is_moved
        and all(n % dot.group == 0 for n in (*others, *source.steps))
    ):
        strides = [stride // dot.group or 1 for _, stride in axes]
        return replace(words, is_copied=False), dict(zip(order, strides, strict=True))
    if prod(words.sizes) > MOST_COPIES * (reach(c, side) // dot.group + extent(c.batch)):
        return None, {}
    return words, dict(zip(order, row_major_strides(words.sizes), strict=True))


def _array_words(
    c: Contraction, side: str, dot: DotProduct, *, is_moved: bool = False
) -> tuple[Words | None, dict[Place, int]]:
    """Words of the array that a factor's windows share, each element in one of them: of elements
    that follow each other, or that lie a plane apart, as the features of a picture whose positions
    are innermost do. A word is where its first element was, among as many times fewer.
    """
    source: Operand = getattr(c, side)
    places = [(name, n) for name in ("batch", "rows", "columns", "depth")
              for n in range(len(getattr(c, name)))]  # fmt: skip
    axes = {place: _axis(c, place) for place in places}
    strides = {place: int(getattr(axis, side)) for place, axis in axes.items()}
    strides = {place: stride for place, stride in strides.items() if stride}
    pairs, group = ("depth", len(c.depth) - 1), dot.group
    plane = strides.get(pairs, 0)
    if plane <= 0 or min(strides.values()) < 0 or axes[pairs].size % group:
        return None, {}
    within = {place: stride for place, stride in strides.items() if stride < plane}
    beyond = {place: stride for place, stride in strides.items() if stride > plane}
    others = {place: stride for place, stride in strides.items() if stride == plane}
    positions = 1 + sum((axes[place].size - 1) * stride for place, stride in within.items())
    is_apart = len(others) == 1 and all(s % (plane * group) == 0 for s in beyond.values())
    if not is_apart or positions > plane:
        return None, {}
    planes = axes[pairs].size
    planes += sum((axes[place].size - 1) * (stride // plane) for place, stride in beyond.items())
    element = dot.element if side == "lhs" else dot.other or dot.element
    rows = ((planes, plane), (positions, 1)) if plane > 1 else ((planes, 1),)
    words = Words(source, dot, rows, 0, True, element, is_moved)
    moved = {place: stride // plane // group * positions for place, stride in beyond.items()}
    return words, {**within, **moved, pairs: positions}


def _shared_words(
    c: Contraction, side: str, dot: DotProduct
) -> tuple[Words | None, dict[Place, int]]:
    """Words of a factor whose windows share its elements, as the base of a kernel's gradient: word
    n is element n and the one a step of depth behind it, so that words lie as elements do, and
    every other of them along depth is taken.

    An even number of rows of such words is made, for which memory behind the factor is read
    (Operand.spare): what comes of that is no word of the contraction.
    """
    source: Operand = getattr(c, side)
    step: int = getattr(c.depth[-1], side)
    element = dot.element if side == "lhs" else dot.other or dot.element
    places = [(name, n) for name in ("batch", "rows", "columns", "depth")
              for n in range(len(getattr(c, name)))]  # fmt: skip
    strides = {place: int(getattr(_axis(c, place), side)) for place in places}
    is_plain = source.dtype is element and dot.group == PAIR and dot.rows == 1
    if not is_plain or step <= 0 or min(strides.values()) < 0 or source.offset < 0:
        return None, {}
    if source.spare < 2 * step or c.depth[-1].size % dot.group or source.starts:
        return None, {}
    rows = -(-(source.offset + reach(c, side) - step) // step)
    rows += rows % dot.group
    axes = ((rows, step), (dot.group, step), (step, 1))
    words = Words(replace(source, offset=0), dot, axes, 0, True, element, offset=source.offset)
    strides[("depth", len(c.depth) - 1)] *= dot.group
    return words, {place: stride for place, stride in strides.items() if stride}


def _of_words(
    c: Contraction, lhs: Words, left: dict[Place, int], right: dict[Place, int], rhs: Words
) -> Contraction:
    """The contraction on the words that have these strides."""
    pairs = ("depth", len(c.depth) - 1)

    def moved(name: str) -> tuple[Axis, ...]:
        places = ((name, n) for n in range(len(getattr(c, name))))
        return tuple(
            Axis(
                -(-_axis(c, place).size // lhs.dot.group)
                if place == pairs
                else _axis(c, place).size,
                left.get(place, 0),
                right.get(place, 0),
                _axis(c, place).out,
            )
            for place in places
        )

    bounded = c.bounded
    if bounded is not None and bounded.side == "depth":
        bounded = replace(bounded, group=lhs.dot.group)
    return replace(
        c,
        bounded=bounded,
        batch=moved("batch"),
        rows=moved("rows"),
        columns=moved("columns"),
        depth=moved("depth"),
        lhs=_operand(lhs),
        rhs=_operand(rhs),
    )


def _operand(words: Words) -> Operand:
    """Where the words lie until they are copied."""
    source, group = words.source, words.dot.group
    if words.is_joined:
        _, step = words.axes[words.pairs]
        return replace(source, joined=Joined(group, step, words.element))
    if words.is_copied:
        return replace(source, dtype=words.dot.word, offset=words.offset, starts=(), spare=0)
    starts = tuple(replace(start, stride=start.stride // group) for start in source.starts)
    return replace(source, dtype=words.dot.word, offset=source.offset // group, starts=starts)
