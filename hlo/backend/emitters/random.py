"""rng-bit-generator: each element from its own counter, so that any lane can make any element.

Threefry2x32 (20 rounds) and Philox4x32 (10 rounds) as docs/semantics.md 15 lays them out.
Sources: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011).
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.values import of_bits
from hlo.backend.ir.values import poison
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes import types
from hlo.backend.lanes.types import Lanes
from hlo.backend.loops.expression import Path
from hlo.backend.math.term import Term, outlined
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index
from hlo.ir.instruction import Instruction
from hlo.ops.random import RngBitGeneratorAttributes

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PHILOX = ((0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85))


def rng_bit_generator(
    elemental: Elemental, instruction: Instruction, indices: Sequence[Index], path: Path
) -> list[Lanes]:
    """Element 0: the state after; element 1: the bits."""
    state_shape, bits = instruction.shape.elements
    (operand,) = instruction.operands
    wanted = [(affine.number(k),) for k in range(state_shape.dims[0])]
    state = [types.parts(s)[0] for s in elemental.lanes_at(operand, wanted)]
    is_threefry = RngBitGeneratorAttributes.of(instruction.attributes).algorithm == "rng_three_fry"
    if path == (0,):
        after = _state_after(
            elemental.nest.w, state, bits.dims, bits.dtype.bits, is_threefry=is_threefry
        )
        return [_picked(elemental, after, index[0]) for index in indices]
    make = _threefry_element if is_threefry else _philox_element
    return [make(elemental, instruction, state, index) for index in indices]


def _state_after(
    w: Writer,
    state: list[Value],
    dims: tuple[int, ...],
    bits: int,
    *,
    is_threefry: bool,
) -> list[Value]:
    if is_threefry:
        count = prod(dims) if bits == 64 else prod(_half(dims))
        return [state[0], w.binary("add", state[1], w.int(count, "i64"))]
    words = prod(dims) * (2 if bits == 64 else 1)
    low, high = _counter(w, state, w.int(-(-words // 4), "i64"))
    return [state[0], low, high][: len(state)]


def _picked(elemental: Elemental, values: list[Value], which: Expr) -> Lanes:
    """values[which]"""
    w, nest = elemental.nest.w, elemental.nest
    lanes = which.lanes
    number = nest.lane_values(which, lanes, "i64") if lanes > 1 else nest.scalar(which)
    result = w.splat(values[0], lanes)
    for k, value in enumerate(values[1:], 1):
        is_it = w.compare("icmp eq", number, w.int(k, number.type))
        result = w.select(is_it, w.splat(value, lanes), result)
    return result


def _wide(elemental: Elemental, e: Expr) -> Value:
    """An index as i64 lanes."""
    nest = elemental.nest
    return nest.lane_values(e, e.lanes, "i64") if e.lanes > 1 else nest.scalar(e)


def _low(w: Writer, x: Value) -> Value:
    return w.cast("trunc", x, vector_of("i32", x.lanes))


def _high(w: Writer, x: Value) -> Value:
    return _low(w, w.binary("lshr", x, w.int(32, x.type)))


def _double(w: Writer, low: Value, high: Value) -> Value:
    """high << 32 | low"""
    type = vector_of("i64", low.lanes)
    moved = w.binary("shl", w.cast("zext", high, type), w.int(32, type))
    return w.binary("or", moved, w.cast("zext", low, type))


# -- Threefry --------------------------------------------------------------------------------


def _split_dimension(dims: tuple[int, ...]) -> int:
    """The first even-sized dimension, else the first of the largest size."""
    even = [d for d, n in enumerate(dims) if n % 2 == 0]
    return even[0] if even else dims.index(max(dims))


def _half(dims: tuple[int, ...]) -> tuple[int, ...]:
    if not dims:
        return ()
    d = _split_dimension(dims)
    return (*dims[:d], -(-dims[d] // 2), *dims[d + 1 :])


def _threefry_element(
    elemental: Elemental, instruction: Instruction, state: list[Value], index: Index
) -> Lanes:
    """<= 32 bits: the two words of a counter are neighbours along the split dimension."""
    w = elemental.nest.w
    shape = instruction.shape.elements[1]
    if shape.dtype.bits == 64:
        position = _wide(elemental, affine.linear(index, shape.dims))
        a, b = _threefry(w, state, position)
        return of_bits(elemental, _double(w, a, b), shape.dtype)
    if not shape.dims:
        a, _ = _threefry(w, state, w.int(0, "i64"))
        return of_bits(elemental, a, shape.dtype)
    d = _split_dimension(shape.dims)
    halved = (*index[:d], index[d] // 2, *index[d + 1 :])
    a, b = _threefry(w, state, _wide(elemental, affine.linear(halved, _half(shape.dims))))
    which = _wide(elemental, index[d] % 2)
    lanes = max(which.lanes, a.lanes)
    which = w.splat(which, lanes)
    is_second = w.compare("icmp ne", which, w.int(0, which.type))
    chosen = w.select(is_second, w.splat(b, lanes), w.splat(a, lanes))
    return of_bits(elemental, chosen, shape.dtype)


def _threefry(w: Writer, state: list[Value], position: Value) -> tuple[Value, Value]:
    """Both words of the counter at a position."""
    lanes = position.lanes
    counter = w.binary("add", position, w.splat(state[1], lanes))
    type = vector_of("i32", lanes)
    first, second = _low(w, state[0]), _high(w, state[0])
    third = w.binary("xor", w.binary("xor", first, second), w.int(0x1BD11BDA, "i32"))
    keys = [w.splat(k, lanes) for k in (first, second, third)]
    x = w.binary("add", _low(w, counter), keys[0])
    y = w.binary("add", _high(w, counter), keys[1])
    for group in range(5):
        for turn in _ROTATIONS[group % 2]:
            x = w.binary("add", x, y)
            amount = w.int(turn, type)
            y = w.binary("xor", w.intrinsic("llvm.fshl", type, y, y, amount), x)
        x = w.binary("add", x, keys[(group + 1) % 3])
        y = w.binary("add", y, w.binary("add", keys[(group + 2) % 3], w.int(group + 1, type)))
    return x, y


# -- Philox ----------------------------------------------------------------------------------


def _counter(w: Writer, state: list[Value], add: Value) -> tuple[Value, Value]:
    """The 128-bit counter plus a small number; of a two-word state the key is the upper half."""
    lanes = add.lanes
    low, high = (w.splat(v, lanes) for v in (state[1], state[2] if len(state) == 3 else state[0]))
    total = w.binary("add", low, add)
    carry = w.cast("zext", w.compare("icmp ult", total, low), total.type)
    return total, w.binary("add", high, carry)


def _philox_element(
    elemental: Elemental, instruction: Instruction, state: list[Value], index: Index
) -> Lanes:
    """Word i of the stream is word i % 4 of block i / 4; 64 bits take two neighbours."""
    w = elemental.nest.w
    shape = instruction.shape.elements[1]
    position = affine.linear(index, shape.dims)
    if shape.dtype.bits == 64:
        words = _philox(elemental, state, _wide(elemental, position // 2))
        pairs = [_double(w, words[0], words[1]), _double(w, words[2], words[3])]
        return of_bits(elemental, _chosen(elemental, pairs, position % 2), shape.dtype)
    words = _philox(elemental, state, _wide(elemental, position // 4))
    return of_bits(elemental, _chosen(elemental, words, position % 4), shape.dtype)


def _chosen(elemental: Elemental, words: list[Value], which: Expr) -> Value:
    lanes = max(which.lanes, words[0].lanes)
    picked = _picked(elemental, [elemental.nest.w.splat(v, lanes) for v in words], which)
    return types.parts(picked)[0]


def _philox(elemental: Elemental, state: list[Value], block: Value) -> list[Value]:
    """The four words of a block; the rounds are a function, which vectors of blocks share."""
    w, lanes = elemental.nest.w, block.lanes
    low, high = _counter(w, state, block)
    counters = [_low(w, low), _high(w, low), _low(w, high), _high(w, high)]
    keys = [w.splat(k, lanes) for k in (_low(w, state[0]), _high(w, state[0]))]
    operands = [Term(w, elemental.nest.target, value) for value in (*counters, *keys)]
    type = counters[0].type
    words = f"{{{type}, {type}, {type}, {type}}}"
    made = outlined("philox", operands, _rounds, words).value
    return [w.extract_value(made, k, type) for k in range(4)]


def _rounds(*operands: Term) -> Term:
    """Ten rounds of four counters and two keys, which change from round to round.

    Words stay in lanes of 64 bits, of which the low half counts: that half is all that a product
    reads, and what one hands on.
    """
    w, type = operands[0].w, operands[0].type
    wide = vector_of("i64", operands[0].lanes)
    *c, key0, key1 = (w.cast("zext", o.value, wide) for o in operands)
    keys = [key0, key1]
    (m0, m1), raises = _PHILOX
    for _ in range(10):
        p, q = _product(w, c[0], m0), _product(w, c[2], m1)
        bits = w.int(32, wide)
        c = [
            w.binary("xor", w.binary("xor", w.binary("lshr", q, bits), c[1]), keys[0]),
            q,
            w.binary("xor", w.binary("xor", w.binary("lshr", p, bits), c[3]), keys[1]),
            p,
        ]
        keys = [w.binary("add", k, w.int(r, wide)) for k, r in zip(keys, raises, strict=True)]
    words = poison(f"{{{type}, {type}, {type}, {type}}}")
    for k, value in enumerate(c):
        words = w.insert_value(words, _low(w, value), k)
    return operands[0].of(words)


def _product(w: Writer, x: Value, factor: int) -> Value:
    """The 64-bit product of the low half with a constant."""
    half = w.cast("zext", _low(w, x), x.type)
    return w.binary("mul", half, w.int(factor, x.type))
