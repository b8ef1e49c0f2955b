"""Calls: the kernels of a contraction in their order, and the looks at factors that some wait for.

What is right for ordinary numbers alone is told by a byte: 0, unless a look finds others; kernels
that make the product once more run where it is not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial

from msgspec.structs import replace

from hlo.backend.ir.kernel import Kernel, KernelCall
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import Contraction
from hlo.backend.kernels.contraction.problem.beginnings import start_buffers
from hlo.backend.kernels.contraction.problem.work import copy_work
from hlo.backend.loops.schedule import LoopSchedule, Plan

Made = Callable[[], LoopSchedule | Plan]


class Calls:
    """first: the place of the first temporary. reach: bytes that the product works on."""

    def __init__(self, target: Target, first: int) -> None:
        self.target = target
        self.calls: list[KernelCall] = []
        self.temporaries: list[int] = []
        self.reach = 0
        self._first = first

    @property
    def next_place(self) -> int:
        """Where the next temporary will be."""
        return self._first + len(self.temporaries)

    def call(self, kernel: Kernel, schedule: Made, *buffers: int, is_early: bool = False) -> None:
        """One more kernel."""
        if kernel.work is None:
            kernel = replace(kernel, work=copy_work(kernel.bytes_moved, self.reach))
        self.target.shown(kernel, schedule)
        self.calls.append(KernelCall(kernel, buffers, is_early=is_early))

    def only_if(self, told: int, first: int) -> None:
        """Calls from number `first` on run only where the byte at a place says so."""
        self.calls[first:] = [replace(call, when=told) for call in self.calls[first:]]

    def told(
        self,
        c: Contraction,
        factors: Sequence[tuple[str, int]],
        *,
        is_early: bool = False,
        before: int | None = None,
    ) -> int:
        """A byte that says whether factors have subnormal numbers, or others had (before)."""
        # Of bf16 on some machines alone.
        from hlo.backend.kernels.contraction.words.subnormal_look import subnormal_kernel

        looks = ((subnormal_kernel(c, side), side, "subnormal numbers") for side, _ in factors)
        return self._told(c, looks, is_early=is_early, before=before)

    def told_of_zeros(self, c: Contraction) -> int:
        """A byte that says whether factors are not zero where bands say so, or what is not finite
        would meet such zeros.
        """
        # Only programs with triangles or bands have such zeros.
        from hlo.backend.kernels.contraction.products.zero_look import looks_of

        return self._told(c, looks_of(c))

    def _told(
        self,
        c: Contraction,
        looks: Iterable[tuple[Kernel, str, str]],
        *,
        is_early: bool = False,
        before: int | None = None,
    ) -> int:
        """looks: kernels, the factors that they look at, and what for."""
        from hlo.backend.kernels.contraction.told import (
            TOLD_BYTES,
            told_again_kernel,
            untold_kernel,
        )

        told, first = self.next_place, len(self.calls)
        self.temporaries.append(TOLD_BYTES)
        if before is None:
            self.call(untold_kernel(), partial(Plan, ("told: nothing yet",)), told)
        else:
            shown = partial(Plan, ("told: what was told before",))
            self.call(told_again_kernel(), shown, before, told)
        for kernel, side, what in looks:
            shown = partial(Plan, (f"look: whether a factor has {what}",))
            factor = getattr(c, side)
            self.call(kernel, shown, factor.buffer, told, *start_buffers([factor]))
        self.calls[first:] = [replace(call, is_early=is_early) for call in self.calls[first:]]
        return told
