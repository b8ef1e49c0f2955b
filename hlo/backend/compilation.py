"""Compilation: a program on its way to machine code, a value with all stages in it.

    module -> optimised -> static -> schedule -> buffers -> program -> link table, ir -> objects
           -> executable

Each stage is made once, when it or a later one is first asked for, on whichever thread. Whoever
looks at a stage, times or prints it reads it here, so that what is shown is what runs. An
executable knows nothing of its compilation, which goes when nobody asks it for anything more.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from msgspec.structs import replace

from hlo.backend.entry.early_modules import EarlyModules
from hlo.backend.entry.llvm_ir import emit
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.isa.target import Target
from hlo.backend.linking import compilation_cache, toolchain
from hlo.backend.linking.early_objects import EarlyObjects
from hlo.backend.linking.installing import HandlerRecords, link, result_shape
from hlo.backend.linking.jit import PERF_MAP
from hlo.backend.linking.link_table import LinkTable
from hlo.backend.linking.tabulation import link_table
from hlo.backend.loops.expression import waits_in
from hlo.backend.planning.allocations import BufferPlan
from hlo.backend.planning.buffers import assign
from hlo.backend.planning.families import kernel_makers
from hlo.backend.planning.fitting import check_arrays, check_fits, check_host_arrays, check_windows
from hlo.backend.planning.implementations import Implementations, KernelMakers, implementations
from hlo.backend.planning.program import HostStep, Program
from hlo.backend.planning.result_order import in_memory_order
from hlo.backend.planning.schedule import Schedule, schedule
from hlo.backend.planning.steps import program_of
from hlo.backend.refusals import check_runs, check_static, check_values
from hlo.ir.graph import clone_module, reachable_computations
from hlo.ir.module import Module
from hlo.machine import Machine
from hlo.passes import recovery
from hlo.passes.manager import Manager
from hlo.passes.pipeline import parse_pipeline
from hlo.process.once import cached_property, lock
from hlo.runtime.executable import Executable
from hlo.runtime.threads import thread_count

if TYPE_CHECKING:
    from hlo.backend.host import HostCalls
    from hlo.backend.interpreted import InterpretedExecutable
    from hlo.backend.padded import PaddedExecutable
    from hlo.passes.padding.boundary import Padded

Compiled: TypeAlias = "Executable | PaddedExecutable | InterpretedExecutable"


class Compilation:
    """A verified module, how it is to be compiled, and what became of it so far.

    passes: of a pipeline; "" leaves the module as it is.
    mode: "fast" runs its own pipeline instead of the default, and with denormals as zeros.
    threads: at most so many (None: HLO_NUM_THREADS, else what the process may use).
    machine: whose code it is; None: all that this one has.
    cache: look for object code in this process's memory and on disk, as is always done for that of
    library functions.
    manager: runs the passes, and one that fails raises; without one it is left out, with a warning.
    """

    def __init__(
        self,
        module: Module,
        *,
        passes: str = "default",
        mode: str = "strict",
        threads: int | None = None,
        machine: Machine | None = None,
        cache: bool = True,
        manager: Manager | None = None,
    ) -> None:
        self.module = module
        self.passes = "fast" if (mode, passes) == ("fast", "default") else passes
        self.mode = mode
        self.threads = thread_count(threads)
        self.machine = machine.in_mode(mode) if machine else None
        self.cache = cache
        self.manager = manager
        self.makers: KernelMakers = kernel_makers
        self.left_out: tuple[str, ...] = ()  # passes that failed
        self.lock = lock()

    @cached_property
    def optimised(self) -> Module:
        """A new module, its results in the order of memory."""
        ordered = in_memory_order(self.module)
        steps = parse_pipeline(self.passes)
        if self.manager is None:
            found = recovery.optimized(partial(clone_module, ordered), steps)
            self.left_out = found.left_out
            return found.module
        module = clone_module(ordered)
        self.manager.run(module, steps)
        return module

    @cached_property
    def padded(self) -> Padded | None:
        """The program between padded parameters and cut results, of one that has such."""
        if not self.optimised.has_dynamic_sizes:
            return None
        from hlo.passes.padding.boundary import static_program  # few programs have such sizes

        return static_program(self.optimised)

    @cached_property
    def static(self) -> Module:
        """The module that code is made for; HloError where sizes change at run time inside."""
        if self.padded is not None:
            return self.padded.module
        check_static(self.optimised)
        return self.optimised

    @cached_property
    def target(self) -> Target:
        """What kernels are written for."""
        if self.machine is None:
            return toolchain.host_target(self.mode)
        return Target(self.machine, self.mode)

    def with_target(self, target: Target) -> Compilation:
        """The same program with kernels that are written for another target."""
        other = Compilation(
            self.module, passes=self.passes, mode=self.mode, threads=self.threads,
            machine=self.machine, cache=self.cache, manager=self.manager,
        )  # fmt: skip
        other.makers = self.makers
        vars(other).update(
            optimised=self.optimised, static=self.static, schedule=self.schedule, target=target
        )
        return other

    def with_families(self, chosen: KernelMakers) -> Compilation:
        """The same program with kernels of other families; without any, the reference's steps."""
        other = self.with_target(self.target)
        other.makers = chosen
        return other

    @cached_property
    def schedule(self) -> Schedule:
        """The order of instructions."""
        module = self.static
        if waits_in(module.entry, self.target):
            # Few programs underflow.
            from hlo.backend.planning.epilogues_apart import with_epilogues_apart

            module = with_epilogues_apart(module, self.target)
        return schedule(module)

    @cached_property
    def implementations(self) -> Implementations:
        """The kernels of each instruction, which say what may work in place."""
        target = replace(self.target, is_alone=self.threads == 1)
        return implementations(self.schedule, target, self.makers, told=self.early.enter)

    @cached_property
    def early(self) -> EarlyModules:
        """The modules of kernels that are there before the program is."""
        return EarlyModules(self.target.machine, self.machine)

    @cached_property
    def buffers(self) -> BufferPlan:
        """Which value has which bytes."""
        return assign(self.schedule, self.implementations, self.target.machine)

    @cached_property
    def program(self) -> Program:
        """Steps on a table of addresses, for `threads` threads."""
        return program_of(self.buffers, self.threads, self.target.machine)

    @cached_property
    def link_table(self) -> LinkTable:
        """The program's addresses and constants; HloError for a constant that is left out."""
        return link_table(self.program)

    @cached_property
    def ir(self) -> tuple[IrModule, ...]:
        """The program's LLVM modules."""
        flushed = self.target.isa.float_mode if self.is_fast else None
        made = emit(self.program, flushed=flushed, begun=self.early.begun)
        return tuple(replace(m, machine=self.machine) for m in made) if self.machine else made

    @property
    def is_fast(self) -> bool:
        return self.mode == "fast"

    @cached_property
    def objects(self) -> Sequence[bytes]:
        """One object file per module of IR, the first ones begun while kernels are planned. Raises
        HloErrors for a program that cannot run in this process.
        """
        with EarlyObjects(cache=self.cache) as made:
            self.early.begin = made.begin
            hosts = self.program.hosts
            check_runs(host.instruction for host in hosts)
            check_fits(self.program)
            check_host_arrays(hosts)
            return made.all_of(self.ir)

    @cached_property
    def executable(self) -> Compiled:
        """Machine code in this process, which is the machine that it is made for.

        A program whose sizes change at run time elsewhere than at its boundary is left to the
        reference. Raises HloErrors for what cannot run.
        """
        if self.machine is not None:
            toolchain.check_runs_here(self.machine)
        check_values(self.module)
        module = self.optimised
        if self.padded is None and module.has_dynamic_sizes:
            check_runs(i for c in reachable_computations(module) for i in c.instructions)
            from hlo.backend.interpreted import InterpretedExecutable  # the reference's modules

            return InterpretedExecutable(module)
        check_arrays(self.static)
        check_windows(self.static)
        return self.linked(self.objects)

    def linked(
        self, objects: Sequence[bytes], counters: np.ndarray | None = None
    ) -> Executable | PaddedExecutable:
        """Object code of the program in this process. counters: a timed program's."""
        hosts = self.program.hosts
        host = None if all(step.is_handler for step in hosts) else _host_calls(self.program)
        handlers = _handler_records(hosts) if any(step.is_handler for step in hosts) else None
        result = result_shape(self.module if self.padded is None else self.static)
        labels = None
        if os.environ.get(PERF_MAP):
            from hlo.backend.perf_labels import labels as labelled

            labels = labelled(self.program, self.module.name)
        made = link(self.static, self.link_table, objects, host, counters, result, handlers, labels)
        if self.padded is None:
            return made
        from hlo.backend.padded import PaddedExecutable  # few programs have such sizes

        return PaddedExecutable(clone_module(self.module), self.padded, made)

    def keep(self, key: str) -> None:
        """Keep on disk what the module compiled to, under what `program_key` said of it.

        Not of host steps, which are Python, nor of what a pass failed on.
        """
        if isinstance(self.executable, Executable) and not (self.left_out or self.program.hosts):
            compilation_cache.store(key, self.link_table, self.objects)


def _host_calls(program: Program) -> HostCalls:
    from hlo.backend.host import HostCalls  # few programs have steps for the reference

    return HostCalls(program)


def _handler_records(hosts: Sequence[HostStep]) -> HandlerRecords:
    from hlo.backend.linking.handler_record import handler_records  # few programs have handlers

    return handler_records(hosts)
