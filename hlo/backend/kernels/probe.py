"""Probes: kernels that look at what another has written, and copy what one reads or writes.

    record, kinds, result leaves --probe--> Kernel: counts its runs, and keeps the first that is odd
    record, a run, leaves --copying--> Kernel: in that run, the leaves' bytes to memory of Python's

Records are memory of this process, which their addresses in the code name: such code is for one
executable and kept nowhere. A probe runs on one thread behind the kernels of its instruction.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

from msgspec import Struct

from hlo.backend.ir.control import loop, when
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.values import Value, vector_of
from hlo.backend.ir.writer import Writer
from hlo.ir.dtype import DType
from hlo.ir.shape import Shape

KINDS = ("nan", "inf", "denormal")


class Word(IntEnum):
    """The words of a record; FIRST and WHEN once for each of KINDS, side by side.

    RUNS: how often it ran. SPARSE: not 0 where only runs 0, 1, 3, 7, .. are looked at. FIRST: the
    first odd run, counted from 1; 0: none. WHEN: the clock then, which counts all probes' runs.
    """

    RUNS = 0
    SPARSE = 1
    FIRST = 2
    WHEN = 5


RECORD_WORDS = 8
WORD_BYTES = 8


def is_probed(dtype: DType) -> bool:
    """Whether there is a probe for the type: IEEE's binary formats of 16 to 64 bits, bf16, and
    complex numbers of them.
    """
    form = dtype.component.float_format
    return form is not None and form.has_inf and form.nan == "ieee" and dtype.component.bits >= 16


class _Memory(Struct):
    """Words of 8 bytes at an address of this process."""

    w: Writer
    base: Value

    def place(self, number: int) -> Value:
        return self.w.address(self.base, self.w.int(number), "i64")

    def get(self, number: int) -> Value:
        return self.w.load(self.place(number), "i64", WORD_BYTES)

    def put(self, number: int, value: Value) -> None:
        self.w.store(value, self.place(number), WORD_BYTES)


def _memory(w: Writer, address: int) -> _Memory:
    return _Memory(w, w.cast("inttoptr", w.int(address), "ptr"))


def probe(
    record: int, clock: int, kinds: Sequence[str], leaves: Sequence[Shape], vector_bytes: int
) -> Kernel:
    """A kernel on the addresses of result leaves. record, clock: addresses of words."""
    w = Writer()
    addresses = [w.buffer_address(n) for n in range(len(leaves))]
    ours, time = _memory(w, record), _memory(w, clock)
    run, now = ours.get(Word.RUNS), time.get(0)
    following = w.binary("add", run, w.int(1))
    ours.put(Word.RUNS, following)
    time.put(0, w.binary("add", now, w.int(1)))
    numbers = [KINDS.index(kind) for kind in kinds]
    missing = [w.compare("icmp eq", ours.get(Word.FIRST + number), w.int(0)) for number in numbers]
    is_wanted = missing[0]
    for other in missing[1:]:
        is_wanted = w.binary("or", is_wanted, other)
    is_power = w.compare("icmp eq", w.binary("and", run, following), w.int(0))
    is_dense = w.compare("icmp eq", ours.get(Word.SPARSE), w.int(0))
    is_wanted = w.binary("and", is_wanted, w.binary("or", is_power, is_dense))

    def look() -> None:
        for address, leaf in zip(addresses, leaves, strict=True):
            for number, is_missing, odd in zip(
                numbers, missing, _scanned(w, address, leaf, kinds, vector_bytes), strict=True
            ):
                found = w.binary("and", is_missing, odd)
                when(w, found, lambda n=number: keep(n))  # type: ignore[misc]  # bound now

    def keep(number: int) -> None:
        ours.put(Word.FIRST + number, following)
        ours.put(Word.WHEN + number, now)

    when(w, is_wanted, look)
    size = sum(leaf.size_bytes for leaf in leaves)
    return Kernel(w.kernel_function(), 1, *w.beside, bytes_moved=size)


def _scanned(
    w: Writer, address: Value, leaf: Shape, kinds: Sequence[str], vector_bytes: int
) -> list[Value]:
    """For each kind, whether any element has it: an i1."""
    part = leaf.dtype.component
    count = leaf.size * (2 if leaf.dtype.is_complex else 1)
    type, lanes = f"i{part.bits}", vector_bytes * 8 // part.bits
    odd = [Value("false", "i1") for _ in kinds]
    full, rest = divmod(count, lanes)
    for rounds, width, begin in ((full, lanes, 0), (rest, 1, full * lanes)):
        if not rounds:
            continue
        start = w.address(address, w.int(begin), type)
        vector = vector_of(type, width)

        def one(i: Value, seen: list[Value], start: Value = start, vector: str = vector):  # type: ignore[no-untyped-def]  # a Body of loop
            x = w.load(w.address(start, i, vector), vector, part.bits // 8)
            found = _odd(w, x, part, kinds)
            return [w.binary("or", s, f) for s, f in zip(seen, found, strict=True)]

        zeros = [w.zero(vector_of("i1", width)) for _ in kinds]
        sums = loop(w, w.int(rounds), zeros, one)
        odd = [w.binary("or", a, w.any_lane(b)) for a, b in zip(odd, sums, strict=True)]
    return odd


def _odd(w: Writer, x: Value, part: DType, kinds: Sequence[str]) -> list[Value]:
    """Lanes of i1 for each kind: magnitudes beside the code of infinity and the least normal."""
    form, lanes = part.float_format, x.lanes
    assert form is not None, "only floats are probed"
    scalar = f"i{part.bits}"

    def all_lanes(number: int) -> Value:
        return w.splat(w.int(number, scalar), lanes) if lanes > 1 else w.int(number, scalar)

    infinity = ((1 << form.exponent) - 1) << form.mantissa
    magnitude = w.binary("and", x, all_lanes((1 << (part.bits - 1)) - 1))
    found = []
    for kind in kinds:
        if kind == "nan":
            found.append(w.compare("icmp ugt", magnitude, all_lanes(infinity)))
        elif kind == "inf":
            found.append(w.compare("icmp eq", magnitude, all_lanes(infinity)))
        else:  # zero wraps around to the largest number
            less = w.binary("sub", magnitude, all_lanes(1))
            found.append(w.compare("icmp ult", less, all_lanes((1 << form.mantissa) - 1)))
    return found


def copying(record: int, run: int, sizes: Sequence[int], target: int, *, before: bool) -> Kernel:
    """A kernel that copies its leaves to `target`, one after the other, in run number `run`.

    before: it stands in front of the probe, which has not counted this run yet.
    """
    w = Writer()
    addresses = [w.buffer_address(n) for n in range(len(sizes))]
    expected = run if before else run + 1
    is_now = w.compare("icmp eq", _memory(w, record).get(Word.RUNS), w.int(expected))

    def copy() -> None:
        place = target
        for address, size in zip(addresses, sizes, strict=True):
            to = w.cast("inttoptr", w.int(place), "ptr")
            w.copy_bytes(to, address, w.int(size))
            place += size

    when(w, is_now, copy)
    return Kernel(w.kernel_function(), 1, *w.beside, bytes_moved=0)
