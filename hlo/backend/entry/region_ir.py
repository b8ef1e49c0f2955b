"""Regions as LLVM IR: a function whose units are whole kernels, for the pool's loop.

void @hlo_region_N(ptr %frame, i64 %begin, i64 %end)   run the kernels of these numbers
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from hlo.backend.planning.program import KernelStep, Step
from hlo.backend.planning.slots import SLOT_THREADS


def grouped_steps(steps: Iterable[Step]) -> Iterator[tuple[bool, list[Step]]]:
    """The steps in order, cut where regions begin and end; whether they are a region."""
    for number, group in groupby(steps, lambda s: s.region if isinstance(s, KernelStep) else 0):
        found = list(group)
        yield number > 0 and len(found) > 1, found


def longest_first(steps: Iterable[Step]) -> list[KernelStep]:
    """A region's steps: long ones begin first, so that no thread waits for one at the end."""
    return sorted((s for s in steps if isinstance(s, KernelStep)), key=lambda s: -s.us)


def chunks(steps: Sequence[KernelStep], share_us: float) -> int:
    """As many pieces as kernels, fewer where kernels are not worth the claim of one."""
    return max(2, min(len(steps), int(sum(s.us for s in steps) / share_us)))


def function(symbol: str, steps: Sequence[KernelStep], names: Sequence[str]) -> str:
    """The region's function; names: of the program's kernels."""
    cases = " ".join(f"i64 {n}, label %unit{n}" for n in range(len(steps)))
    lines = [
        f'define void @{symbol}(ptr %frame, i64 %begin, i64 %end) "no-jump-tables"="true" {{',
        "  br label %test",
        "test:",
        "  %unit = phi i64 [ %begin, %0 ], [ %next, %done ]",
        "  %more = icmp slt i64 %unit, %end",
        "  br i1 %more, label %run, label %leave",
        "run:",
        f"  switch i64 %unit, label %done [ {cases} ]",
    ]
    for n, step in enumerate(steps):
        lines += [
            f"unit{n}:",
            f"  %row{n} = getelementptr i8, ptr %frame, i64 {8 * step.slot}",
            f"  call void @{names[step.kernel]}(ptr %row{n}, i64 0, i64 {step.units})",
            "  br label %done",
        ]
    lines += ["done:", "  %next = add i64 %unit, 1", "  br label %test"]
    lines += ["leave:", "  ret void", "}"]
    return "\n".join(lines)


def call(symbol: str, parallel: str, count: int, chunks: int, n: str, run: str) -> list[str]:
    """The lines that run a region; n: a suffix of its own for the lines' names; run: the pool's."""
    return [
        f"  %slot{n} = getelementptr i8, ptr %frame, i64 {8 * SLOT_THREADS}",
        f"  %threads{n} = load i64, ptr %slot{n}, align 8",
        f"  call void @{parallel}(ptr @{symbol}, ptr %frame, i64 0, i64 {count}, "
        f"i64 {chunks}, i64 %threads{n}, i64 0, i64 {count}, {run})",
    ]
