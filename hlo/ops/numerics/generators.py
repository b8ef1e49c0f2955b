"""Counter-based random bits: Threefry-2x32 and Philox-4x32, as XLA lays them out.

Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the order of the
words in an array is XLA's (docs/semantics.md 15).
"""

from __future__ import annotations

import math

import numpy as np

from hlo.ops.numerics.representation import Array

Ints = tuple[int, ...]
MASK32 = np.uint64(0xFFFFFFFF)
HALF = np.uint64(32)
THREEFRY_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
THREEFRY_PARITY = np.uint32(0x1BD11BDA)
PHILOX_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
PHILOX_WEYL = (0x9E3779B9, 0xBB67AE85)


def threefry(counters: Array, key: int) -> tuple[Array, Array]:
    """The two words of each 64-bit counter, 20 rounds."""
    keys = [np.uint32(key & 0xFFFFFFFF), np.uint32(key >> 32)]
    keys.append(keys[0] ^ keys[1] ^ THREEFRY_PARITY)
    x0 = (counters & MASK32).astype(np.uint32)
    x1 = (counters >> HALF).astype(np.uint32)
    with np.errstate(over="ignore"):
        x0, x1 = x0 + keys[0], x1 + keys[1]
        for group in range(5):
            for rotation in THREEFRY_ROTATIONS[group % 2]:
                x0 = x0 + x1
                x1 = (x1 << np.uint32(rotation)) | (x1 >> np.uint32(32 - rotation))
                x1 = x1 ^ x0
            x0 = x0 + keys[(group + 1) % 3]
            x1 = x1 + keys[(group + 2) % 3] + np.uint32(group + 1)
    return x0, x1


def threefry_bits(key: int, counter: int, dims: Ints, *, wide: bool) -> tuple[Array, int]:
    """uint64 words (wide) or uint32 words of shape dims, and the counter after them."""
    if wide:
        count = math.prod(dims)
        x0, x1 = threefry(_counters(counter, count), key)
        words = x0.astype(np.uint64) | (x1.astype(np.uint64) << HALF)
        return words.reshape(dims), (counter + count) % 2**64
    if not dims:
        words, after = threefry_bits(key, counter, (1,), wide=False)
        return words.reshape(()), after
    split = _split_dimension(dims)
    half = tuple((n + 1) // 2 if d == split else n for d, n in enumerate(dims))
    count = math.prod(half)
    x0, x1 = threefry(_counters(counter, count), key)
    pairs = np.stack((x0.reshape(half), x1.reshape(half)), axis=split + 1)
    merged = tuple(2 * n if d == split else n for d, n in enumerate(half))
    cut = tuple(slice(0, n) for n in dims)
    return pairs.reshape(merged)[cut], (counter + count) % 2**64


def _split_dimension(dims: Ints) -> int:
    """The first even dimension, or else the first of the largest."""
    even = (d for d, n in enumerate(dims) if n % 2 == 0)
    return next(even, dims.index(max(dims)))


def _counters(first: int, count: int) -> Array:
    with np.errstate(over="ignore"):
        return np.arange(count, dtype=np.uint64) + np.uint64(first % 2**64)


def philox(low: Array, high: Array, key: int) -> tuple[Array, Array, Array, Array]:
    """The four words of each 128-bit counter high << 64 | low, 10 rounds."""
    c0, c1, c2, c3 = low & MASK32, low >> HALF, high & MASK32, high >> HALF
    k0, k1 = key & 0xFFFFFFFF, key >> 32
    for _ in range(10):
        p, q = c0 * PHILOX_MULTIPLIERS[0], c2 * PHILOX_MULTIPLIERS[1]
        c0, c2 = (q >> HALF) ^ c1 ^ np.uint64(k0), (p >> HALF) ^ c3 ^ np.uint64(k1)
        c1, c3 = q & MASK32, p & MASK32
        k0, k1 = (k0 + PHILOX_WEYL[0]) & 0xFFFFFFFF, (k1 + PHILOX_WEYL[1]) & 0xFFFFFFFF
    return c0, c1, c2, c3


def philox_words(key: int, counter: int, count: int) -> tuple[Array, int]:
    """`count` uint32 words from a 128-bit counter on, and the counter after whole blocks."""
    blocks = -(-count // 4)
    low = _counters(counter, blocks)
    wrapped = low < np.uint64(counter % 2**64)  # a carry into the upper half
    high = _counters(counter >> 64, 1) + wrapped.astype(np.uint64)
    words = np.stack(philox(low, high, key), axis=-1).astype(np.uint32)
    return words.reshape(-1)[:count], (counter + blocks) % 2**128


def philox_bits(key: int, counter: int, dims: Ints, *, wide: bool) -> tuple[Array, int]:
    """uint64 words (wide) or uint32 words of shape dims, and the counter after them."""
    count = math.prod(dims)
    words, after = philox_words(key, counter, 2 * count if wide else count)
    if wide:
        pairs = words.reshape(count, 2).astype(np.uint64)
        words = pairs[:, 0] | (pairs[:, 1] << HALF)
    return words.reshape(dims), after
