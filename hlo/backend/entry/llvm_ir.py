"""LLVM IR of a program: modules of kernels, and of the entry that runs its steps.

    Program --emit--> IrModule ... (text, the symbols that it defines)

A program that is a list of kernels, and is wanted soon, has no entry: a function of the process
calls them (call_list_ir.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from hlo.backend.entry.early_modules import NONE_BEGUN, Begun
from hlo.backend.entry.kernel_modules import kernel_module, library_module, plain_code
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.grouping import (
    GLUE,
    KERNELS,
    MOST_CUT,
    OPTIMISED,
    Shares,
    processors,
)
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.shared_functions import shared, shared_often
from hlo.backend.ir.table_filling import apart
from hlo.backend.isa.generic import FloatMode
from hlo.backend.planning.brevity import brief_kernels
from hlo.backend.planning.program import Program, kernel_steps

if TYPE_CHECKING:
    from hlo.backend.entry.entry_ir import Entry, Extern
    from hlo.backend.entry.polling import Known
    from hlo.backend.entry.timing_ir import Timing

LEAST_CUT = 150  # Lines of a kernel that stays whole; MOST_CUT is the most that may.
# In per cent of a processor's share of the lines: longer kernels are cut, into pieces so long.
LONG_SHARE, PIECE_SHARE = 140, 60
GLUE_LINES = 24  # Lines of an entry that is no module of its own.


def emit(
    program: Program,
    *,
    flushed: FloatMode | None = None,
    workers: int | None = None,
    hands_frame: bool = False,
    externs: Mapping[int, Extern] | None = None,
    is_small: bool = False,
    begun: Begun = NONE_BEGUN,
) -> tuple[IrModule, ...]:
    """The kernels' modules, the entry in the last of them. flushed: with denormals as zeros.

    workers: processors that kernels are cut and grouped for; None: those that there are, for code
    that is wanted soon, which of a listed program has no entry.
    hands_frame: whoever runs a parallel loop gets the frame, even if the run cannot be stopped.
    externs: host steps by number that are functions of C. is_small: loops hold no kernels of their
    own. begun: modules that are there already, with kernels of the program's.
    """
    program = _with_polls(program, begun.known)
    names = [symbol(kernel) for kernel in program.kernels]
    if workers is None and not flushed and program.is_listed:
        return (*begun.modules, *_listed(program, names, begun))
    from hlo.backend.entry.entry_ir import Entry  # short programs have none

    entry = Entry(program, names, flushed=flushed, hands_frame=hands_frame, externs=externs)
    entry.inlines = not is_small
    entry.is_plain = entry.is_told = workers is None
    brief = None if workers else brief_names(program, names)
    return (*begun.modules, *_modules(entry, workers or processors(), brief, begun))


def emit_timed(program: Program, timing: Timing) -> tuple[IrModule, ...]:
    """Modules whose entry tells of every step what `timing` wants to know."""
    from hlo.backend.entry.entry_ir import Entry

    program = _with_polls(program)
    names = [symbol(kernel) for kernel in program.kernels]
    entry = Entry(program, names, flushed=None, timing=timing)
    return _modules(entry, processors(), brief_names(program, names))


def _with_polls(program: Program, known: Known | None = None) -> Program:
    if not program.watched:
        return program
    from hlo.backend.entry.polling import with_polls  # short programs are not watched

    return with_polls(program, known)


def _listed(program: Program, names: list[str], begun: Begun) -> tuple[IrModule, ...]:
    """The modules of a list of kernels; what fills their tables, if they have any."""
    numbers = sorted({step.kernel for step in kernel_steps(program)})
    called = _with_functions({names[n]: program.kernels[n] for n in numbers})
    fills: dict[str, Kernel] = {}
    called = apart(called, fills)
    brief = brief_names(program, names)
    modules = _kernel_modules(called | fills, [], processors(), brief, begun)
    if not fills:
        return tuple(modules)
    from hlo.backend.entry.entry_ir import Entry

    entry = Entry(program, names, flushed=None)
    entry.is_plain = True
    entry.fill_tables(fills)
    return _with_entry(modules, entry)


def brief_names(program: Program, names: Sequence[str]) -> frozenset[str]:
    """The names of the kernels that take little of a run."""
    return frozenset(names[n] for n in brief_kernels(program))


def _modules(
    entry: Entry, workers: int, brief: frozenset[str] | None, begun: Begun = NONE_BEGUN
) -> tuple[IrModule, ...]:
    entry.write()
    names, program = entry.names, entry.program
    called = {names[n]: program.kernels[n] for n in sorted(entry.called)}
    called = _with_functions(called, entry.inlined)
    fills: dict[str, Kernel] = {}
    called, entry.inlined = apart(called, fills), apart(entry.inlined, fills)
    entry.fill_tables(fills)
    entry.inlined, often = shared_often(entry.inlined)
    modules = _kernel_modules(
        called | fills, entry.loop_modules(), workers, brief, begun,
        often=often, ends_plain=not entry.has_loops,
    )  # fmt: skip
    return _with_entry(modules, entry)


def _with_functions(
    called: dict[str, Kernel], inlined: Mapping[str, Kernel] = MappingProxyType({})
) -> dict[str, Kernel]:
    """Kernels with the functions that they, and those inlined elsewhere, call."""
    found = dict(called)
    for kernel in (*called.values(), *inlined.values()):
        found |= {symbol(function): function for function in kernel.functions}
    return found


def _kernel_modules(
    called: dict[str, Kernel],
    loops: list[IrModule],
    workers: int,
    brief: frozenset[str] | None,
    begun: Begun,
    *,
    often: Mapping[str, Kernel] = MappingProxyType({}),
    ends_plain: bool = True,
) -> list[IrModule]:
    """The modules of loops and kernels. often: functions that loops call. ends_plain: whether the
    last one, which may get the entry too, is plain code, if there is any. brief: the kernels
    that take little of a run, of code that is wanted soon: library functions are modules by
    themselves then, for the process has most of them."""
    called = {n: k for n, k in called.items() if n not in begun.names}
    scalar = {n: k for n, k in called.items() if k.needs_middle_end}
    plain = shared({n: k for n, k in called.items() if n not in scalar})
    glue = plain_code({n: plain[n] for n in called if n in plain}, brief)
    plain = {**often, **{n: k for n, k in plain.items() if n not in glue}}
    plain = {n: k for n, k in plain.items() if n not in begun.names}
    library = {n: k for n, k in plain.items() if brief is not None and k.is_library}
    plain = _cut_to_shares({n: k for n, k in plain.items() if n not in library}, workers, begun)
    shares = Shares(workers, loops)
    optimised = [kernel_module(g, optimised=True) for g in shares.grouped(scalar, OPTIMISED)]
    kernels = [kernel_module(group) for group in shares.grouped(plain, KERNELS)]
    glued = [kernel_module(group, is_glue=True) for group in shares.grouped(glue, GLUE)]
    last = (*kernels, *glued) if ends_plain else (*glued, *kernels)
    return [*map(library_module, library.items()), *optimised, *loops, *last]


def _with_entry(modules: list[IrModule], entry: Entry) -> tuple[IrModule, ...]:
    """The modules, and the entry: beside what is in the last one, or by itself."""
    has_room = bool(modules) and not (modules[-1].optimised or modules[-1].is_library)
    if has_room and entry.length() > GLUE_LINES:
        return (*modules, *entry.modules())
    if not has_room:
        modules = [*modules, kernel_module({}, is_glue=entry.is_plain)]
    return (*modules[:-1], entry.beside(modules[-1]))


def _cut_to_shares(kernels: dict[str, Kernel], workers: int, begun: Begun) -> dict[str, Kernel]:
    """The kernels, long ones in pieces, so that each worker has its share of the lines."""
    share = (begun.lines + sum(k.length for k in kernels.values())) // workers
    longest = max(LEAST_CUT, min(MOST_CUT, LONG_SHARE * share // 100))
    if all(kernel.length <= longest for kernel in kernels.values()):
        return kernels
    from hlo.backend.ir.outlining import outline  # for long kernels

    cut = outline(kernels, min(MOST_CUT, PIECE_SHARE * share // 100), longest)
    return {n: k for n, k in cut.items() if n not in begun.names}
