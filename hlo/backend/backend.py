"""The backend: an optimised module to an executable, and every stage on the way as text.

Module -> Schedule -> BufferPlan -> Program -> IrModules -> objects -> Executable
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.entry.llvm_ir import emit
from hlo.backend.host import HostCalls
from hlo.backend.interpreted import InterpretedExecutable
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.isa.target import Target
from hlo.backend.linking import recall, toolchain
from hlo.backend.linking.compile import objects
from hlo.backend.linking.installing import link
from hlo.backend.linking.tabulation import link_table
from hlo.backend.loops_text import loops
from hlo.backend.padded import PaddedExecutable
from hlo.backend.planning.buffers import assign
from hlo.backend.planning.cells import BufferPlan
from hlo.backend.planning.fitting import check_arrays, check_fits, check_host_arrays, check_windows
from hlo.backend.planning.implementations import implementations
from hlo.backend.planning.lowering import lower
from hlo.backend.planning.program import Program
from hlo.backend.planning.result_order import in_memory_order
from hlo.backend.planning.schedule import Schedule, schedule
from hlo.backend.refusals import check_runs
from hlo.ir.graph import reachable_computations
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.machine import Machine
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
    machine: Machine | None = None,
) -> Executable | PaddedExecutable | InterpretedExecutable:
    """Machine code for an optimised module.

    mode: "fast" runs with denormals as zeros. threads: at most so many (None: HLO_NUM_THREADS, else
    what the process may use). Sizes that change at run time become scalars beside arrays of their
    bounds, a program for which `passes` are run here; or all is left to the reference.
    key: keep the result on disk for `recalled`, under what `program_key` said of the module before
    it was optimised. result: the shape and layouts of what callers get; the header's if not given.
    machine: whose code it is, which has to run here; None: all that this one has.
    """
    if machine is not None:
        toolchain.check_runs_here(machine)
    if module.has_dynamic_sizes:
        return _of_dynamic_sizes(
            module, passes, mode=mode, threads=threads, cache=cache, machine=machine
        )
    count = thread_count(threads)
    check_arrays(module)
    check_windows(module)
    program = build_program(module, mode=mode, threads=count, machine=machine)
    check_runs(host.instruction for host in program.hosts)
    check_fits(program)
    check_host_arrays(program.hosts)
    table = link_table(program)
    modules = emit_llvm(program, mode=mode, machine=machine)
    bodies = objects(modules, cache=cache)
    if cache and key and not program.hosts:
        recall.store(key, table, bodies)
    host = HostCalls(program) if program.hosts else None
    return link(module, table, bodies, host, result=result)


def _of_dynamic_sizes(
    module: Module,
    passes: str,
    *,
    mode: str,
    threads: int | None,
    cache: bool,
    machine: Machine | None,
) -> PaddedExecutable | InterpretedExecutable:
    """Code for the padded program, which the passes have not seen yet."""
    made = padded(module)
    if made is None:
        check_runs(i for c in reachable_computations(module) for i in c.instructions)
        return InterpretedExecutable(module)
    programs = chain((made,), iter(partial(padded, module), None))  # more where a pass fails
    found = recovery.optimized(lambda: next(programs).module, parse_pipeline(passes))
    static = compile_module(found.module, mode=mode, threads=threads, cache=cache, machine=machine)
    assert isinstance(static, Executable), "a padded program has static shapes"
    return PaddedExecutable(module, made, static)


def target_of(machine: Machine | None, mode: str) -> Target:
    """What kernels are written for. machine: None for the host."""
    return toolchain.host_target(mode) if machine is None else Target(machine, mode)


def build_program(
    module: Module, *, mode: str = "strict", threads: int = 1, machine: Machine | None = None
) -> Program:
    """The stages before LLVM."""
    order = schedule(in_memory_order(module))
    target = target_of(machine, mode)
    return lower(assign_buffers(order, target), threads, target.machine)


def assign_buffers(order: Schedule, target: Target) -> BufferPlan:
    """The buffer plan; which kernels may work in place is asked of them."""
    return assign(order, implementations(order, target), target.machine)


def emit_llvm(
    program: Program, *, mode: str = "strict", machine: Machine | None = None
) -> tuple[IrModule, ...]:
    """The program's LLVM modules."""
    flushed = target_of(machine, mode).isa.float_mode if mode == "fast" else None
    made = emit(program, flushed=flushed)
    return made if machine is None else tuple(replace(m, machine=machine) for m in made)


class Stage(Struct, frozen=True):
    """A stage that --emit shows: its name, the file ending of its text, and how it is made."""

    name: str
    ending: str
    text: Callable[[Module, str, Machine | None], str]


def _program(module: Module, mode: str, machine: Machine | None) -> Program:
    return build_program(module, mode=mode, threads=thread_count(None), machine=machine)


def _modules(module: Module, mode: str, machine: Machine | None) -> tuple[IrModule, ...]:
    return emit_llvm(_program(module, mode, machine), mode=mode, machine=machine)


def _llvm_text(module: Module, mode: str, machine: Machine | None) -> str:
    made = _modules(module, mode, machine)
    return "\n".join(f"; module {n}\n{m}" for n, m in enumerate(made))


def _optimised_text(module: Module, mode: str, machine: Machine | None) -> str:
    return "\n".join(map(toolchain.optimised_text, _modules(module, mode, machine)))


def _assembly_text(module: Module, mode: str, machine: Machine | None) -> str:
    return "\n".join(map(toolchain.assembly, _modules(module, mode, machine)))


def _buffers_text(module: Module, mode: str, machine: Machine | None) -> str:
    return str(assign_buffers(schedule(module), target_of(machine, mode)))


def _loops_text(module: Module, mode: str, machine: Machine | None) -> str:
    return kernel_loops(module, None, mode, machine)


STAGES = (
    Stage("schedule", "txt", lambda module, *_: str(schedule(module))),
    Stage("buffers", "txt", _buffers_text),
    Stage("loops", "txt", _loops_text),
    Stage("program", "txt", lambda *given: str(_program(*given))),
    Stage("llvm", "ll", _llvm_text),
    Stage("llvm-opt", "ll", _optimised_text),
    Stage("asm", "s", _assembly_text),
)


def emit_stage(
    module: Module, stage: str, mode: str = "strict", machine: Machine | None = None
) -> str:
    """The text of one stage of an optimised module; KeyError for a name that is none."""
    return {s.name: s for s in STAGES}[stage].text(module, mode, machine)


def kernel_loops(
    module: Module,
    kernel: str | None,
    mode: str = "strict",
    machine: Machine | None = None,
    *,
    remarks: bool = False,
) -> str:
    """The loops of an optimised module's kernels as text, or those of one."""
    return loops(module, target_of(machine, mode), kernel, remarks=remarks)


def stage_texts(
    module: Module, mode: str = "strict", machine: Machine | None = None
) -> Iterator[tuple[str, str]]:
    """(file name, text) of every stage, in order."""
    for stage in STAGES:
        yield f"{stage.name}.{stage.ending}", stage.text(module, mode, machine)
