"""AheadOfTime: a program as files that need no Python: an object, its header, its texts.

    Compilation --> link table, ir --interface--> header
                                   --call from C, joined--> object, assembly, LLVM's text

It is planned as a program of this process is, from the same module by the same stages, for a
machine that is described and never looked at: its bytes depend on the module and on what was asked
for alone. Only what loads code into a process is different: tables that are filled then are
computed instead, runs are not stopped, and what only this process could do is refused.
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.backend.ahead import generation
from hlo.backend.ahead.externs import externs
from hlo.backend.ahead.header import c_header, cpp_header
from hlo.backend.ahead.interface import (
    Interface,
    call_layout,
    check_name,
    constant_bytes,
    identifier,
    interface,
)
from hlo.backend.ahead.options import EMBEDDED, Options
from hlo.backend.ahead.refusals import check_ahead
from hlo.backend.ahead.sizes import SizeTable, size_table
from hlo.backend.compilation import Compilation
from hlo.backend.entry import c_call_ir, host_loops_ir, own_threads_ir
from hlo.backend.entry.c_call_ir import CALLBACK, PTHREADS, CallLayout
from hlo.backend.entry.llvm_ir import emit
from hlo.backend.ir.ir_module import PARALLEL, IrModule
from hlo.backend.isa.target import Target
from hlo.backend.linking.link_table import LinkTable
from hlo.backend.linking.tabulation import link_table
from hlo.backend.planning.fitting import check_windows
from hlo.backend.planning.program import Program
from hlo.backend.refusals import check_runs
from hlo.ir.module import Module
from hlo.machine import Machine
from hlo.once import cached_property, lock

# Processors that kernels are cut for, whatever the building machine has: its objects are the same.
WORKERS = 2


class AheadOfTime:
    """A verified module, the machine that it is for, and what became of it so far.

    name: of the function in C, the module's where not given, behind a prefix. Raises HloErrors for
    a name that C cannot have and for what cannot run without this process.
    """

    def __init__(
        self,
        module: Module,
        machine: Machine,
        options: Options,
        *,
        name: str | None = None,
        prefix: str = "",
    ) -> None:
        options.check(machine)
        machine = machine.in_mode(options.mode)
        self.name = check_name(prefix + (name or identifier(module.name)))
        self.module = module
        self.machine = machine
        self.options = options
        self._made = Compilation(
            module, passes=options.passes, mode=options.mode, machine=machine, cache=False
        )
        self._made.threads = options.planned_threads
        vars(self._made)["target"] = Target(machine, options.mode, fills=False)
        self.lock = lock()

    def check(self) -> None:
        """Raise now what would be raised for any of the files."""
        assert self.interface.name == self.name, "an interface, or an error"

    @cached_property
    def program(self) -> Program:
        """Steps on a table of addresses; nobody stops them. HloErrors for what is refused."""
        static = self._made.static
        check_windows(static)
        program = self._made.program
        given = externs(program)
        check_runs(host.instruction for host in program.hosts if host.number not in given)
        check_ahead(program, given, self.options.lapack)
        wakes_pool = program.wakes_pool and self.options.threads == PTHREADS
        return replace(program, watched=False, wakes_pool=wakes_pool)

    @cached_property
    def link_table(self) -> LinkTable:
        """The program's places and constants."""
        return link_table(self.program)

    @cached_property
    def interface(self) -> Interface:
        """The call from C."""
        made = self._made
        functions = [e.symbol for e in externs(self.program).values()]
        return interface(
            made.module, made.padded, self.link_table, self.name, self.machine, functions,
            self.options,
        )  # fmt: skip

    @cached_property
    def header(self) -> str:
        """The header for C, and for C++ too."""
        return c_header(self.interface)

    @cached_property
    def cpp_header(self) -> str:
        """What C++ may include beside it."""
        return cpp_header(self.interface)

    @cached_property
    def weights(self) -> bytes:
        """All constants: what the object holds, or what each call is given as its last input."""
        return constant_bytes(self.link_table)

    @property
    def _constants(self) -> bytes:
        """Of the object."""
        return self.weights if self.options.weights == EMBEDDED else b""

    @property
    def exported(self) -> tuple[str, ...]:
        """The names that the linker sees."""
        return self._layout.exported

    @cached_property
    def _own_ir(self) -> tuple[IrModule, ...]:
        """The call from C, then the program's modules."""
        made, layout, isa = self._made, self._layout, self._made.target.isa
        call = c_call_ir.text(layout, generation.constants_text(self._constants))
        modules = [IrModule(f'source_filename = "{self.name}"\n{call}', (self.name,))]
        flushed = isa.float_mode if made.is_fast else None
        hands_frame = self.options.threads == CALLBACK
        modules += emit(
            self.program, flushed=flushed, workers=WORKERS, hands_frame=hands_frame,
            externs=externs(self.program),
        )  # fmt: skip
        if self.options.threads == PTHREADS:
            machine = self.machine
            pool = own_threads_ir.text(layout.set_threads, machine.architecture, machine.system)
            modules.append(IrModule(pool, (PARALLEL.symbol,)))
        elif hands_frame:
            modules.append(IrModule(host_loops_ir.text(isa), (PARALLEL.symbol,)))
        return tuple(replace(m, machine=self.machine) for m in modules)

    @cached_property
    def _layout(self) -> CallLayout:
        """Where the call from C puts addresses."""
        return call_layout(self.interface, self.link_table)

    @cached_property
    def _own_object(self) -> bytes:
        """The object of these, without long constants."""
        return generation.object_code(self._own_ir, self.exported, self.machine)

    @cached_property
    def ir(self) -> tuple[IrModule, ...]:
        """All modules, with what the machine lacks and the C library would give."""
        copies = self.options.is_freestanding
        lacking = generation.lacking(self._own_object, self.machine, copies=copies)
        return self._own_ir if lacking is None else (*self._own_ir, lacking)

    @cached_property
    def object(self) -> bytes:
        """The relocatable object file, of the form that the machine's triple says."""
        body = self._own_object
        if self.ir is not self._own_ir:
            body = generation.object_code(self.ir, self.exported, self.machine)
        return generation.placed(body, self._constants)

    @cached_property
    def size_table(self) -> SizeTable | None:
        """What the object takes in memory, by symbol; None of an object that is not read here."""
        return size_table(self.object)

    @cached_property
    def assembly(self) -> str:
        """The machine code as text; constants of more than generation.TEXT_BYTES are left out."""
        return generation.assembly(self.ir, self.exported, self.machine)

    @cached_property
    def llvm(self) -> str:
        """LLVM's text of what becomes the object; such constants are left out here too."""
        return generation.llvm_text(self.ir, self.exported, self.machine)
