"""Copies of factors as words, in the order in which their elements lie, and their loops.

A unit is a row of what lies together: words along depth, or the free indices of one word.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from hlo.backend.ir.arithmetic import add, advanced, split_index, strided, times
from hlo.backend.ir.control import ranged
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, Work
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.packing.work import COPIED, JOINED
from hlo.backend.kernels.contraction.problem.elements import held
from hlo.backend.kernels.contraction.problem.offsets import address_0
from hlo.backend.kernels.contraction.problem.ring import element_address
from hlo.backend.kernels.contraction.words.words import Words
from hlo.backend.lanes import masked
from hlo.backend.lanes.types import storage_scalar
from hlo.backend.loops.one_nest import around, schedule_of
from hlo.backend.loops.schedule import Axis, Fill, Loop, LoopSchedule, Role, Tail, axis_name

VECTOR_BYTES = 64  # Of words at a time: one vector, or several shorter ones.


def words_kernel(words: Words, target: Target) -> Kernel:
    """buffers: the source, its words, starts."""
    w = Writer()
    copy = _Copy(w, words, target)
    ranged(w, BEGIN, END, copy.unit)
    elements = prod(size for size, _ in words.axes)
    moved = elements * words.source.dtype.item_bytes + words.size_bytes
    work = Work(_instructions(words), moved=moved, handed=words.size_bytes, is_stream=True)
    return Kernel(w.kernel_function(), copy.units, *w.beside, bytes_moved=moved, work=work)


def _instructions(words: Words) -> float:
    """On vectors of words, each joined of parts that lie apart, or copied as it lies."""
    vectors = prod(words.sizes) / _lanes(words)
    return vectors * (COPIED if words.is_along_depth else JOINED * words.dot.group)


def words_schedule(words: Words, side: str) -> LoopSchedule:
    """The loops of that kernel."""
    sizes, last = words.sizes, words.sizes[-1]
    names = [axis_name(n, "i") for n in range(len(sizes))]
    parallel = [
        Axis(name, size, Role.PARALLEL) for name, size in zip(names, sizes[:-1], strict=False)
    ]
    each = _lanes(words)
    tail, tail_step = (Tail.MASKED, each) if last % each else (Tail.NONE, 0)
    lanes = Axis(names[-1], last, Role.VECTOR, each, each, tail, tail_step)
    source = f"{words.source.dtype.name} of p{words.source.buffer}"
    group = {2: "pairs", 4: "quads", 8: "octets"}[words.dot.group]
    fill = Fill(side, f"{group} of {source} along {names[words.pairs]}")
    remark = f"words: {words.dot.group} {words.element.name} each, in the order of memory"
    if words.is_moved:
        remark += ", moved by half their range"
    return schedule_of(parallel, around(parallel, (Loop(lanes, (fill,)),)), (remark,))


def _lanes(words: Words) -> int:
    return VECTOR_BYTES // words.dot.word.item_bytes


class _Copy:
    """The kernel being written."""

    def __init__(self, w: Writer, words: Words, target: Target) -> None:
        self.w, self.words, self.target = w, words, target
        self.dtype, self.scalar = words.source.dtype, storage_scalar(words.source.dtype)
        source, self.copy = (w.buffer_address(n) for n in range(2))
        self.source = address_0(w, source, words.source, 2)
        self.sizes = words.sizes
        self.lanes, self.word = _lanes(words), f"i{words.dot.word_bits}"
        self.units = prod(self.sizes[:-1])

    def unit(self, unit: Value) -> None:
        """One row of words."""
        w, words, row = self.w, self.words, self.sizes[-1]
        to = advanced(w, self.copy, times(w, unit, row), self.word)
        if words.is_along_depth:
            at = self._moved(self.source, strided(w, unit, words.axes[:-1]))
            self._rounds(lambda n, mask: self._put(to, n, self._along(at, n, mask), mask))
            return
        group, (elements, step) = words.dot.group, words.axes[words.pairs]
        parts = split_index(w, unit, (1 << 40, *self.sizes[1:-1])) if self.sizes[1:-1] else [unit]
        offset, first = w.int(0), w.int(0)
        for n, (part, (_, stride)) in enumerate(zip(parts, words.axes, strict=False)):
            if n == words.pairs:
                first = times(w, part, group)
                part = first
            offset = add(w, offset, times(w, part, stride))
        at = self._moved(self.source, offset)
        is_whole = elements % group == 0
        rows: list[tuple[Value, Value | None]] = [(at, None)]
        for n in range(1, group):
            row_at, there = self._moved(at, w.int(n * step)), None
            if not is_whole:  # beyond the end the first row is read, and left out
                there = w.compare("icmp ult", add(w, first, w.int(n)), w.int(elements))
                row_at = w.select(there, row_at, at)
            rows.append((row_at, there))

        def words_of_rows(index: Value, mask: Value | None) -> None:
            total = w.zero(vector_of(self.word, self.lanes))
            for n, (row_at, there) in enumerate(rows):
                part = self._low_bits(self._loaded(row_at, index, self.lanes, mask))
                part = w.binary("shl", part, w.int(n * words.element.bits, part.type))
                if there is not None:
                    part = w.select(w.splat(there, self.lanes), part, w.zero(part.type))
                total = w.binary("or", total, part)
            self._put(to, index, total, mask)

        self._rounds(words_of_rows)

    def _rounds(self, each: Callable[[Value, Value | None], None]) -> None:
        """Vectors of words of a row: whole ones, then what is left."""
        w = self.w
        whole, rest = divmod(self.sizes[-1], self.lanes)

        if whole:
            ranged(w, w.int(0), w.int(whole), lambda n: each(times(w, n, self.lanes), None))
        if rest:
            each(w.int(whole * self.lanes), masked.first_of(rest, self.lanes))

    def _moved(self, base: Value, elements: Value) -> Value:
        return element_address(self.w, base, elements, self.dtype)

    def _loaded(self, at: Value, index: Value, lanes: int, mask: Value | None) -> Value:
        type = vector_of(self.scalar, lanes)
        at = self._moved(at, index)
        return masked.load(self.w, type, at, self.dtype.item_bytes, mask)

    def _low_bits(self, raw: Value) -> Value:
        """Elements as the words hold them, in the low bits of words of their own."""
        w = self.w
        return w.cast("zext", self._elements(raw), vector_of(self.word, raw.lanes))

    def _elements(self, raw: Value) -> Value:
        """Elements as the words hold them."""
        w, element = self.w, self.words.element
        value = held(w, self.target, raw, self.dtype, element)
        if self.words.is_moved:
            value = w.binary("xor", value, w.int(-1 << element.bits - 1, value.type))
        return value

    def _along(self, at: Value, first: Value, mask: Value | None) -> Value:
        """Words whose elements follow each other, from a word of the row on."""
        w, group = self.w, self.words.dot.group
        elements, _ = self.words.axes[-1]
        lanes, index = self.lanes * group, times(w, first, group)
        if mask is not None:
            start = first.integer
            assert start is not None, "what is left begins at a known word"
            mask = masked.first_of(elements - start * group, lanes)
        elif elements % group and self.sizes[-1] % self.lanes == 0:
            mask = masked.below(w, index, elements, lanes)
        words = self._elements(self._loaded(at, index, lanes, mask))
        return w.cast("bitcast", words, vector_of(self.word, self.lanes))

    def _put(self, to: Value, index: Value, words: Value, mask: Value | None) -> None:
        at, size = advanced(self.w, to, index, self.word), self.words.dot.word.item_bytes
        masked.store(self.w, words, at, size, mask)
