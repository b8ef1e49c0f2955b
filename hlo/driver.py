"""The straight line: one function per public verb, each line one arrow.

    text -> module -> verified -> optimised -> schedule -> buffers -> program -> LLVM IR
         -> machine code -> arrays

The command line, the examples and the tests call this file and nothing deeper. It imports what
every use needs, and each other stage when it is asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hlo.errors import HloError
from hlo.forking import GATE
from hlo.garbage import uncollected
from hlo.ir.graph import clone_module
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.parser import spans
from hlo.parser.parse import parse as _parse
from hlo.source import Span

if TYPE_CHECKING:
    from hlo.backend.memory_map import MemoryMap
    from hlo.machine import Machine
    from hlo.passes.manager import Manager
    from hlo.printer.options import PrintOptions
    from hlo.runtime.executable import Executable
    from hlo.verifier.lint import Warned

MODES = ("strict", "fast")


@uncollected()
def parse(text: str, name: str = "<string>") -> Module:
    """The module that a text says: syntax only, as XLA's parser. Raises HloErrors, up to 20."""
    GATE.check()
    return _parse(text, name)


def to_text(module: Module, options: PrintOptions | None = None) -> str:
    """The module's text; by default the form that always reads back."""
    chosen = options or import_module("hlo.printer.options").PrintOptions()
    return str(import_module("hlo.printer.printer").print_module(module, chosen))


@uncollected()
def verify(module: Module, layout_sensitive: bool = False) -> None:
    """None, or raises HloErrors with every problem found."""
    GATE.check()
    import_module("hlo.verifier.verify").verify(
        module, layout_sensitive=layout_sensitive, place=place
    )


def lint(module: Module, disabled: Collection[str] = ()) -> list[Warned]:
    """Advice about a module that verifies; `disabled`: codes to leave out."""
    found: list[Warned] = import_module("hlo.verifier.lint").lint(module, disabled=disabled)
    return found


def place(instruction: Instruction, role: str) -> Span | None:
    """Where in the text the part of an instruction is that a Violation's role names."""
    if instruction.source is None:
        return None
    if role.startswith("operand ") and role[8:].isdigit():
        return spans.operand_span(instruction, int(role[8:]))
    if role == "result":
        return spans.shape_span(instruction)
    if role in instruction.attributes:
        return spans.attribute_span(instruction, role)
    return spans.opcode_span(instruction)


@uncollected()
def optimize(module: Module, passes: str = "default", manager: Manager | None = None) -> Module:
    """A new module, rewritten by a pipeline: names, groups and pipelines as on the command line."""
    GATE.check()
    steps = import_module("hlo.passes.pipeline").parse_pipeline(passes)
    optimized = clone_module(module)
    (manager or new_manager(verify)).run(optimized, steps)
    return optimized


@uncollected()
def compile(
    module: Module,
    passes: str = "default",
    mode: str = "strict",
    threads: int | None = None,
    cache: bool = True,
    replicas: int | None = None,
    partitions: int | None = None,
    machine: Machine | None = None,
) -> Executable:
    """Machine code that runs here. Raises HloErrors when the module does not verify.

    machine: a description of less than this machine has (hlo/machine.py); None: of all it has.
    """
    GATE.check()
    if mode not in MODES:
        raise HloError("arguments", f"compile: mode is {mode!r}, expected one of {MODES}")
    check_devices(module, replicas, partitions)
    chosen = "fast" if (mode, passes) == ("fast", "default") else passes
    key = ""
    if cache:
        kept_programs = import_module("hlo.backend.linking.installing")
        key = kept_programs.program_key(
            module, passes=chosen, mode=mode, threads=threads, machine=machine
        )
        kept: Executable | None = kept_programs.recalled(module, key)
        if kept is not None:
            return kept  # verified before it was kept
    verify(module)
    ordered = import_module("hlo.backend.planning.result_order").in_memory_order(module)
    optimized, failed = _optimized_to_run(ordered, chosen)
    if os.environ.get("HLO_VERIFY_IR"):  # the tests': passes and kernels are ours to prove there
        verify(optimized)
    result = import_module("hlo.backend.linking.installing").result_shape(module)
    executable: Executable = backend().compile_module(
        optimized, passes=chosen, mode=mode, threads=threads, cache=cache,
        key="" if failed else key, result=result, machine=machine,
    )  # fmt: skip
    return executable


def _optimized_to_run(module: Module, passes: str) -> tuple[Module, tuple[str, ...]]:
    """A new module, and the passes that failed and were left out, with a warning for each."""
    steps = import_module("hlo.passes.pipeline").parse_pipeline(passes)
    recovery = import_module("hlo.passes.recovery")
    found = recovery.optimized(partial(clone_module, module), steps)
    return found.module, found.left_out


