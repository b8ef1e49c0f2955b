"""A direct convolution whose lanes are neighbours along a row of results.

Some rows have their sums in registers, over all of the window.

    for unit (image, group, part of its rows):                       in parallel
        for block of rows, or one of those at the ends:
            for vector of a row:
                for tap of the outer dimensions that meets the base: for tap of the row: sums += ..
                sums to the results

A run of the base is loaded once for all rows of a block and all outputs of a group that meet it.
Blocks are of rows whose windows do not leave the base; rows at the ends are taken alone, their taps
being counted when they begin. Vectors at the ends of a row have code of their own, in which lanes
whose tap misses the base keep what they have. Where the base has holes, lanes are results so far
apart, which meet the same taps, and those of all phases are stored turn by turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import product
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.arithmetic import add, shared, split_index, times
from hlo.backend.ir.control import ranged, repeated, when
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel, Work
from hlo.backend.ir.writer import Value
from hlo.backend.kernels.contraction.direct.form import Direct, Given, Pair, met_of
from hlo.backend.kernels.contraction.problem.result import Result
from hlo.backend.kernels.contraction.problem.ring import loaded
from hlo.backend.lanes.masked import constant_mask
from hlo.ir import dtype as dt
from hlo.machine import ALIGNMENT

FREE = 6  # Registers that hold no sums.
MOST_WRITTEN = 160  # Products of a block, which are written out.
MOST_OF_ALL = 256  # The same where a block is all rows, whose ends need no code of their own then.
FEWEST_UNITS = 64  # Below, an image's rows are parted, or a row that is all.
LEAST_RUN = 4  # Rows of the base that serve the same rows of results are a loop from so many on.
# Products of a block from which that is done: it takes 1.00 of the time of what is written out, of
# 98 products 1.03.
LEAST_LOOPED = 112
STRETCH = 8  # The fewest vectors of a part of a row.
RowOf = Callable[[Value], Value]  # The row at which an item begins, of those of its kind.
Places = tuple[Value, Value]  # In base and kernel.


class Reach(Struct, frozen=True):
    """Where a vector's lanes begin in the base at a tap, counted from the vector's own place; which
    lanes have an element there, and which of the elements that are read exist."""

    at: int
    lanes: tuple[bool, ...]
    read: tuple[bool, ...]


class DirectColumns(Direct):
    """The kernel with lanes along a row. buffers: base, kernel, result, what the epilogue reads."""

    def __init__(self, given: Given) -> None:
        super().__init__(given)
        form, ring = given.form, given.ring
        self.phases = form.row.window.base_dilation
        self.positions = -(-form.row.outputs // self.phases)
        self.lanes = min(ring.lanes, 1 << (self.positions - 1).bit_length())
        self.vectors = -(-self.positions // self.lanes)
        self.result = Result(self.w, ring, given.dtypes[2], 2, given.epilogue)
        self.part_sums()
        self.inside = self._inside()
        self.block, self.blocks = self._blocked()
        self.ends = (self.blocked.outputs if self.blocked else 1) - self.block * self.blocks
        kept = form.outputs * form.inputs * prod(a.window.size for a in form.along[-2:])
        sums = self.block * form.outputs * self.phases
        is_plain = given.dtypes[1] in (dt.F32, dt.F64)
        self.keeps = not is_plain or kept <= ring.registers - sums - FREE
        if given.epilogue is not None:
            self.stage = self.w.alloca(f"[{sums} x {self.type}]", ALIGNMENT)
        items = self.blocks + self.ends if self.blocked else self.vectors // STRETCH
        units = form.images.size * form.groups.size * prod(a.outputs for a in self.outer)
        self.parts = max(1, min(items, FEWEST_UNITS // units))

    def _inside(self) -> tuple[int, int]:
        """The rows of results whose windows do not leave the base."""
        if self.blocked is None:
            return 0, 1
        inside = self.blocked.inside
        return (inside.start, inside.stop) if inside else (0, 0)

    def _blocked(self) -> tuple[int, int]:
        """Rows of a block, and how many blocks there are: of as many rows as fit the registers."""
        form = self.form
        count = self.inside[1] - self.inside[0]
        if self.blocked is None:
            return 1, 1
        w, period = self.blocked.window, self.blocked.window.base_dilation
        sums = form.outputs * self.phases
        products = sums * form.inputs * w.size * form.row.window.size
        room = (self.ring.registers - FREE) // sums
        rows = self.blocked.outputs
        if rows <= room and rows * products <= MOST_OF_ALL:
            self.inside = (0, rows)
            return rows, 1
        most = max(1, min(room, MOST_WRITTEN // products))
        most = max(most // period * period, period)
        if count < most:
            return max(1, count // period * period), int(count >= period)
        blocks = -(-count // most)
        size = max(period, count // blocks // period * period)
        return size, count // size

    @property
    def stores_once(self) -> bool:
        return True

    @property
    def chain(self) -> int:
        """Additions that a term goes through."""
        return self.parted.chain if self.parted else self.terms

    @property
    def terms(self) -> int:
        """Products of a result."""
        return self.form.inputs * prod(a.window.size for a in self.form.along)

    @property
    def lines(self) -> tuple[str, ...]:
        """How it works, for people."""
        sums = f"{self.block} rows by {self.form.outputs} outputs"
        return (
            f"direct: {sums} by {self.lanes} lanes along a row in registers",
            f"blocks: {self.blocks} of rows, {self.ends} rows alone",
        )

    def kernel_of(self) -> Kernel:
        w, form = self.w, self.form
        outer = [a.outputs for a in self.outer]
        sizes = (form.images.size, form.groups.size, *outer, self.parts)
        ranged(w, BEGIN, END, lambda unit: self._unit(split_index(w, unit, sizes)))
        rows = form.images.size * form.groups.size * prod(a.outputs for a in form.rows)
        vectors = rows * form.outputs * self.vectors * self.phases
        base = form.images.size * form.groups.size * form.inputs
        base *= prod(a.size for a in form.along) * self.dtypes[0].item_bytes
        stored = rows * form.outputs * form.row.outputs * self.dtypes[2].item_bytes
        instructions = vectors * (1.0 + self.terms / self.phases)
        return Kernel(
            w.kernel_function(),
            prod(sizes),
            *w.beside,
            flops=2 * rows * form.outputs * form.row.outputs * self.terms,
            work=Work(
                instructions=instructions,
                sums=vectors,
                moved=base + 2 * stored,
                reach=base + stored,
                is_stream=True,
            ),
        )

    # -- rows ------------------------------------------------------------------------------------

    def _unit(self, numbers: list[Value]) -> None:
        w, form = self.w, self.form
        image, group, *outer, part = numbers
        base = add(w, times(w, image, form.images.lhs), times(w, group, form.groups.lhs))
        kernel = add(w, times(w, group, form.groups.rhs), w.int(self.first_taps()))
        out = add(w, times(w, image, form.images.out), times(w, group, form.groups.out))
        for along, output in zip(self.outer, outer, strict=True):
            out = add(w, out, times(w, output, along.out))
        self.outer_outputs = outer
        places = self.place(0, base), self.place(1, kernel)
        if self.blocked is None:
            self._vectors(places, None, out, part)
            return
        first, end = shared(w, part, self.ends + self.blocks, self.parts)
        for begin, stop, row_of, step in self._spans():
            inner = (
                w.intrinsic("llvm.umax", "i64", first, w.int(begin)),
                w.intrinsic("llvm.umin", "i64", end, w.int(stop)),
            )

            def item(
                n: Value, begin: int = begin, row_of: RowOf = row_of, step: int = step
            ) -> None:
                y = row_of(add(w, n, w.int(-begin)))
                self._rows(places, y, step if step > 1 else 0, out)

            ranged(w, *inner, item)

    def _spans(self) -> list[tuple[int, int, RowOf, int]]:
        """What a unit's items are in turn: from which to which, the rows where they begin, how many
        rows each is. Rows alone at both ends have one code, unless it is one row at an end, whose
        taps are known.
        """
        w, low = self.w, self.inside[0] if self.blocks else self.ends
        behind = low + self.blocks * self.block

        def from_(first: int, step: int = 1) -> RowOf:
            return lambda n: add(w, times(w, n, step), w.int(first))

        def alone(n: Value) -> Value:
            is_before = w.compare("icmp ult", n, w.int(low))
            return w.select(is_before, n, add(w, n, w.int(behind - low)))

        ends, items = self.ends, self.ends + self.blocks
        block = from_(low, self.block)
        if min(low, ends - low) > 1:
            return [(0, ends, alone, 1), (ends, items, block, self.block)]
        end = low + self.blocks
        spans = [
            (0, low, from_(0), 1),
            (low, end, block, self.block),
            (end, items, from_(behind), 1),
        ]
        return [span for span in spans if span[0] < span[1]]

    def _rows(self, places: Places, y: Value, count: int, out: Value) -> None:
        """A block of rows from one on; count 0: a row at an end."""
        assert self.blocked is not None, "there are rows"
        at = add(self.w, out, times(self.w, y, self.blocked.out))
        self._vectors(places, (y, count), at)

    # -- vectors ---------------------------------------------------------------------------------

    def _vectors(
        self,
        places: Places,
        rows: tuple[Value, int] | None,
        out: Value,
        part: Value | None = None,
    ) -> None:
        """All vectors of some rows, or of a part of one: those at the ends written out, a loop
        between them."""
        w = self.w
        plain = self._plain()
        first, end = (plain.start, plain.stop) if len(plain) > 1 else (0, 0)
        own = None
        if part is not None and self.parts > 1:
            own = shared(w, part, self.vectors, self.parts)
        inner = w.int(first), w.int(end)
        if own is not None:
            inner = (
                w.intrinsic("llvm.umax", "i64", own[0], inner[0]),
                w.intrinsic("llvm.umin", "i64", own[1], inner[1]),
            )

        def alone(v: int) -> None:
            self._vector(places, rows, out, (w.int(v), v))

        for v in (*range(min(first + 1, end)), *range(end, self.vectors)):
            if v == first < end:
                ranged(w, *inner, lambda n: self._vector(places, rows, out, (n, first)))
                continue
            if own is None:
                alone(v)
                continue
            after = w.compare("icmp ule", own[0], w.int(v))
            is_own = w.binary("and", after, w.compare("icmp ugt", own[1], w.int(v)))
            when(w, is_own, lambda v=v: alone(v))  # type: ignore[misc]  # of this v

    def _vector(
        self, places: Places, rows: tuple[Value, int] | None, out: Value, at: tuple[Value, int]
    ) -> None:
        """A vector of some rows. at: its number, and that of one that meets the base as it does."""
        w, form, row = self.w, self.form, self.form.row
        number, alike = at
        moved = times(w, number, self.lanes * row.window.stride * row.lhs)
        places = self.moved(places[0], moved, 0), places[1]
        count = max(1, rows[1]) if rows else 1
        self.factors: dict[tuple[Value, int], Value] = {}
        totals = [self.zero] * (count * form.outputs * self.phases)

        def under(places: Places, totals: list[Value]) -> list[Value]:
            if rows is None:
                return self._row(totals, places, [(0, 0)], alike)
            return self._block(totals, places, rows, alike)

        totals = self.under_taps(self.outer, self.outer_outputs, places, totals, under)
        start = add(w, out, times(w, number, self.lanes * self.phases))

        def finish(r: Value, sums: list[Value]) -> None:
            own = add(w, start, times(w, r, self.blocked.out if self.blocked else 0))
            for o in range(form.outputs):
                index = add(w, own, w.int(o * form.feature.out))
                self._store(index, sums[o * self.phases : (o + 1) * self.phases], alike)

        self.finished_in_turn(totals, form.outputs * self.phases, finish)

    def _store(self, index: Value, sums: list[Value], alike: int) -> None:
        w, lanes = self.w, self.lanes
        vectors = w.turn_by_turn(sums) if len(sums) > 1 else sums
        first = alike * lanes * self.phases
        for n, vector in enumerate(vectors):
            left = self.form.row.outputs - first - n * lanes
            if left <= 0:
                continue
            mask = constant_mask([k < left for k in range(lanes)]) if left < lanes else None
            self.result.store((vector,), add(w, index, w.int(n * lanes)), 1, mask)

    def _block(
        self, totals: list[Value], places: Places, rows: tuple[Value, int], alike: int
    ) -> list[Value]:
        """The taps of the rows' dimension."""
        w, along = self.w, self.blocked
        assert along is not None, "there are rows"
        y, count = rows
        if not count:

            def row(places: Places, totals: list[Value]) -> list[Value]:
                return self._row(totals, places, [(0, 0)], alike)

            return self.under_taps([along], [y], places, totals, row)
        start = self.inside[0]
        before = start * along.window.stride // along.window.base_dilation
        met = met_of(along, ((r, start + r) for r in range(count)), range(along.window.size))
        moved = times(w, y, along.window.stride)
        if along.window.base_dilation > 1:  # blocks begin where the first one does, in its phase
            phase = start % along.window.base_dilation
            moved = w.binary("udiv", add(w, y, w.int(-phase)), w.int(along.window.base_dilation))
            before = (start - phase) // along.window.base_dilation
        base = self.moved(places[0], times(w, moved, along.lhs), 0)
        least = LEAST_RUN if self._is_looped() else len(met) + 1
        return self._runs(totals, _runs(met, least=least), (base, places[1], before), alike)

    def _runs(
        self,
        totals: list[Value],
        runs: list[tuple[int, Sequence[Pair], int]],
        there: tuple[Value, Value, int],
        alike: int,
    ) -> list[Value]:
        """The totals with what runs of rows of the base give, in parts where sums are. there: where
        the base and the kernel begin, and the number of the row that is the base's first."""
        w, along = self.w, self.blocked
        assert along is not None, "there are rows"
        size = self.part_size(along)
        base, kernel, before = there
        none, left = [self.zero] * len(totals), size
        sums = none if size else totals
        for element, pairs, count in runs:
            at = self.moved(base, w.int((element - before) * along.lhs), 0), kernel

            def row_of_run(
                n: Value, sums: list[Value], at: Places = at, pairs: Sequence[Pair] = pairs
            ) -> list[Value]:
                moved = times(w, n, along.lhs), times(w, n, along.tap)
                place = self.moved(at[0], moved[0], 0), self.moved(at[1], moved[1], 1)
                return self._row(sums, place, pairs, alike)

            if size and (count > 1 or not left):
                totals, sums, left = self.all_added(totals, sums), none, size
            if count > 1 and size:
                totals = self.in_parts(w.int(count), size, totals, row_of_run)
            elif count > 1:
                sums = repeated(w, w.int(count), sums, row_of_run)
            else:
                sums, left = row_of_run(w.int(0), sums), left - 1
        return self.all_added(totals, sums) if size else sums

    def _is_looped(self) -> bool:
        """Whether rows of the base that serve the same rows of results are a loop: where a round's
        elements and factors fit the registers beside the sums. Where they do not, it takes 1.1 of
        the time of what is written out.
        """
        sums = self.block * self.form.outputs
        held = sums * self.phases + 2 * self.form.row.window.size
        is_long = sums * self.terms >= LEAST_LOOPED
        return is_long and held <= self.ring.registers - FREE and not self.keeps

    def _row(
        self, totals: list[Value], places: Places, pairs: Sequence[Pair], alike: int
    ) -> list[Value]:
        """A row of the base. pairs: which rows of results meet it, each with which of their taps;
        taps are counted from places[1] on."""
        size = self.part_size(self.form.row)
        taps = self.form.row.window.size
        for first in range(0, taps, size) if size else ():
            none, some = [self.zero] * len(totals), range(first, min(first + size, taps))
            totals = self.all_added(totals, self._taps(none, places, pairs, alike, some))
        return totals if size else self._taps(totals, places, pairs, alike, range(taps))

    def _taps(
        self,
        totals: list[Value],
        places: Places,
        pairs: Sequence[Pair],
        alike: int,
        taps: range,
    ) -> list[Value]:
        """The same of some taps of the row."""
        w, form, row, totals = self.w, self.form, self.form.row, list(totals)
        outer = self.blocked.tap if self.blocked else 0
        for number in range(form.inputs):
            base = self.moved(places[0], w.int(number * form.group.lhs), 0)
            found: dict[Reach, Value] = {}
            for tap, phase in product(taps, range(self.phases)):
                reach = self._reach(alike, tap, phase)
                if reach is None:
                    continue
                mask = None if all(reach.lanes) else constant_mask(reach.lanes)
                run = replace(reach, lanes=())
                if run not in found:
                    found[run] = self._element(base, run)
                for (r, above), o in product(pairs, range(form.outputs)):
                    at = number * form.group.rhs + o * form.feature.rhs
                    factor = self._factor(places[1], at + tap * row.tap + above * outer)
                    k = (r * form.outputs + o) * self.phases + phase
                    total = self.multiplied(totals[k], found[run], factor)
                    totals[k] = total if mask is None else w.select(mask, total, totals[k])
        return totals

    def _factor(self, place: Value, at: int) -> Value:
        """An element of the kernel in all lanes: kept in a register where there is room."""
        if (place, at) in self.factors:
            return self.factors[place, at]
        w = self.w
        one = loaded(w, self.ring, self.dtypes[1], self.moved(place, w.int(at), 1), 1)[0]
        factor = w.splat(one, self.lanes)
        if self.keeps:
            self.factors[place, at] = factor
        return factor

    def _reach(self, alike: int, tap: int, phase: int) -> Reach | None:
        """None where no lane of a vector that is like that one has an element."""
        row, w = self.form.row, self.form.row.window
        first, step = alike * self.lanes, w.stride
        at, rest = divmod(phase + tap * w.window_dilation - w.pad_low, w.base_dilation)
        if rest:
            return None
        start = at + first * step
        results = [(first + k) * self.phases + phase < row.outputs for k in range(self.lanes)]
        met = [0 <= start + k * step < row.size for k in range(self.lanes)]
        if not any(a and b for a, b in zip(results, met, strict=True)):
            return None
        lanes = tuple(b or not a for a, b in zip(results, met, strict=True))
        read = tuple(0 <= start + k < row.size for k in range(self.lanes * step))
        return Reach(at, lanes, read)

    def _plain(self) -> range:
        """The vectors of which all lanes are results, and what they read of the base exists."""
        row, w = self.form.row, self.form.row.window
        width = self.lanes * w.stride
        starts = [
            at // w.base_dilation
            for tap, phase in product(range(w.size), range(self.phases))
            if (at := phase + tap * w.window_dilation - w.pad_low) % w.base_dilation == 0
        ]
        first = max(0, -(min(starts, default=0) // width))
        read = (row.size - max(starts, default=0)) // width
        return range(first, min(row.outputs // (self.lanes * self.phases), read))

    def _element(self, base: Value, reach: Reach) -> Value:
        w, step = self.w, self.form.row.window.stride
        width = self.lanes * step
        mask = None if all(reach.read) else constant_mask(reach.read)
        place = self.moved(base, w.int(reach.at), 0)
        run = loaded(w, self.ring, self.dtypes[0], place, width, mask)[0]
        return run if step == 1 else w.shuffle(run, None, range(0, width, step))


def _runs(
    met: Mapping[int, Sequence[Pair]], *, least: int
) -> list[tuple[int, Sequence[Pair], int]]:
    """The elements in their order with what each serves, and 1; of `least` or more neighbours that
    serve the same results, each by the taps behind those of the one before, the first, and how many
    they are.
    """
    runs: list[list[int]] = []
    for element in sorted(met):
        before = runs[-1] if runs else []
        behind = [(r, tap + len(before)) for r, tap in met[before[0]]] if before else None
        if before and element == before[-1] + 1 and met[element] == behind:
            before.append(element)
        else:
            runs.append([element])
    found: list[tuple[int, Sequence[Pair], int]] = []
    for run in runs:
        if len(run) >= least:
            found.append((run[0], met[run[0]], len(run)))
        else:
            found += [(element, met[element], 1) for element in run]
    return found
