"""Runs of elements of which a mask lets some through, where no instruction loads by such a mask.

    pointer, mask --load--> the elements that the mask lets through, zeros elsewhere

LLVM writes a branch for each lane of such a load, all of them in every round. Nearly every run lies
within its array, whatever of it is masked off (the border of an image is beside its next row), and
may be loaded whole; so may one of which nothing is let through, as the row that a rotation has at
its other end, from where the array begins. What else reaches beyond the array is read element by
element, in a loop. For 8 lanes the branches take less (0.6 to 0.8 of it: bf16, AVX2), for 16 1.6
times as long (s16), for 32 4 times (u8).
"""

from __future__ import annotations

from hlo.backend.ir.records import Instruction
from hlo.backend.ir.values import lanes_of
from hlo.backend.ir.writer import Value, scalar_of
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import known_or, repeat_while


def load(nest: Nest, type: str, base: Value, last: int, pointer: Value, mask: Value) -> Value:
    """The run at the pointer. last: how far from base, in bytes, a whole run may begin."""
    w = nest.w
    offset = w.binary("sub", w.cast("ptrtoint", pointer, "i64"), w.cast("ptrtoint", base, "i64"))
    is_within = w.compare("icmp ule", offset, w.int(last))
    whole = w.load(w.select(is_within, pointer, base), type, 1)
    known = w.select(mask, whole, w.zero(type))
    lanes = lanes_of(type)
    let = w.cast("bitcast", mask, f"i{lanes}")
    is_whole = w.binary("or", is_within, w.compare("icmp eq", let, w.int(0, let.type)))
    bits = w.cast("zext", let, "i64")
    return known_or(nest, is_whole, known, lambda: _by_elements(nest, type, base, pointer, bits))


def _by_elements(nest: Nest, type: str, base: Value, pointer: Value, bits: Value) -> Value:
    """One element after the other; for one whose bit says that it is masked off, the array's first
    is read.
    """
    w, lanes, element = nest.w, lanes_of(type), scalar_of(type)

    def test(state: list[Value]) -> Value:
        return w.compare("icmp ult", state[0], w.int(lanes))

    def step(state: list[Value]) -> list[Value]:
        lane, found = state
        is_let = w.cast("trunc", w.binary("lshr", bits, lane), "i1")
        x = w.load(w.select(is_let, w.address(pointer, lane, element), base), element, 1)
        x = w.select(is_let, x, w.zero(element))
        with_it = w.pure(Instruction, type, "insertelement", found, x, lane)
        return [w.binary("add", lane, w.int(1)), with_it]

    return repeat_while(nest, [w.int(0), w.zero(type)], test, step)[1]
