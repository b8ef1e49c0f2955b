"""Toolchain: LLVM, initialised, and a target machine for this CPU; text in, object code out.

Chosen by CPU features, never by name (docs/measurements.md 1). Modules are compiled on several
threads, each with a context and a target machine of its own.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.ir.grouping import expected_us
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.isa.target import Target
from hlo.backend.linking import elf, llvm
from hlo.backend.linking.options import (
    AHEAD_MODEL,
    CODEGEN_LEVEL,
    GLUE_LEVEL,
    MODEL,
    OPTIONS,
    RISCV_MODEL,
    STATIC_MODEL,
)
from hlo.backend.linking.workers import Workers, in_parallel
from hlo.errors import HloError
from hlo.machine import Machine, described
from hlo.process.forking import inside, library_lock
from hlo.process.once import lock, once

# Of architectures that have a model of their own.
_MODELS = {"riscv64": RISCV_MODEL, "wasm32": STATIC_MODEL}
# LLVM would move bytes with instructions of the old encoding (insertq), each of which waits for the
# upper halves of vector registers: six of them made a loop of 200 instructions 25 times as long
# (Zen 3).
_UNWANTED = {"sse4a"}
# Lines of a module whose loops LLVM may unroll: those of short loops' functions, whose kernels
# have loops of few trips, so that all places are known then. Solvers of 60 steps a trip took up to
# 1.7 times as long without, and compile as fast.
MOST_UNROLLED = 5000

# Target machines that no thread uses now, by level, by what they make code for, and whether for a
# file.
_machines: dict[tuple[int, Machine | None, bool], list[llvm.TargetMachine]] = {}
_machines_lock = lock()
_options = list(OPTIONS)  # Those that LLVM has not been given yet.


@once
def initialise() -> None:
    """Set LLVM up once, which ends the process when an option is given twice. It has lists of its
    targets: nobody who uses llvmlite enters one meanwhile.
    """
    with inside(), library_lock() or contextlib.nullcontext():
        llvm.initialise_native()
        while _options:  # a fork after this finds none left, whatever it knows of the call
            llvm.set_option(_options.pop())


@once
def host_features() -> dict[str, bool]:
    """LLVM's names of the CPU's features, and whether each is there and of use."""
    more: tuple[str, ...] = ()
    if elf.processor() in ("aarch64", "arm64"):
        from hlo.backend.isa.arm_features import arm_features  # what LLVM does not ask there

        more = tuple(arm_features())
    with inside():
        found = llvm.processor_features()
    unwanted = dict.fromkeys(_UNWANTED & found.keys(), False)
    return found | dict.fromkeys(more, True) | unwanted


def host_target(mode: str = "strict") -> Target:
    """What kernels may use on this machine."""
    initialise()
    return Target(host_machine(), mode)


def check_runs_here(machine: Machine) -> None:
    """HloError where this processor lacks what code for a machine uses."""
    host = host_machine()
    if machine.architecture != host.architecture:
        raise HloError(
            "machine",
            f"{machine.name} is {machine.architecture}, expected {host.architecture}, as this "
            "machine is: code for others can be printed (hlo-opt --emit=asm), not run",
        )
    if missing := sorted(machine.features - host.features):
        raise HloError(
            "machine",
            f"{machine.name} has {', '.join(missing)}, expected features of this machine "
            f"({host.name}): code for others can be printed (hlo-opt --emit=asm), not run",
        )


@once
def host_machine() -> Machine:
    """This machine's description, with what this process may use of it."""
    features = {name for name, there in host_features().items() if there}
    if "amx-tile" in features:
        from hlo.process.tile_permission import may_use_tiles  # few processors have tiles

        if not may_use_tiles():
            features -= {name for name in features if name.startswith("amx")}
    with inside():
        processor = llvm.processor_name()
    return described(llvm.process_triple(), frozenset(features), processor)


@once
def initialise_all() -> None:
    """Set LLVM up for the instruction sets of other machines too."""
    initialise()
    with inside(), library_lock() or contextlib.nullcontext():
        llvm.initialise_all()


@once
def feature_text() -> str:
    """The host's features as LLVM's target machine wants them."""
    return ",".join(f"{'+' if on else '-'}{name}" for name, on in sorted(host_features().items()))


def features_of(machine: Machine) -> str:
    """A description's features as LLVM wants them."""
    dropped = (f"-{name}" for name in sorted(machine.dropped))
    return ",".join((*(f"+{name}" for name in sorted(machine.features)), *dropped))


