"""Regions as LLVM IR: a function whose units are whole kernels, for the pool's loop.

void @hlo_region_N(ptr %frame, i64 %begin, i64 %end)   run the kernels of these numbers
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby

from hlo.backend.entry import table_ir
from hlo.backend.ir.interface import prototype
from hlo.backend.ir.ir_module import PARALLEL
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.values import Value
from hlo.backend.ir.words import Word
from hlo.backend.planning.program import KernelStep, Step

_NO_TABLES = '"no-jump-tables"="true"'


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


def function(symbol: str, steps: Sequence[KernelStep], kernels: Sequence[str]) -> str:
    """The region's function; kernels: what each step calls."""
    unit = Unit()
    head = prototype("void", symbol, "ptr", "i64", "i64")
    unit.define(head, partial(_run_kernels, steps, kernels), attributes=_NO_TABLES)
    return unit.functions[symbol]


def _run_kernels(
    steps: Sequence[KernelStep],
    kernels: Sequence[str],
    p: Procedure,
    frame: Word,
    begin: Word,
    end: Word,
) -> None:
    with p.loop(begin) as (again, leave):
        (unit,) = again.words
        leave.go_unless(unit < end)
        done, units = p.join(), [p.join() for _ in steps]
        p.switch(unit, dict(enumerate(units)), done)
        for case, step, name in zip(units, steps, kernels, strict=True):
            case.here()
            kernel = prototype("void", name, "ptr", "i64", "i64")
            p.call(kernel, table_ir.slot(frame, step.slot), 0, step.units)
            done.go()
        done.here()
        again.go(unit + 1)
    p.ret()


def call(p: Procedure, frame: Word, region: Word, count: int, chunks: int, run: Value) -> None:
    """Run a region. run: the pool's."""
    threads = table_ir.threads(frame)
    p.call(PARALLEL, region, frame, 0, count, chunks, threads, 0, count, run)
