"""A direct convolution of few results whose lanes are neighbours along a row of long windows.

So are the gradients of kernels where rows are innermost: a result is the sum over all lanes.

    for unit (group, block of rows of results):                       in parallel
        for image summed: for tap of the outer dimensions that meets the base:
            for vector of a row of taps: sums += ..          in registers, for all of the block
        totals += sums; then across lanes, to the results

A vector of the kernel serves all results of a block. Taps that only some rows of results meet are
added for each of them apart; at the ends of a row, lanes whose tap misses the base for one of the
results keep what they have.
"""

from __future__ import annotations

from math import prod

from hlo.backend.ir.arithmetic import add, advanced, split_index, times
from hlo.backend.ir.control import each, loop, ranged, repeated
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, Work
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.direct.form import Direct, Given
from hlo.backend.kernels.contraction.microkernels.lane_sums import across
from hlo.backend.kernels.contraction.problem.result import Result
from hlo.backend.kernels.contraction.problem.ring import loaded
from hlo.backend.lanes.masked import constant_mask
from hlo.machine import ALIGNMENT

FREE = 4  # Registers that hold no sums.
Places = tuple[Value, Value]  # In base and kernel.


class DirectSums(Direct):
    """The kernel with lanes along a row of taps. buffers: base, kernel, result, what the epilogue
    reads."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        form, ring = given.form, given.ring
        self.taps = form.row.window.size
        self.lanes = min(ring.lanes, 1 << (self.taps - 1).bit_length())
        self.vectors = -(-self.taps // self.lanes)
        self.result = Result(self.w, ring, given.dtypes[2], 2, given.epilogue)
        self.row_results = form.row.outputs
        rows = self.blocked.outputs if self.blocked else 1
        most = max(1, (ring.registers - FREE) // self.row_results)
        self.blocks = -(-rows // most)
        self.rows = -(-rows // self.blocks)
        self.totals = self.w.alloca(f"[{self.rows * self.row_results} x {self.type}]", ALIGNMENT)

    @property
    def stores_once(self) -> bool:
        return self.rows * self.blocks == (self.blocked.outputs if self.blocked else 1)

    @property
    def chain(self) -> int:
        """Additions of a lane's terms in an image, of images, of lanes."""
        taps = prod(a.window.size for a in self.form.rows) * self.vectors
        return taps + self.form.summed.size + self.lanes.bit_length()

    @property
    def lines(self) -> tuple[str, ...]:
        """How it works, for people."""
        results = f"{self.rows} x {self.row_results} results"
        return (f"direct: {results} in {self.lanes} lanes of taps each in registers, then across",)

    def kernel_of(self) -> Kernel:
        w, form = self.w, self.form
        sizes = (form.groups.size, *(a.outputs for a in self.outer), self.blocks)
        ranged(w, BEGIN, END, lambda unit: self._unit(split_index(w, unit, sizes)))
        terms = form.summed.size * prod(a.window.size for a in form.along)
        results = form.groups.size * prod(a.outputs for a in form.along)
        vectors = form.summed.size * prod(a.window.size for a in form.rows) * self.vectors
        base = form.groups.size * form.summed.size * prod(a.size for a in form.along)
        moved = base * self.dtypes[0].item_bytes
        moved += form.groups.size * terms * self.dtypes[1].item_bytes
        return Kernel(
            w.kernel_function(),
            prod(sizes),
            *w.beside,
            flops=2 * results * terms,
            work=Work(
                instructions=2.0 * results * vectors,  # each with a load across lines
                sums=results,
                moved=moved * self.blocks,
                reach=moved,
                is_stream=True,
            ),
        )

    def _unit(self, numbers: list[Value]) -> None:
        w, form = self.w, self.form
        group, *outer, block = numbers
        out = times(w, group, form.groups.out)
        for along, output in zip(self.outer, outer, strict=True):
            out = add(w, out, times(w, output, along.out))
        first = w.int(0)
        if self.blocked is not None:
            last = w.int(self.blocked.outputs - self.rows)
            first = w.intrinsic("llvm.umin", "i64", times(w, block, self.rows), last)
            out = add(w, out, times(w, first, self.blocked.out))
        base = times(w, group, form.groups.lhs)
        kernel = add(w, times(w, group, form.groups.rhs), w.int(self.first_taps()))
        count = self.rows * self.row_results
        for k in range(count):
            w.store(self.zero, self._total(k), self.ring.scalar_bytes)

        def image(n: Value) -> None:
            there = (
                self.place(0, add(w, base, times(w, n, form.summed.lhs))),
                self.place(1, add(w, kernel, times(w, n, form.summed.rhs))),
            )
            sums = self.under_taps(
                self.outer,
                outer,
                there,
                [self.zero] * count,
                lambda at, s: self._rows(at, s, first),
            )
            for k, one in enumerate(sums):
                self._add_to(w.int(k), one)

        each(w, w.int(0), w.int(form.summed.size), image)
        for k in range(count):
            r, x = divmod(k, self.row_results)
            total = w.load(self._total(k), self.type, self.ring.scalar_bytes)
            index = x * form.row.out + (r * self.blocked.out if self.blocked else 0)
            one = across(w, self.ring, [total]) if self.lanes > 1 else total
            self.result.store((one,), add(w, out, w.int(index)), 1, None)

    def _rows(self, places: Places, sums: list[Value], first: Value) -> list[Value]:
        """All rows of taps, for a block of rows of results from `first` on."""
        w, along = self.w, self.blocked
        if along is None:
            return self._row(sums, [places[0]], places[1])
        ranges = []
        for r in range(self.rows):
            low, count = self.range_of(along, add(w, first, w.int(r)))
            ranges.append((low, add(w, low, count)))
        low, end = ranges[0]
        for other in ranges[1:]:
            low = w.intrinsic("llvm.smax", "i64", low, other[0])
            end = w.intrinsic("llvm.smin", "i64", end, other[1])
        end = w.intrinsic("llvm.smax", "i64", end, low)

        def every(n: Value, sums: list[Value]) -> list[Value]:
            rows = [w.int(r) for r in range(self.rows)]
            return self._tap(places, sums, first, (add(w, low, n), rows))

        sums = repeated(w, w.binary("sub", end, low), sums, every)
        if self.rows > 1:
            each(w, w.int(0), w.int(self.rows), lambda r: self._apart(
                places, first, r, (low, end)
            ))  # fmt: skip
        return sums

    def _apart(self, places: Places, first: Value, r: Value, met: tuple[Value, Value]) -> None:
        """The taps that one row of results meets and not all rows do: before and behind those."""
        w, along = self.w, self.blocked
        assert along is not None, "there are rows"
        low, count = self.range_of(along, add(w, first, r))
        end = add(w, low, count)
        before = w.intrinsic("llvm.smin", "i64", end, met[0])
        behind = w.intrinsic("llvm.smax", "i64", low, met[1])

        def side(s: Value) -> None:
            is_first = w.compare("icmp eq", s, w.int(0))
            begin, stop = w.select(is_first, low, behind), w.select(is_first, before, end)

            def one(n: Value, sums: list[Value]) -> list[Value]:
                return self._tap(places, sums, first, (add(w, begin, n), [r]))

            none = [self.zero] * self.row_results
            sums = repeated(w, w.binary("sub", stop, begin), none, one)
            for x, total in enumerate(sums):
                self._add_to(add(w, times(w, r, self.row_results), w.int(x)), total)

        each(w, w.int(0), w.int(2), side)

    def _total(self, number: Value | int) -> Value:
        return advanced(self.w, self.totals, number, self.type)

    def _add_to(self, number: Value, one: Value) -> None:
        w, place = self.w, self._total(number)
        before = w.load(place, self.type, self.ring.scalar_bytes)
        w.store(self.added(before, one), place, self.ring.scalar_bytes)

    def _tap(
        self, places: Places, sums: list[Value], first: Value, which: tuple[Value, list[Value]]
    ) -> list[Value]:
        """A row of taps for some rows of results. which: its number, those of the block's rows."""
        w, along = self.w, self.blocked
        assert along is not None, "there are rows"
        tap, rows = which
        bases = []
        for r in rows:
            output = add(w, first, r)
            element = add(w, times(w, output, along.window.stride), w.int(-along.window.pad_low))
            element = add(w, element, times(w, tap, along.window.window_dilation))
            bases.append(self.moved(places[0], times(w, element, along.lhs), 0))
        return self._row(sums, bases, self.moved(places[1], times(w, tap, along.tap), 1))

    def _row(self, sums: list[Value], bases: list[Value], kernel: Value) -> list[Value]:
        """The vectors of a row of taps: those at its ends written out, a loop between them."""
        w = self.w
        plain = self._plain()
        first, end = (plain.start, plain.stop) if len(plain) > 1 else (0, 0)
        for v in (*range(min(first + 1, end)), *range(end, self.vectors)):
            if first <= v < end:

                def some(n: Value, sums: list[Value]) -> list[Value]:
                    return self._vector(sums, bases, kernel, (add(w, n, w.int(first)), first))

                sums = loop(w, w.int(end - first), sums, some)
            else:
                sums = self._vector(sums, bases, kernel, (w.int(v), v))
        return sums

    def _vector(
        self, sums: list[Value], bases: list[Value], kernel: Value, at: tuple[Value, int]
    ) -> list[Value]:
        """A vector of taps. at: its number, and that of one that meets the base as it does."""
        w, window, sums = self.w, self.form.row.window, list(sums)
        number, alike = at
        taps = times(w, number, self.lanes)
        exist = [alike * self.lanes + k < self.taps for k in range(self.lanes)]
        mask = None if all(exist) else constant_mask(exist)
        there = self.moved(kernel, times(w, taps, self.form.row.tap), 1)
        factor = loaded(w, self.ring, self.dtypes[1], there, self.lanes, mask)[0]
        for r, base in enumerate(bases):
            moved = self.moved(base, times(w, taps, window.window_dilation), 0)
            for x in range(self.row_results):
                met = self._met(alike, x)
                if not any(met):
                    continue
                element = self._elements(moved, x * window.stride - window.pad_low, met)
                k = r * self.row_results + x
                total = self.multiplied(sums[k], element, factor)
                misses = any(b and not a for a, b in zip(met, exist, strict=True))
                sums[k] = w.select(constant_mask(met), total, sums[k]) if misses else total
        return sums

    def _met(self, vector: int, output: int) -> list[bool]:
        """Which of a vector's taps there are, and meet an element."""
        taps = range(vector * self.lanes, (vector + 1) * self.lanes)
        row = self.form.row
        return [t < self.taps and row.element(output, t) is not None for t in taps]

    def _plain(self) -> range:
        """The vectors whose taps all exist and meet elements, and so do those between them."""
        row, w, met = self.form.row, self.form.row.window, self.form.row.met
        if met.step > 1:
            return range(0)
        read = row.size + w.pad_low - (row.outputs - 1) * w.stride
        end = min(met.stop, self.taps, read // w.window_dilation) // self.lanes
        return range(-(-met.start // self.lanes), end)

    def _elements(self, place: Value, at: int, met: list[bool]) -> Value:
        """The elements that taps meet, from one on; zero where a lane meets none."""
        w, step = self.w, self.form.row.window.window_dilation
        width = self.lanes * step
        read = [k % step == 0 and met[k // step] for k in range(width)]
        place = self.moved(place, w.int(at), 0)
        mask = None if step == 1 and all(read) else constant_mask(read)
        run = loaded(w, self.ring, self.dtypes[0], place, width, mask)[0]
        return run if step == 1 else w.shuffle(run, None, range(0, width, step))