def check_devices(module: Module, replicas: int | None, partitions: int | None) -> None:
    """Compiled code runs on one device; `evaluate_devices` is the engine for several."""
    for what, count in (("replicas", replicas), ("partitions", partitions)):
        if count not in (None, 1):
            raise HloError(
                "unsupported",
                f"compile: {what} is {count}, expected 1: compiled code runs on one device",
                help="hlo.evaluate_devices runs several devices on the reference interpreter",
            )


def evaluate(
    module: Module, *arguments: object, max_steps: int | None = None, **surroundings: Any
) -> object:
    """The reference's result. Raises HloErrors when the module does not verify.

    Further keywords (seed, infeed, outfeed, channels, progress) as in hlo/interpreter/evaluate.py.
    """
    verify(module)
    reference = import_module("hlo.interpreter.evaluate")
    return reference.evaluate(module, *arguments, max_steps=max_steps, **surroundings)


def evaluate_devices(
    module: Module,
    arguments: Sequence[Sequence[object]],
    replicas: int | None = None,
    partitions: int | None = None,
    **surroundings: Any,
) -> list[object]:
    """The results of all devices; arguments[g] are those of g = replica * partitions + partition.

    Raises HloErrors when the module does not verify, HloError `deadlock` when devices wait for
    each other. Further keywords as in hlo/interpreter/evaluate.py.
    """
    verify(module)
    reference = import_module("hlo.interpreter.evaluate")
    made: list[object] = reference.evaluate_devices(
        module, arguments, replicas=replicas, partitions=partitions, **surroundings
    )
    return made


def tokens_text(text: str) -> str:
    """The tokens of a text, one a line: place, kind, characters. Raises HloError at a bad one."""
    return str(import_module("hlo.parser.tokens").print_tokens(text))


def emit_stage(
    module: Module, stage: str, mode: str = "strict", machine: Machine | None = None
) -> str:
    """One stage of an optimised module as text.

    schedule, buffers, loops, program, llvm, llvm-opt, asm.

    machine: of which code is shown; None: the one that it runs on.
    """
    text: str = backend().emit_stage(module, stage, mode, machine)
    return text


def annotated_assembly(
    module: Module, kernel: str, mode: str = "strict", machine: Machine | None = None
) -> str:
    """One kernel of an optimised module as assembly beside HLO names; raises HloError for none."""
    return str(import_module("hlo.backend.annotate").annotated(module, kernel, mode, machine))


def kernel_loops(
    module: Module,
    kernel: str | None = None,
    mode: str = "strict",
    machine: Machine | None = None,
    *,
    remarks: bool = False,
) -> str:
    """The loops of an optimised module's kernels, or of one, as text; raises HloError for none.

    remarks: with the reason of each decision, and the estimate that won.
    """
    return str(backend().kernel_loops(module, kernel, mode, machine, remarks=remarks))


def stage_texts(
    module: Module, mode: str = "strict", machine: Machine | None = None
) -> Iterator[tuple[str, str]]:
    """(file name, text) of every stage after the passes, for --dump-to."""
    stages: Iterator[tuple[str, str]] = backend().stage_texts(module, mode, machine)
    return stages


def profile(
    module: Module, *arguments: object, passes: str = "default", threads: int | None = None
) -> str:
    """Where one run's time goes: a table of steps joined to HLO instructions and lines."""
    verify(module)
    optimized, _ = _optimized_to_run(module, passes)
    made = import_module("hlo.backend.profile").profile(optimized, *arguments, threads=threads)
    return str(made)


def memory(
    module: Module, passes: str = "default", mode: str = "strict", threads: int | None = None
) -> MemoryMap:
    """Peak memory, and every buffer with the instruction and line that made it; nothing is run."""
    verify(module)
    optimized, _ = _optimized_to_run(module, passes)
    made = import_module("hlo.backend.memory_map").memory_map(optimized, mode=mode, threads=threads)
    found: MemoryMap = made
    return found


def host_machine() -> Machine:
    """The description of the machine that this process runs on."""
    machine: Machine = import_module("hlo.backend.linking.toolchain").host_machine()
    return machine


def backend() -> ModuleType:
    """The backend, imported at first use: LLVM's library takes 50 ms to load."""
    return import_module("hlo.backend.backend")


def new_manager(check: Callable[[Module], None] | None = None) -> Manager:
    """A pass manager; passes are imported at first use, for they take as long as a small parse."""
    manager: Manager = import_module("hlo.passes.manager").Manager(verify=check)
    return manager