@contextlib.contextmanager
def machine(
    level: int = CODEGEN_LEVEL, made_for: Machine | None = None, *, is_ahead: bool = False
) -> Iterator[llvm.TargetMachine]:
    """A target machine that no other thread uses meanwhile; within, no other thread forks.

    made_for: None for the host. is_ahead: its objects are for the system's linker. What is made
    once is asked for before the gate: the thread that makes it may stand there.
    """
    initialise()
    if made_for is None:
        triple, features = llvm.process_triple(), feature_text()
    else:
        initialise_all()
        triple = _checked_triple(made_for)
        features = features_of(made_for)
    with inside():
        with _machines_lock:
            free = _machines.setdefault((level, made_for, is_ahead), [])
            found = free.pop() if free else None
        if found is None:
            model = AHEAD_MODEL if is_ahead else MODEL
            if made_for is not None:
                model = _MODELS.get(made_for.architecture, model)
            found = llvm.TargetMachine(triple, features, level=level, is_jit=not is_ahead, **model)
        try:
            yield found
        finally:
            with _machines_lock:
                free.append(found)


def _checked_triple(machine: Machine) -> str:
    """The triple; HloError where LLVM has no code for it."""
    try:
        with inside():
            llvm.check_triple(machine.triple)
    except RuntimeError as error:
        raise HloError("machine", f"{machine.name}: triple {machine.triple!r}: {error}") from None
    return machine.triple


def optimised_text(module: IrModule) -> str:
    """The module as text after the middle-end."""
    with machine(made_for=module.machine):
        return str(parsed(module))


def parsed(
    module: IrModule, *, is_checked: bool = True, context: llvm.Context | None = None
) -> llvm.Module:
    """The module in LLVM's memory, after the middle-end where it wants it. In a `machine` only.

    is_checked: verified too, which finds what the parser lets pass. context: that of modules which
    will be one; None: one of its own.
    """
    text = _layout_text(module.machine) + module.text
    made = llvm.Module(text, context or llvm.Context())
    made.set_triple(module.machine.triple if module.machine else llvm.process_triple())
    if is_checked:
        made.verify()
    if module.optimised:
        is_short = module.text.count("\n") <= MOST_UNROLLED
        with machine(made_for=module.machine) as target:
            made.optimise(target, unrolls=is_short and not module.is_small)
    return made


def _layout_text(made_for: Machine | None) -> str:
    """What LLVM has to read first where addresses are not as wide as it takes them to be."""
    if made_for is None or made_for.address_bytes == 8:
        return ""
    with machine(made_for=made_for) as target:
        return f'target datalayout = "{target.data_layout()}"\n'


def level_of(module: IrModule) -> int:
    """The level of code generation for a module."""
    return GLUE_LEVEL if module.is_glue else CODEGEN_LEVEL


def object_code(module: IrModule) -> bytes:
    """The object file of one module. HLO_VERIFY_IR in the environment: verified before."""
    is_checked = bool(os.environ.get("HLO_VERIFY_IR"))
    with machine(level_of(module), module.machine) as target:
        return target.emit_object(parsed(module, is_checked=is_checked))


class Effort(Struct, frozen=True):
    """Seconds that LLVM takes for a module: to read its text, in the middle-end, for its code."""

    read: float
    middle: float
    code: float
    code_bytes: int

    @property
    def seconds(self) -> float:
        return self.read + self.middle + self.code


def effort(module: IrModule) -> Effort:
    """What a module costs by itself, once what all have in common is there."""
    object_code(module)
    with machine(level_of(module), module.machine) as target:
        start = time.perf_counter()
        parsed(replace(module, optimised=False), is_checked=False)
        before = time.perf_counter()
        ready = parsed(module, is_checked=False)
        between = time.perf_counter()
        body = target.emit_object(ready)
        end = time.perf_counter()
    read = before - start
    middle = max(0.0, between - before - read) if module.optimised else 0.0
    return Effort(read, middle, end - between, sum(n for _, n, code in sections(body) if code))


def sections(body: bytes) -> list[tuple[str, int, bool]]:
    """Name, bytes and whether it is code of every section of an object file that has bytes."""
    from llvmlite.binding import ObjectFileRef  # type: ignore[import-untyped]  # it has no types

    found = ObjectFileRef.from_data(body).sections()
    return [(s.name().decode("utf-8", "replace"), s.size(), s.is_text()) for s in found if s.size()]


def assembly(module: IrModule, *, is_verbose: bool = False) -> str:
    """The module as the target's assembly text. is_verbose: with LLVM's comments."""
    with machine(level_of(module), module.machine) as target:
        target.set_asm_verbosity(is_verbose=is_verbose)
        try:
            return target.emit_assembly(parsed(module))
        finally:
            target.set_asm_verbosity(is_verbose=False)


def object_codes(modules: Sequence[IrModule], workers: Workers | None = None) -> list[bytes]:
    """The object files of all modules. workers: who are at others of the program."""
    costs = [expected_us(module) for module in modules]
    return in_parallel(lambda number: object_code(modules[number]), costs, workers)
