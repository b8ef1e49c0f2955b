"""Masked runs touch the lanes that are on and no others: all lengths of all types, side by side.

Vectors up to four times the machine's are taken apart into their even and odd lanes, as complex
numbers are: what LLVM makes of a masked load depends on what is done with it.
"""

import ctypes

import numpy as np
import pytest

from hlo.backend.ir.records import Instruction
from hlo.backend.ir.values import lane_order
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.lanes import masked
from tests.support.lanes_jit import compile_texts

RUNS = 3  # beside each other in one block
TYPES = {"i8": np.uint8, "i16": np.uint16, "i32": np.uint32, "i64": np.uint64,
         "float": np.float32, "double": np.float64}  # fmt: skip
P, Q = Value("%p", "ptr"), Value("%q", "ptr")


def masks(lanes: int) -> list[np.ndarray]:
    """Runs of all lengths, and some that have holes."""
    holes = np.random.default_rng(lanes).random((8, lanes)) < 0.4
    return [np.arange(lanes) < live for live in range(lanes + 1)] + list(holes)


def halves(w: Writer, value: Value) -> list[Value]:
    lanes = value.lanes // 2
    return [w.shuffle(value, None, range(first, 2 * lanes, 2)) for first in (0, 1)]


def function(name: str, scalar: str, mask: np.ndarray, *, is_store: bool) -> tuple[str, Writer]:
    w, lanes = Writer(), len(mask)
    type = vector_of(scalar, lanes)
    if (mask[::2] == mask[1::2]).all():  # of pairs, as complex numbers have it
        on = masked.doubled(w, masked.constant_mask([bool(bit) for bit in mask[::2]]))
    else:
        on = masked.constant_mask([bool(bit) for bit in mask])
    for run in range(RUNS):
        source = w.address(P, w.int(run * lanes), scalar)
        target = w.address(Q, w.int(run * lanes), scalar)
        if is_store:
            masked.store(w, w.load(source, type), target, 1, on)
            continue
        even, odd = halves(w, masked.load(w, type, source, 1, on))
        w.store(even, target)
        w.store(odd, w.address(target, w.int(lanes // 2), scalar))
    body = w.text()
    return f"define void @{name}(ptr %p, ptr %q) {{\nentry:\n{body}\n  ret void\n}}\n", w


@pytest.mark.parametrize("is_store", [False, True])
@pytest.mark.parametrize("scalar", TYPES)
def test_constant_masks(scalar: str, *, is_store: bool) -> None:
    dtype = np.dtype(TYPES[scalar])
    cases = [mask for lanes in (4, 8, 16, 32) for mask in masks(lanes)]
    texts, declared = [], {}
    for number, mask in enumerate(cases):
        text, w = function(f"f{number}", scalar, mask, is_store=is_store)
        texts.append(text)
        declared.update(w.declarations)
    names = [f"f{number}" for number in range(len(cases))]
    addresses = compile_texts("\n".join([*declared.values(), *texts]), names)
    for mask, address in zip(cases, addresses, strict=True):
        x = np.arange(1, RUNS * len(mask) + 1).astype(dtype).reshape(RUNS, -1)
        y = np.full_like(x, 77)
        call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)(address)
        call(x.ctypes.data, y.ctypes.data)
        kept = np.where(mask, x, 77 if is_store else 0)
        expected = kept if is_store else np.concatenate([kept[:, ::2], kept[:, 1::2]], axis=1)
        assert np.array_equal(y, expected), mask.astype(int)


def test_short_vectors_are_widened_by_doubling() -> None:
    w = Writer()
    masked.load(w, vector_of("float", 16), P, 1, masked.first_of(4, 16))
    shuffles = [r for r in w.records if isinstance(r, Instruction) and r.opcode == "shufflevector"]
    assert [r.operands[2] for r in shuffles] == [lane_order(tuple(range(n))) for n in (8, 16)]
