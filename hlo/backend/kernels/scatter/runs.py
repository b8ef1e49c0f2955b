"""Runs: positions of a scatter that name one index, one after the other, where indices are sorted.

    indices --unsorted_flag_kernel--> a byte: 0 where each is at least the one before it
    units, the byte --share_of--> their positions, from the begin of a run to that of another

Windows at different indices meet nowhere, and sorted indices have equal ones side by side. So units
that begin and end where an index differs from the one before it combine what no other unit does, in
the order of positions: any split gives the bits that one thread would give. Whether indices are
sorted is looked at, whatever a program says of them; with others units are parts of long rows, or
all is the first unit's.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from hlo.backend.ir.arithmetic import add, times
from hlo.backend.ir.control import ranged, when
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.scatter.form import ScatterForm
from hlo.backend.lanes import types
from hlo.backend.lanes.nest import Nest
from hlo.backend.lanes.open_loops import repeat_while
from hlo.ir.dtype import DType

_CHECKED = 1 << 12  # Pairs of neighbours in a unit, which is left out once some pair is not sorted.
# Positions of a run, on average, that are worth to keep its float in a register: shorter ones end
# where no processor foresees it. Zen 5, sums of f32: runs of 8 take 2.2 times as long so, of 32
# 0.8, of 128 0.23. Integers take as long either way.
_LONG = 32


def unsorted_flag_kernel(count: int, dtype: DType, target: Target) -> Kernel:
    """buffers: so many indices, the byte, which becomes 1 where one is less than the one before."""
    w = Writer()
    indices, flag = w.buffer_address(0), w.buffer_address(1)
    storage, pairs = types.storage_scalar(dtype), count - 1
    lanes = max(1, min(target.vector_bytes // dtype.item_bytes, pairs))
    vector, less = vector_of(storage, lanes), f"icmp {'s' if dtype.is_signed else 'u'}lt"
    rounds = -(-_CHECKED // lanes)

    def unsorted(first: Value) -> None:
        place = w.address(indices, first, storage)
        before = w.load(place, vector, 1)
        after = w.load(w.address(place, w.int(1), storage), vector, 1)
        found = w.compare(less, after, before)
        when(w, w.any_lane(found), lambda: w.store(w.int(1, "i8"), flag, 1))

    def unit(u: Value) -> None:
        first = times(w, u, rounds)
        last = w.intrinsic(
            "llvm.umin", "i64", add(w, first, w.int(rounds)), w.int(-(-pairs // lanes))
        )
        none = w.compare("icmp eq", w.load(flag, "i8", 1), w.int(0, "i8"))
        when(w, none, lambda: ranged(w, first, last, vectors))

    def vectors(number: Value) -> None:
        """The last one ends with the last pair."""
        at = times(w, number, lanes)
        unsorted(w.intrinsic("llvm.umin", "i64", at, w.int(pairs - lanes)))

    ranged(w, BEGIN, END, unit)
    units = -(-pairs // (rounds * lanes))
    return Kernel(w.kernel_function(), units, *w.beside, bytes_moved=count * dtype.item_bytes)


class Share(Struct, frozen=True):
    """The positions of units BEGIN to END: the first one, and the one behind the last. is_sorted:
    whether indices are; is_long: and their runs are long.
    """

    begin: Value
    end: Value
    is_sorted: Value
    is_long: Value


def share_of(
    nest: Nest, form: ScatterForm, flag: Value, index_at: Callable[[Value], Value]
) -> Share:
    """flag: of unsorted_flag_kernel; index_at: the index of a position."""
    w, count = nest.w, form.positions[0]
    size = -(-count // form.units)
    is_sorted = w.compare("icmp eq", w.load(flag, "i8", 1), w.int(0, "i8"))
    low, high = (
        w.intrinsic("llvm.umin", "i64", times(w, bound, size), w.int(count))
        for bound in (BEGIN, END)
    )

    def run_begin(first: Value, most: Value) -> Value:
        """The first position from one on that begins a run, or `most`."""

        def continues(state: list[Value]) -> Value:
            (i,) = state
            is_inside = w.compare("icmp slt", i, most)
            own = w.intrinsic("llvm.smin", "i64", i, w.int(count - 1))
            before = w.intrinsic("llvm.smax", "i64", w.binary("sub", own, w.int(1)), w.int(0))
            is_same = w.compare("icmp eq", index_at(own), index_at(before))
            return w.binary("and", is_inside, is_same)

        (found,) = repeat_while(
            nest, [first], continues, lambda state: [add(w, state[0], w.int(1))]
        )
        return found

    is_first = w.compare("icmp eq", low, w.int(0))
    is_searched = w.binary("and", is_sorted, w.binary("xor", is_first, w.int(1, "i1")))
    begin = run_begin(low, w.select(is_searched, high, low))
    some = w.binary("and", is_sorted, w.compare("icmp slt", begin, high))
    end = run_begin(high, w.select(some, w.int(count), high))
    unsorted_end = w.int(count)  # of all units, which have parts of the window
    if not form.has_parts:
        unsorted_end = w.select(is_first, unsorted_end, w.int(0))
    begin = w.select(is_sorted, begin, w.int(0))
    end = w.select(is_sorted, w.select(some, end, begin), unsorted_end)
    last = w.intrinsic("llvm.smax", "i64", w.binary("sub", end, w.int(1)), w.int(0))
    first = w.intrinsic("llvm.smin", "i64", begin, w.int(count - 1))
    named = add(w, w.binary("sub", index_at(last), index_at(first)), w.int(1))
    length = w.binary("udiv", w.binary("sub", end, begin), w.int(_LONG))
    is_long = w.binary("and", is_sorted, w.compare("icmp ule", named, length))
    return Share(begin, end, is_sorted, is_long)
