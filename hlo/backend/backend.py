"""The backend: an optimised module to an executable, and every stage on the way as text.

Module -> Schedule -> BufferPlan -> Program -> IrModules -> objects -> Executable
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from msgspec import Struct

from hlo.backend.codegen.ir_module import IrModule
from hlo.backend.codegen.llvm_ir import emit
from hlo.backend.host import HostCalls
from hlo.backend.interpreted import InterpretedExecutable
from hlo.backend.kernels.build import implementations
from hlo.backend.linking import recall, toolchain
from hlo.backend.linking.compile import objects
from hlo.backend.linking.installing import link
from hlo.backend.linking.tabulation import link_table
from hlo.backend.padded import PaddedExecutable
from hlo.backend.planning.buffers import assign
from hlo.backend.planning.cells import BufferPlan
from hlo.backend.planning.fitting import check_arrays, check_fits, check_host_arrays, check_windows
from hlo.backend.planning.lowering import lower
from hlo.backend.planning.program import Program
from hlo.backend.planning.result_order import in_memory_order
from hlo.backend.planning.schedule import Schedule, schedule
from hlo.backend.refusals import check_runs
from hlo.ir.graph import reachable_computations
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.passes import recovery
from hlo.passes.dynamic_padder import padded
from hlo.passes.pipeline import parse_pipeline
from hlo.runtime.executable import Executable
from hlo.runtime.threads import thread_count


def compile_module(
    module: Module,
    *,
    passes: str = "default",
    mode: str = "strict",
    threads: int | None = None,
    cache: bool = True,
    key: str = "",
    result: Shape | None = None,
) -> Executable | PaddedExecutable | InterpretedExecutable:
    """Machine code for an optimised module.

    mode: "fast" runs with denormals as zeros. threads: at most so many (None: HLO_NUM_THREADS, else
    what the process may use). Sizes that change at run time become scalars beside arrays of their
    bounds, a program for which `passes` are run here; or all is left to the reference.
    key: keep the result on disk for `recalled`, under what `program_key` said of the module before
    it was optimised. result: the shape and layouts of what callers get; the header's if not given.
    """
    if module.has_dynamic_sizes:
        return _of_dynamic_sizes(module, passes, mode=mode, threads=threads, cache=cache)
    count = thread_count(threads)
    check_arrays(module)
    check_windows(module)
    program = build_program(module, mode=mode, threads=count)
    check_runs(host.instruction for host in program.hosts)
    check_fits(program)
    check_host_arrays(program.hosts)
    table = link_table(program)
    modules = emit_llvm(program, mode=mode)
    bodies = objects(modules, cache=cache)
    if cache and key and not program.hosts:
        recall.store(key, table, bodies)
    host = HostCalls(program) if program.hosts else None
    return link(module, table, bodies, host, result=result)


def _of_dynamic_sizes(
    module: Module, passes: str, *, mode: str, threads: int | None, cache: bool
) -> PaddedExecutable | InterpretedExecutable:
    """Code for the padded program, which the passes have not seen yet."""
    made = padded(module)
    if made is None:
        check_runs(i for c in reachable_computations(module) for i in c.instructions)
        return InterpretedExecutable(module)
    programs = chain((made,), iter(partial(padded, module), None))  # more where a pass fails
    found = recovery.optimized(lambda: next(programs).module, parse_pipeline(passes))
    static = compile_module(found.module, mode=mode, threads=threads, cache=cache)
    assert isinstance(static, Executable), "a padded program has static shapes"
    return PaddedExecutable(module, made, static)


def build_program(module: Module, *, mode: str = "strict", threads: int = 1) -> Program:
    """The stages before LLVM."""
    order = schedule(in_memory_order(module))
    return lower(assign_buffers(order, mode=mode), threads)


def assign_buffers(order: Schedule, *, mode: str = "strict") -> BufferPlan:
    """The buffer plan; which kernels may work in place is asked of them."""
    return assign(order, implementations(order, toolchain.host_target(mode)))


def emit_llvm(program: Program, *, mode: str = "strict") -> tuple[IrModule, ...]:
    """The program's LLVM modules."""
    can_flush = toolchain.host_machine().architecture == "x86_64"
    return emit(program, flushes=mode == "fast" and can_flush)


class Stage(Struct, frozen=True):
    """A stage that --emit shows: its name, the file ending of its text, and how it is made."""

    name: str
    ending: str
    text: Callable[[Module, str], str]


def _llvm_text(module: Module, mode: str) -> str:
    program = build_program(module, mode=mode, threads=thread_count(None))
    return "\n".join(f"; module {n}\n{m}" for n, m in enumerate(emit_llvm(program, mode=mode)))


def _optimised_text(module: Module, mode: str) -> str:
    program = build_program(module, mode=mode, threads=thread_count(None))
    return "\n".join(toolchain.optimised_text(m) for m in emit_llvm(program, mode=mode))


def _assembly_text(module: Module, mode: str) -> str:
    program = build_program(module, mode=mode, threads=thread_count(None))
    return "\n".join(toolchain.assembly(m) for m in emit_llvm(program, mode=mode))


STAGES = (
    Stage("schedule", "txt", lambda module, _: str(schedule(module))),
    Stage("buffers", "txt", lambda module, mode: str(assign_buffers(schedule(module), mode=mode))),
    Stage(
        "program",
        "txt",
        lambda module, mode: str(build_program(module, mode=mode, threads=thread_count(None))),
    ),
    Stage("llvm", "ll", _llvm_text),
    Stage("llvm-opt", "ll", _optimised_text),
    Stage("asm", "s", _assembly_text),
)


def emit_stage(module: Module, stage: str, mode: str = "strict") -> str:
    """The text of one stage of an optimised module; KeyError for a name that is none."""
    return {s.name: s for s in STAGES}[stage].text(module, mode)


def stage_texts(module: Module, mode: str = "strict") -> Iterator[tuple[str, str]]:
    """(file name, text) of every stage, in order."""
    for stage in STAGES:
        yield f"{stage.name}.{stage.ending}", stage.text(module, mode)
