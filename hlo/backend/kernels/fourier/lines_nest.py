"""The loops of a Fourier transform's kernel, as a schedule has them.

    Lines --lines_schedule--> a vector of lines to scratch, passes to and fro, and back

b counts outer lines, j the lanes' lines, r elements of a line (scalars, where squares of them are
turned), p and q the two loops of a pass: passes.py.
"""

from __future__ import annotations

from hlo.backend.kernels.fourier.plan import LARGEST_FACTOR, Lines, factors, is_smooth
from hlo.backend.loops.one_nest import Nodes, around, schedule_of
from hlo.backend.loops.schedule import (
    Axis,
    Cache,
    Fill,
    Loop,
    LoopSchedule,
    Node,
    Role,
    Storage,
    Store,
    Tail,
    axis_name,
)

BUFFERS = ("x", "y")  # The buffers between which passes go to and fro.
ELEMENT = axis_name(0, "r")


def lines_schedule(
    lines: Lines, lanes: int, slots: int, scratch_bytes: int, together: int
) -> LoopSchedule:
    """The loops of lines.py's kernel. slots: vectors of numbers in each of its buffers; together:
    the pairs of results of a large prime that go through its terms at once.
    """
    made = _Loops(lines, lanes, together)
    dims, dtype = (slots, 2, lanes), lines.complex.component.name
    body = (
        *(Cache(name, dims, dtype, scratch_bytes // 2, Storage.SCRATCH) for name in BUFFERS),
        *made.unit(),
    )
    tail = Tail.PREDICATED if lines.lanes % lanes else Tail.NONE
    axes = (
        Axis("b", lines.outer, Role.PARALLEL),
        Axis("j", lines.lanes, Role.PARALLEL, lanes, lanes, tail),
    )
    found = around(axes, body)
    return schedule_of(axes, found, (lines.text,), scratch_bytes=scratch_bytes)


class _Loops:
    """What a unit does, step by step; at: the buffer where the numbers are."""

    def __init__(self, lines: Lines, lanes: int, together: int) -> None:
        self.lines, self.lanes, self.together = lines, lanes, together
        self.found: list[Node] = []
        self.at = 0

    def unit(self) -> Nodes:
        """One vector of lines."""
        n, half = self.lines, self.lines.size // 2 + 1
        source, target = n.source, n.target
        counts = {"RFFT": (n.inner, half), "IRFFT": (half, n.inner)}
        read, written = counts.get(n.kind, (n.size, n.size))
        if n.kind == "RFFT":
            self._read(2 if n.folds else 1, read, is_turned=True)
        else:
            self._read(source.parts, read, is_turned=not source.is_beside)
        if n.kind == "IRFFT":
            self._in_place("pairs of numbers folded" if n.folds else "the other half", read)
        self._transform()
        if n.kind == "RFFT" and n.folds:
            self._in_place("pairs of numbers unfolded", half)
        parts = 2 if n.folds or target.parts == 2 else 1
        is_turned = n.kind in counts or not target.is_beside
        self._written(parts, written, is_turned=is_turned)
        return tuple(self.found)

    def _each(self, count: int, node: Node) -> None:
        if count:
            self.found.append(Loop(Axis(ELEMENT, count, Role.SERIAL), (node,)))

    def _squares(self, scalars: int, node: Node) -> None:
        tail = Tail.PREDICATED if scalars % self.lanes else Tail.NONE
        axis = Axis(ELEMENT, scalars, Role.VECTOR, self.lanes, self.lanes, tail)
        self.found.append(Loop(axis, (node,)))

    # -- memory ----------------------------------------------------------------------------------

    def _read(self, parts: int, count: int, *, is_turned: bool) -> None:
        if is_turned:
            self._squares(count * parts, Fill("x", "squares turned in registers, of p0"))
        else:
            self._each(count, Fill("x", "numbers of p0"))

    def _written(self, parts: int, count: int, *, is_turned: bool) -> None:
        value = BUFFERS[self.at] + (", twisted" if self.lines.total else "")
        index = (*(("b",) if self.lines.outer > 1 else ()), "j", ELEMENT)
        if is_turned:
            self._squares(count * parts, Store("result", 1, index, f"squares of {value}"))
        else:
            self._each(count, Store("result", 1, index, value))

    # -- transforms ------------------------------------------------------------------------------

    def _transform(self) -> None:
        n, m = self.lines.inner, self.lines.passed
        if is_smooth(n):
            self._passes(n)
            return
        self._each(n, Fill("x", "x times the chirp"))
        self._each(m - n, Fill("x", "0"))
        self._passes(m)
        self._each(m, Fill("x", f"{BUFFERS[self.at]} times the chirp's spectrum"))
        self.at = 0
        self._passes(m)
        self._each(n, Fill(BUFFERS[self.at], f"{BUFFERS[self.at]} times the chirp"))

    def _passes(self, n: int) -> None:
        """Stockham's: a butterfly for each p and q."""
        done, left = 1, n
        for r in factors(n):
            left //= r
            x, y = BUFFERS[self.at], BUFFERS[1 - self.at]
            fill = Fill(y, f"butterflies of {r} from {x}")
            steps = (fill,) if r <= LARGEST_FACTOR else self._of_prime(r, x, fill)
            inner = Loop(Axis("q", done, Role.SERIAL), steps)
            self.found.append(Loop(Axis("p", left, Role.SERIAL), (inner,)))
            done *= r
            self.at = 1 - self.at

    def _of_prime(self, r: int, x: str, fill: Fill) -> Nodes:
        """Its terms' sums and differences, then its results by pairs."""
        half = r // 2
        rest = half % self.together
        terms = Axis("t", half, Role.SERIAL)
        found: list[Node] = [Loop(terms, (Fill(x, f"sums and differences of {x}"),))]
        for pairs, step in ((half - rest, self.together), (rest, 1)):
            if pairs:
                axis = Axis("u", pairs, Role.SERIAL, step)
                found.append(Loop(axis, (Loop(terms, (fill,)),)))
        return tuple(found)

    def _in_place(self, text: str, count: int) -> None:
        """A buffer's numbers from both of its ends."""
        self._each((count - 1) // 2 if self.lines.folds else self.lines.size // 2, Fill(
            BUFFERS[self.at], text))  # fmt: skip
