"""Calls: the kernels of a contraction in their order, and the checks of factors that some wait for.

What is right for ordinary numbers alone is told by a flag: 0, unless a check finds others; kernels
that make the product once more run where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from hlo.backend.ir.kernel import Kernel, KernelCall
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.offsets import start_buffers
from hlo.backend.kernels.contraction.problem.work import copy_work
from hlo.backend.loops.schedule import LoopSchedule, Plan
from hlo.ir.instruction import Instruction

Made = Callable[[], LoopSchedule | Plan]


class Calls:
    """The kernels of a contraction while they are put in sequence.

    first: the place of the first temporary. reach: bytes that the product works on. factors: by
    their places; none where the results in memory are not the sums themselves.
    """

    def __init__(self, target: Target, first: int) -> None:
        self.target = target
        self.calls: list[KernelCall] = []
        self.temporaries: list[int] = []
        self.reach = 0
        self.factors: dict[int, Instruction] = {}
        self._first = first

    @property
    def next_place(self) -> int:
        """Where the next temporary will be."""
        return self._first + len(self.temporaries)

    def temporary(self, size: int) -> int:
        """The place of a new temporary of so many bytes."""
        self.temporaries.append(size)
        return self.next_place - 1

    def bytes_at(self, place: int) -> int:
        """Of a temporary."""
        return self.temporaries[place - self._first]

    def call(self, kernel: Kernel, schedule: Made, *buffers: int, is_early: bool = False) -> None:
        """One more kernel."""
        work = kernel.work or copy_work(kernel.bytes_moved)
        if not work.reach:
            work = replace(work, reach=self.reach)
        kernel = replace(kernel, work=work)
        self.target.shown(kernel, schedule)
        self.calls.append(KernelCall(kernel, buffers, is_early=is_early))

    def only_if(self, flag: int, first: int) -> None:
        """Calls from number `first` on run only where the byte at a place says so; but those that
        may run long before it is known."""
        self.calls[first:] = [
            call if call.is_early else replace(call, when=flag) for call in self.calls[first:]
        ]

    def other(self, flag: int) -> int:
        """A byte that says the opposite of a flag."""
        from hlo.backend.kernels.check_flag import FLAG_BYTES, other_flag_kernel

        place = self.temporary(FLAG_BYTES)
        self.call(other_flag_kernel(), partial(Plan, ("flag: the opposite",)), flag, place)
        return place

    def cleared(self) -> int:
        """A new flag, which says no."""
        from hlo.backend.kernels.check_flag import FLAG_BYTES, cleared_flag_kernel

        flag = self.temporary(FLAG_BYTES)
        self.call(cleared_flag_kernel(), partial(Plan, ("flag: cleared",)), flag)
        return flag

    def copy_flag(self, flag: int, place: int) -> None:
        """A byte at another place, which becomes the same."""
        from hlo.backend.kernels.check_flag import copied_flag_kernel

        self.call(copied_flag_kernel(), partial(Plan, ("flag: as another one",)), flag, place)

    def flagged(
        self,
        c: Contraction,
        factors: Sequence[tuple[str, int]],
        *,
        is_early: bool = False,
        before: int | None = None,
    ) -> int:
        """A byte that says whether factors have subnormal numbers, or others had (before)."""
        # Of bf16 on some machines alone.
        from hlo.backend.kernels.contraction.words.subnormal_check import subnormal_kernel

        checks = (
            (subnormal_kernel(c, side, self.target), side, "subnormal numbers")
            for side, _ in factors
        )
        return self._flagged(c, checks, is_early=is_early, before=before)

    def at_most_two(self) -> list[int]:
        """The places of factors that are known to be."""
        from hlo.analysis.bounded_powers import is_at_most_two

        return [place for place, factor in self.factors.items() if is_at_most_two(factor)]

    def flagged_small(self, c: Contraction, when: int | None = None) -> tuple[int, int]:
        """A byte that says whether results are small beside what they may miss where subnormal
        numbers count as zeros, and the factors' maxima. when: one that says whether to look at all.
        """
        # Only products of factors with subnormal numbers ask.
        from hlo.backend.kernels.contraction.small_results import (
            MAXIMA_BYTES,
            small_results_kernel,
        )

        flag, maxima, first = self.cleared(), self.temporary(MAXIMA_BYTES), len(self.calls)
        shown = partial(Plan, ("check: whether results are large beside what they may miss",))
        places = (c.lhs.buffer, c.rhs.buffer, c.out_buffer, flag, maxima)
        starts = start_buffers([c.lhs, c.rhs])
        self.call(small_results_kernel(c, self.at_most_two()), shown, *places, *starts)
        if when is not None:
            self.only_if(when, first)
        return flag, maxima

    def flagged_zeros(self, c: Contraction) -> int:
        """A byte that says whether factors are not zero where bands say so, or what is not finite
        would meet such zeros.
        """
        # Only programs with triangles or bands have such zeros.
        from hlo.backend.kernels.contraction.products.zero_check import checks_of

        return self._flagged(c, checks_of(c))

    def _flagged(
        self,
        c: Contraction,
        checks: Iterable[tuple[Kernel, str, str]],
        *,
        is_early: bool = False,
        before: int | None = None,
    ) -> int:
        """checks: kernels, the factors that they check, and what for."""
        first = len(self.calls)
        if before is None:
            flag = self.cleared()
        else:
            from hlo.backend.kernels.check_flag import FLAG_BYTES

            flag = self.temporary(FLAG_BYTES)
            self.copy_flag(before, flag)
        for kernel, side, what in checks:
            shown = partial(Plan, (f"check: whether a factor has {what}",))
            factor = getattr(c, side)
            self.call(kernel, shown, factor.buffer, flag, *start_buffers([factor]))
        self.calls[first:] = [replace(call, is_early=is_early) for call in self.calls[first:]]
        return flag
