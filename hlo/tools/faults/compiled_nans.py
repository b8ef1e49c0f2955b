"""compiled_nans: the instructions that make NaNs, infinities or denormals in compiled code.

    module, arguments --probed run--> events --what they read and wrote--> findings, in time's order

A probe behind each kernel notes the first run in which its result has the kind; what the kernel
read and wrote in that run is copied in a second program. The reference, on just these operands,
names the instruction inside of the kernel, its element and its operands there; where it makes none,
the kernel itself is named. Of each instruction the first such run is found, for each kind; what a
kernel discards inside of itself is not in memory and is not found.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from msgspec import Struct
from msgspec.structs import replace

from hlo.analysis.sources import source_of
from hlo.backend.compilation import Compilation
from hlo.backend.probing import Captured, Event, Probes
from hlo.errors import HloError
from hlo.ir.computation import Computation
from hlo.ir.graph import calls
from hlo.ir.instruction import Instruction
from hlo.tools.cases import arrays
from hlo.tools.cases.case import Case
from hlo.tools.cases.extract import extracted
from hlo.tools.faults.bisect import line_of
from hlo.tools.faults.nans import ODD, Finding, has_kind, nans


class Probed(Struct, frozen=True):
    """What a run with probes has found.

    findings: in the order of the run. is_same: whether all outputs have the bits that they have
    without probes. unprobed: names of instructions without a probe (fp8, host steps). result: the
    outputs.
    """

    findings: tuple[Finding, ...]
    is_same: bool
    unprobed: tuple[str, ...]
    result: object


def compiled_nans(
    case: Case,
    kinds: Sequence[str] = ("nan", "inf"),
    *,
    passes: str = "default",
    mode: str = "strict",
    threads: int | None = None,
) -> Probed:
    """What compiled code of a verified module makes; kinds of nan, inf, denormal.

    `outputs` of a finding are the leaves of the result that may have it from there. Raises HloError
    `unsupported` for a program that is left to the reference.
    """
    compilation = Compilation(case.module, passes=passes, mode=mode, threads=threads)
    if compilation.optimised.has_dynamic_sizes:
        what = "sizes that change at run time are not probed"
        raise HloError("unsupported", f"nans: {what}", help="--engine=interpreter looks at all")
    plain = compilation.executable(*case.values)
    probes = Probes(compilation, kinds)
    result, events = probes.run(*case.values)
    found = [*_given(compilation, case.values, kinds)]
    found += [
        finding
        for captured in (probes.captured(events, case.values) if events else ())
        for finding in _made(captured)
    ]
    odd = {event.instruction for event in events}
    reach = _Reach(compilation, odd, result)
    numbered = [
        replace(finding, number=n, outputs=reach.outputs(maker, finding.kind))
        for n, (maker, finding) in enumerate(found)
    ]
    is_same = arrays.digest(plain) == arrays.digest(result)
    return Probed(tuple(numbered), is_same, tuple(i.name for i in probes.unprobed), result)


def _given(
    compilation: Compilation, values: Sequence[object], kinds: Sequence[str]
) -> Iterable[tuple[Instruction, Finding]]:
    """What arguments have."""
    for parameter, value in zip(compilation.static.entry.parameters, values, strict=True):
        for array in arrays.leaves(value):
            for kind in kinds:
                if isinstance(array, np.ndarray) and _is_odd(array, kind):
                    yield parameter, _finding(parameter, kind, array, ())


def _finding(
    instruction: Instruction, kind: str, array: np.ndarray, operands: tuple[str, ...]
) -> Finding:
    """Of the first element that has the kind."""
    mask = ODD[kind](array)
    index = tuple(int(i) for i in np.unravel_index(int(np.argmax(mask)), array.shape))
    line, source = line_of(instruction), source_of(instruction)
    count = int(np.count_nonzero(mask))
    return Finding(0, kind, line, source, "", 0, index, str(array[index]), operands, count)


def _made(captured: Captured) -> list[tuple[Instruction, Finding]]:
    """What a kernel makes of operands that have it not; nothing where it hands on."""
    event = captured.event
    instruction = event.instruction
    values = dict(zip(instruction.operands, captured.operands, strict=True))
    alone = extracted([instruction], values)
    try:
        inside = [f for f in nans(alone, (event.kind,), arguments=False) if not f.is_discarded]
    except HloError:  # of what the reference cannot run by itself
        inside = []
    if not inside:
        inside = _of_kernel(captured)
    loop, iteration = _loop_of(event)
    return [(instruction, replace(f, loop=loop, iteration=iteration, outputs=())) for f in inside]


def _of_kernel(captured: Captured) -> list[Finding]:
    """The kernel itself, where an element has the kind and none of the operands."""
    event = captured.event
    if any(_is_odd(a, event.kind) for a in arrays.leaves(captured.operands)):
        return []
    operands = tuple(
        f"%{o.name} = {arrays.describe(a)}"
        for o, a in zip(event.instruction.operands, captured.operands, strict=True)
        if isinstance(a, np.ndarray)
    )
    results = [a for a in arrays.leaves(captured.result) if _is_odd(a, event.kind)]
    return [_finding(event.instruction, event.kind, array, operands) for array in results[:1]]


def _is_odd(array: np.ndarray, kind: str) -> bool:
    return has_kind(array, ODD[kind])


def _loop_of(event: Event) -> tuple[str, int]:
    home = event.instruction.computation
    is_entry = home is None or home.module is None or home is home.module.entry
    return ("", 0) if is_entry or home is None else (home.name, event.run)


class _Reach:
    """Where odd values of a run go."""

    def __init__(self, compilation: Compilation, odd: set[Instruction], result: object) -> None:
        self._made = compilation.implementations
        self._odd = odd
        self._root = compilation.static.entry.root
        self._leaves = list(arrays.leaves(result))
        self._callers: dict[Computation, list[Instruction]] = {}
        for computation in compilation.static.computations:
            for caller in calls(computation):
                for callee in caller.called_computations():
                    self._callers.setdefault(callee, []).append(caller)

    def outputs(self, maker: Instruction, kind: str) -> tuple[int, ...]:
        """Output leaves that have the kind, if odd values lead from the maker to the root."""
        leaves = enumerate(self._leaves)
        having = tuple(n for n, a in leaves if _is_odd(a, kind) or _is_odd(a, "nan"))
        if not having:
            return ()
        seen, waiting = {maker}, [maker]
        while waiting:
            instruction = waiting.pop()
            if instruction is self._root:
                return having
            for reader in self._readers(instruction):
                if reader not in seen and (reader not in self._made or reader in self._odd):
                    seen.add(reader)
                    waiting.append(reader)
        return ()

    def _readers(self, instruction: Instruction) -> Iterable[Instruction]:
        """Who gets a value: users, parameters of what they call, callers of whose root it is."""
        for user in instruction.users:
            yield user
            for callee in user.called_computations():
                yield from callee.parameters
        home = instruction.computation
        if instruction.is_root and home is not None:
            for caller in self._callers.get(home, ()):
                yield caller
                yield from home.parameters
