"""Level: a program ahead of time for one machine; an object holds one, or several to choose from.

Compilation, machine, Options --Level--> Program -> LinkTable, modules of IR
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.ahead.externs import externs
from hlo.backend.ahead.interface import identifier
from hlo.backend.ahead.options import Options
from hlo.backend.ahead.refusals import check_ahead
from hlo.backend.compilation import Compilation
from hlo.backend.entry.c_call_ir import CALLBACK, PTHREADS
from hlo.backend.entry.entry_ir import Extern
from hlo.backend.entry.llvm_ir import emit
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.linking.link_table import LinkTable
from hlo.backend.linking.tabulation import link_table
from hlo.backend.planning.fitting import check_windows
from hlo.backend.planning.program import Program
from hlo.backend.planning.steps import program_of
from hlo.backend.planning.team import Team
from hlo.backend.refusals import check_runs
from hlo.machine import Machine
from hlo.process.once import cached_property, lock

WORKERS = 2  # for whom kernels are cut: that many compile them, whatever the building machine has


class Level:
    """What became of a compilation so far. made: for that machine."""

    def __init__(self, made: Compilation, machine: Machine, options: Options) -> None:
        self.made = made
        self.machine = machine
        self.options = options
        self.lock = lock()

    @property
    def label(self) -> str:
        """The machine's name as a part of symbols."""
        return identifier(self.machine.name)

    @cached_property
    def externs(self) -> dict[int, Extern]:
        """Host steps that are functions of whoever links."""
        return externs(self.made.program)

    @cached_property
    def program(self) -> Program:
        """Steps on a table of addresses. HloErrors for what is refused."""
        check_windows(self.made.static)
        program, given = self.made.program, self.externs
        if program.team is Team.AWAKE:  # nobody keeps a caller's threads awake
            alone = program_of(self.made.buffers, 1, self.made.target.machine)
            program = replace(alone, threads=program.threads)
        check_runs(host.instruction for host in program.hosts if host.number not in given)
        check_ahead(program, given, self.options.lapack)
        team = program.team if self.options.threads == PTHREADS else Team.ALONE
        watched = program.watched and self.options.is_cancellable
        return replace(program, watched=watched, team=team)

    @cached_property
    def link_table(self) -> LinkTable:
        """The program's places and constants."""
        return link_table(self.program)

    @cached_property
    def ir(self) -> tuple[IrModule, ...]:
        """The program's modules, with the entry."""
        modules = emit(
            self.program,
            flushed=self.made.target.isa.float_mode if self.made.is_fast else None,
            workers=WORKERS,
            hands_frame=self.options.threads == CALLBACK,
            externs=self.externs,
            is_small=self.options.is_small,
        )
        is_small = self.options.is_small
        return tuple(replace(m, machine=self.machine, is_small=is_small) for m in modules)
