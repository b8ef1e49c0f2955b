"""AheadOfTime: a program as files that need no Python: an object, its header, its texts.

    Compilation --> link table, ir --interface--> header
                                   --call from C, joined--> object, assembly, LLVM's text

It is planned as a program of this process is, from the same module by the same stages, for a
machine that is described and never looked at: its bytes depend on the module and on what was asked
for alone. Only what loads code into a process is different: tables that are filled then are
computed instead, runs are not stopped, and what only this process could do is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from hlo.backend.ahead import generation
from hlo.backend.ahead.generation import Part
from hlo.backend.ahead.header import c_header, cpp_header
from hlo.backend.ahead.interface import (
    Interface,
    call_layout,
    check_name,
    identifier,
    interface,
)
from hlo.backend.ahead.level import Level
from hlo.backend.ahead.options import EMBEDDED, LEAST, Options
from hlo.backend.ahead.sizes import SizeTable, size_table
from hlo.backend.ahead.weights import Weights, weights
from hlo.backend.compilation import Compilation
from hlo.backend.entry import c_call_ir, cancel_ir, host_loops_ir, own_threads_ir
from hlo.backend.entry.c_call_ir import CALLBACK, PTHREADS, CallLayout
from hlo.backend.ir.ir_module import PARALLEL, WAKE, IrModule
from hlo.backend.isa.target import Target
from hlo.backend.linking import toolchain
from hlo.backend.planning.families import unprepared_makers
from hlo.ir.module import Module
from hlo.machine import NAMED, Machine
from hlo.process.once import cached_property, lock

# What the programs for several machines have in common, besides constants.
_SHARED = (PARALLEL.symbol, WAKE.symbol, own_threads_ir.THREADS.symbol, *cancel_ir.SYMBOLS)


class AheadOfTime:
    """A verified module, the machines that it is for, and what became of it so far.

    machines: one, or several to choose from at run time, the least first. name: of the function in
    C, the module's where not given, behind a prefix. Raises HloErrors for a name that C cannot have
    and for what cannot run without this process.
    """

    def __init__(
        self,
        module: Module,
        machines: Sequence[Machine],
        options: Options,
        *,
        name: str | None = None,
        prefix: str = "",
    ) -> None:
        machines = [machine.in_mode(options.mode) for machine in machines]
        options.check(machines)
        self.name = check_name(prefix + (name or identifier(module.name)))
        self.module = module
        self.machines = tuple(machines)
        self.options = options
        self.lock = lock()

    @property
    def machine(self) -> Machine:
        """The least one."""
        return self.machines[0]

    def check(self) -> None:
        """Raise now what would be raised for any of the files."""
        assert self.interface.name == self.name, "an interface, or an error"

    @cached_property
    def levels(self) -> tuple[Level, ...]:
        """The program for each machine, from one module."""
        options = self.options
        first = Compilation(
            self.module, passes=options.passes, mode=options.mode, machine=self.machine, cache=False
        )
        first.threads = options.planned_threads
        if self._many:
            first.makers = unprepared_makers
        plain = Target(
            self.machine, options.mode, fills=False, is_small=options.is_small, seeks_lapack=False
        )
        targets = [replace(plain, machine=machine) for machine in self.machines]
        vars(first)["target"] = targets[0]
        others = [first.with_target(target) for target in targets[1:]]
        return tuple(
            Level(made, machine, options)
            for made, machine in zip((first, *others), self.machines, strict=True)
        )

    @cached_property
    def _weights(self) -> Weights:
        """The constants of all levels."""
        return weights([level.link_table for level in self.levels])

    @cached_property
    def interface(self) -> Interface:
        """The call from C."""
        made = self.levels[0].made
        called = [e.symbol for e in self.levels[0].externs.values()]
        return interface(
            made.module, made.padded, [level.link_table for level in self.levels],
            self._weights.size_bytes, self.name, self.machines, called, self.options,
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
        return self._weights.data

    @property
    def _constants(self) -> bytes:
        """Of the object."""
        return self.weights if self.options.weights == EMBEDDED else b""

    @property
    def exported(self) -> tuple[str, ...]:
        """The names that the linker sees."""
        return self._layout.exported

    @property
    def _layout(self) -> CallLayout:
        """The first level's."""
        return self._layouts[0]

    @cached_property
    def _layouts(self) -> tuple[CallLayout, ...]:
        """Where each level's call from C puts addresses."""
        return tuple(
            call_layout(
                self.interface,
                level.link_table,
                level.machine,
                starts,
                level.label if self._many else "",
            )
            for level, starts in zip(self.levels, self._weights.starts, strict=True)
        )

    @property
    def _many(self) -> bool:
        """Whether there are several machines to choose from."""
        return len(self.machines) > 1

    @property
    def _base(self) -> Machine:
        """What all code may count on that is not of one level."""
        return replace(NAMED[LEAST], triple=self.machine.triple) if self._many else self.machine

    @cached_property
    def _own_parts(self) -> tuple[Part, ...]:
        """The call from C and who runs loops, with the program's modules; of several machines'
        programs each a part."""
        layout, base, is_small = self._layouts[0], self._base, self.options.is_small
        constants = generation.constants_text(self._constants)
        if not self._many:
            call = c_call_ir.text(layout, constants)
            modules = (*self._shared(call), *self.levels[0].ir)
            return (Part(modules, self.exported, is_small=is_small),)
        pairs = list(zip(self._layouts, self.levels, strict=True))
        versions = [(own, level.machine.features) for own, level in pairs]
        call = c_call_ir.choosing_text(versions, constants, asks_linux=base.system == "linux")
        known = (*self.exported, *_SHARED, layout.constants_symbol)
        parts = [Part(self._shared(call), known, is_small=is_small)]
        declared = "external constant i8" if constants else ""
        for own, level in pairs:
            text = c_call_ir.text(own, declared)
            module = IrModule(text, (own.body.symbol,), machine=level.machine)
            features = toolchain.features_of(level.machine)
            modules = (module, *level.ir)
            parts.append(
                Part(modules, (own.body.symbol,), level.label, features, is_small=is_small)
            )
        return tuple(parts)

    def _shared(self, call: str) -> tuple[IrModule, ...]:
        """The module of the call, and of who runs the parts of loops."""
        base, is_watched = self._base, self.options.is_cancellable
        modules = [IrModule(f'source_filename = "{self.name}"\n{call}', (self.name,))]
        if self.options.threads == PTHREADS:
            set_threads = self._layouts[0].set_threads
            pool = own_threads_ir.text(
                set_threads, base.architecture, base.system, is_watched=is_watched
            )
            modules.append(IrModule(pool, (PARALLEL.symbol,)))
        elif self.options.threads == CALLBACK:
            isa = self.levels[0].made.target.isa
            host = host_loops_ir.text(isa, is_watched=is_watched)
            modules.append(IrModule(host, (PARALLEL.symbol,)))
        if is_watched:
            modules.append(IrModule(cancel_ir.text(), cancel_ir.SYMBOLS))
        return tuple(replace(m, machine=base) for m in modules)

    @cached_property
    def _own_object(self) -> bytes:
        """The object of these, without long constants."""
        return generation.object_code(self._own_parts, self.exported, self._base)

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """All modules, with what the machines lack and the C library would give."""
        copies = self.options.is_freestanding
        lacking = generation.lacking(self._own_object, self._base, copies=copies)
        if lacking is None:
            return self._own_parts
        return (*self._own_parts, generation.library(lacking))

    @cached_property
    def object(self) -> bytes:
        """The relocatable object file, of the form that the machine's triple says."""
        body = self._own_object
        if self.parts is not self._own_parts:
            *own, library = self.parts
            body = generation.extended(body, own, library, self.exported, self._base)
        return generation.placed(body, self._constants)

    @cached_property
    def size_table(self) -> SizeTable:
        """What the object takes in memory, by symbol."""
        return size_table(self.object)

    @cached_property
    def assembly(self) -> str:
        """The machine code as text; constants of more than generation.TEXT_BYTES are left out."""
        return generation.assembly(self.parts, self.exported, self._base)

    @cached_property
    def llvm(self) -> str:
        """LLVM's text of what becomes the object; such constants are left out here too."""
        return generation.llvm_text(self.parts, self.exported, self._base)
