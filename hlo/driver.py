"""The straight line: one function per public verb, each line one arrow.

    text -> module -> verified -> optimised -> schedule -> buffers -> program -> LLVM IR
         -> machine code -> arrays

The command line, the examples and the tests call this file and nothing deeper. It imports what
every use needs, and each other stage in the verb that asks for it: all stages together take as long
to import as a thousand lines to parse.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from hlo.choices import MODES
from hlo.errors import HloError
from hlo.ir.graph import clone_module
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.parser.parse import parse as _parse
from hlo.process.forking import GATE
from hlo.process.garbage import uncollected
from hlo.runtime.threads import thread_count
from hlo.source import Span

if TYPE_CHECKING:
    from hlo.backend.ahead.ahead_of_time import AheadOfTime
    from hlo.backend.compilation import Compilation, Compiled
    from hlo.backend.profiling.profile import Profile
    from hlo.backend.profiling.timeline import Slice
    from hlo.backend.stages.memory_map import MemoryMap
    from hlo.formats.program import Program
    from hlo.machine import Machine
    from hlo.passes.manager import Manager
    from hlo.printer.options import PrintOptions
    from hlo.runtime.executable import Weights
    from hlo.verifier.lint import Warned

# The machine that ahead-of-time code is for, on whichever machine it is made.
AHEAD_TARGET = "x86-64-v3"


@uncollected()
def parse(text: str, name: str = "<string>") -> Module:
    """The module that a text says: syntax only, as XLA's parser. Raises HloErrors, up to 20.

    name: of the text, in errors.

    >>> hlo.parse("HloModule m ENTRY e { ROOT x = f32[3] parameter(0) }").entry.root.shape.dims
    (3,)
    """
    GATE.check()
    return _parse(text, name)


def read(path: str, wanted: str | None = None) -> Module:
    """The module in a file, an archive or a folder of dumps, whatever form it has; `-`: stdin.

    wanted: the name of a module, or a part of one, where there are several. Raises HloErrors.

    >>> hlo.read("examples/axpy.hlo").name
    'axpy'
    """
    return read_program(path, wanted).module


@uncollected()
def read_program(path: str, wanted: str | None = None) -> Program:
    """As `read`, with the arguments and the result that a snapshot has recorded."""
    GATE.check()
    from hlo.formats.program import read_plain

    found, data = read_plain(path)
    if found is not None and wanted is None:
        return found
    from hlo.formats.reading import candidates, chosen

    return chosen(candidates(path, data), path, wanted).read()


def readers(path: str) -> list[Callable[[], Module]]:
    """For each module in a path, what reads it; a file that holds one is read as `read` does."""
    return [lambda p=p: p().module for p in program_readers(path)]  # type: ignore[misc]  # bound now


def program_readers(path: str) -> list[Callable[[], Program]]:
    """The same, with what snapshots have recorded."""
    from hlo.formats.reading import candidates

    found = candidates(path)
    if len(found) < 2 and path != "-":
        return [lambda: read_program(path)]
    return [c.read for c in found]


def write(module: Module, form: str) -> bytes:
    """A module in one of the forms of hlo/formats/writing.py: text, pb, pbtxt, json, stablehlo.

    Raises HloErrors for another form, and for what a form cannot hold.

    >>> hlo.write(hlo.read("examples/axpy.hlo"), "text")[:14]
    b'HloModule axpy'
    """
    from hlo.formats.writing import written

    return written(module, form)


def to_text(module: Module, options: PrintOptions | None = None) -> str:
    """The module's text; by default the form that always reads back."""
    from hlo.printer.printer import print_module

    return print_module(module, options)


@uncollected()
def verify(module: Module, layout_sensitive: bool = False) -> None:
    """None, or raises HloErrors with every problem found.

    layout_sensitive: layouts must agree too, as after layout assignment.

    >>> hlo.verify(hlo.read("examples/axpy.hlo"))
    """
    GATE.check()
    from hlo.verifier import verify as verifier

    verifier.verify(module, layout_sensitive=layout_sensitive, place=place)


def lint(module: Module, disabled: Collection[str] = ()) -> list[Warned]:
    """Advice about a module that verifies; `disabled`: codes to leave out.

    >>> hlo.lint(hlo.read("examples/axpy.hlo"))
    []
    """
    from hlo.verifier import lint as linter

    return linter.lint(module, disabled=disabled)


def place(instruction: Instruction, role: str) -> Span | None:
    """Where in the text the part of an instruction is that a Violation's role names."""
    from hlo.parser import spans  # for errors alone

    return spans.role_span(instruction, role)


@uncollected()
def optimize(module: Module, passes: str = "default", manager: Manager | None = None) -> Module:
    """A new module, rewritten by a pipeline: names, groups and pipelines as on the command line.

    manager: verifies and tells observers; None: one that verifies after each change. Raises
    HloError `unknown-pass` or `pipeline` for what is no pipeline, HloErrors for what a pass breaks.

    >>> hlo.optimize(hlo.read("examples/axpy.hlo"), "fusion,dce").entry.root.opcode
    'fusion'
    """
    GATE.check()
    _check_ways("optimize", passes, MODES[0])
    from hlo.passes.manager import Manager
    from hlo.passes.pipeline import parse_pipeline

    optimized = clone_module(module)
    (manager or Manager(verify=verify)).run(optimized, parse_pipeline(passes))
    return optimized


@uncollected()
def compile(
    module: Module | Any,
    passes: str = "default",
    mode: str = "strict",
    threads: int | None = None,
    cache: bool = True,
    replicas: int | None = None,
    partitions: int | None = None,
    machine: Machine | str | None = None,
    callbacks: Sequence[Callable[..., object]] | None = None,
) -> Compiled:
    """Machine code that runs here. Raises HloErrors when the module does not verify.

    module: or what JAX has lowered: a Lowered, an Exported, an XlaComputation (the extra `jax`).
    passes: as for `optimize`. mode: "strict", or "fast" (inexact rewrites, denormals are zeros).
    threads: at most so many; None: HLO_NUM_THREADS, else what the process may use.
    cache: look for the code in this process's memory and on disk, and keep it there.
    replicas, partitions: 1 or None. callbacks: the functions that the program's Python callbacks
    name by their numbers. machine: less than this machine has: a description (hlo/machine.py) or
    the name of one; None: all that it has.

    >>> axpy = hlo.compile(hlo.read("examples/axpy.hlo"))
    >>> x = np.arange(1024, dtype=np.float32)
    >>> axpy(np.float32(2), x, x)[:4]
    array([0., 3., 6., 9.], dtype=float32)
    """
    GATE.check()
    _check_ways("compile", passes, mode)
    if not isinstance(module, Module):
        from hlo.formats.jax_program import module_of_jax

        module = module_of_jax(module)
    if machine is not None:
        from hlo.given_machines import machine_of

        machine = machine_of(machine)
    if callbacks is not None:
        from hlo.formats.callbacks import enter_callbacks

        module = clone_module(module)
        enter_callbacks(module, callbacks)
    check_devices(module, replicas, partitions)
    return _bindable(
        module,
        partial(
            _compiled, passes=passes, mode=mode, threads=thread_count(threads), machine=machine,
            cache=cache,
        ),
    )  # fmt: skip


def _check_ways(verb: str, passes: object, mode: object) -> None:
    """HloError for a pipeline that is no text, and for a mode that there is not."""
    if not isinstance(passes, str):
        what = f"{verb}: passes is {passes!r}, expected names as on the command line"
        raise HloError("arguments", what, help='"" runs none')
    if mode not in MODES:
        raise HloError("arguments", f"{verb}: mode is {mode!r}, expected one of {MODES}")


def _bindable(module: Module, compiled: Callable[[Module], Compiled]) -> Compiled:
    """The module compiled, and able to be compiled with weights bound."""
    made = compiled(module)
    made.binder = partial(_bound, module, module.version, compiled)
    return made


@uncollected()
def _bound(
    module: Module, version: object, compiled: Callable[[Module], Compiled], weights: Weights
) -> Compiled:
    """The program of a module with weights bound, compiled as this version of it was."""
    GATE.check()
    from hlo.tools.cases.binding import bind

    if module.version != version:
        message = f"bind: {module.name} was edited after it was compiled, expected it as it was"
        raise HloError("arguments", message, help="compile the module anew, then bind")
    return _bindable(bind(module, weights), compiled)


def _compiled(
    module: Module, *, passes: str, mode: str, threads: int, machine: Machine | None, cache: bool
) -> Compiled:
    """What the cache has kept of the module, or a compilation, which it keeps."""
    key = ""
    if cache and not os.environ.get("HLO_PERF_MAP"):  # a kept program knows no names of kernels
        from hlo.backend.linking.installing import cached_program, program_key

        key = program_key(module, passes=passes, mode=mode, threads=threads, machine=machine)
        kept = cached_program(module, key)
        if kept is not None:
            return kept  # verified before it was kept
    from hlo.backend.compilation import Compilation

    verify(module)
    made = Compilation(
        module, passes=passes, mode=mode, threads=threads, machine=machine, cache=cache
    )
    if os.environ.get("HLO_VERIFY_IR"):  # the tests': passes and kernels are ours to prove there
        verify(made.optimised)
    executable = made.executable
    if key:
        made.keep(key)
    return executable


@uncollected()
def compile_ahead(
    module: Module,
    target: Machine | str | Sequence[Machine | str] = AHEAD_TARGET,
    name: str | None = None,
    prefix: str = "",
    passes: str = "default",
    mode: str = "strict",
    threads: str = "none",
    max_threads: int = 8,
    lapack: str = "none",
    weights: str = "embedded",
    freestanding: bool = False,
    cancellable: bool = False,
    optimize: str = "speed",
) -> AheadOfTime:
    """The module as files that need no Python: its `object`, `header`, `cpp_header`, `assembly`,
    `llvm`, each made when it is asked for.

    target: a machine (hlo/machine.py) or the name of one; the one that this runs on is not looked
    at. Several of x86-64: calls run what the processor has, and give an error where it has none.
    name: of the function in C, by default the module's; prefix: what it begins with.
    threads: "none", "pthreads" or "callback": who runs parallel loops, planned for max_threads.
    lapack: "fortran" leaves its routines to the linker. weights: "separate" makes all constants
    the last input of each call, with the bytes that `weights` gives. freestanding: memcpy and
    memset are the object's own too. cancellable: a word of the caller's ends calls. optimize:
    "size" for less code, by loops that are unrolled and versioned less. Raises HloErrors where the
    module does not verify, and one for each step that needs this process.

    >>> hlo.compile_ahead(hlo.read("examples/axpy.hlo"), "x86-64-v3").object[:4]
    b'\\x7fELF'
    """
    GATE.check()
    _check_ways("compile_ahead", passes, mode)
    from hlo.backend.ahead.ahead_of_time import AheadOfTime
    from hlo.backend.ahead.options import Options, least_first
    from hlo.given_machines import machine_of
    from hlo.machine import Machine

    verify(module)
    targets = [target] if isinstance(target, str | Machine) else target
    machines = least_first([machine_of(t) for t in targets])
    options = Options(
        passes, mode, threads, max_threads, lapack, weights, freestanding, cancellable, optimize
    )
    made = AheadOfTime(module, machines, options, name=name, prefix=prefix)
    made.check()
    return made


def static_library(made: Sequence[AheadOfTime]) -> bytes:
    """Programs compiled ahead of time as one library; HloError where two have one name."""
    from hlo.backend.ahead.archive import Member, archive

    return archive([Member(f"{m.name}.o", m.object, m.exported) for m in made])


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

    arguments: one per entry parameter. max_steps: iterations of all loops together. Further
    keywords (timeout, seed, infeed, outfeed, ..) as in hlo/interpreter/evaluate.py.

    >>> x = np.arange(1024, dtype=np.float32)
    >>> hlo.evaluate(hlo.read("examples/axpy.hlo"), np.float32(2), x, x)[:4]
    array([0., 3., 6., 9.], dtype=float32)
    """
    from hlo.interpreter import evaluate as reference

    verify(module)
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

    >>> module = hlo.parse("HloModule m, replica_count=2  ENTRY e { ROOT r = u32[] replica-id() }")
    >>> [int(number) for number in hlo.evaluate_devices(module, [[], []])]
    [0, 1]
    """
    from hlo.interpreter import evaluate as reference

    verify(module)
    return reference.evaluate_devices(
        module, arguments, replicas=replicas, partitions=partitions, **surroundings
    )


def tokens_text(text: str) -> str:
    """The tokens of a text, one a line: place, kind, characters. Raises HloError at a bad one."""
    from hlo.parser.tokens import print_tokens

    return print_tokens(text)


def emit_stage(
    module: Module, stage: str, mode: str = "strict", machine: Machine | None = None
) -> str:
    """One stage of an optimised module as text: a name of STAGES in hlo/backend/stages/printing.py.

    machine: of which code is shown; None: the one that it runs on.
    """
    from hlo.backend.compilation import Compilation
    from hlo.backend.stages.printing import stage_text

    return stage_text(Compilation(module, passes="", mode=mode, machine=machine), stage)


def profile(
    module: Module,
    *arguments: object,
    passes: str = "default",
    mode: str = "strict",
    threads: int | None = None,
    machine: str | Machine | None = None,
    plans: bool = False,
) -> Profile:
    """Where one run's time goes: a row for each step, with its HLO instruction and lines.

    arguments: one per entry parameter; mode, machine: as for compile; plans: also those of
    contractions and loops, with their estimates. str() of the result is a table; its fields are in
    microseconds and bytes. Raises HloErrors.

    >>> x = np.arange(1024, dtype=np.float32)
    >>> hlo.profile(hlo.read("examples/axpy.hlo"), np.float32(2), x, x).rows[0].calls
    1.0
    """
    from hlo.backend.profiling.profile import profile as profiled

    compilation = _timed(module, passes=passes, mode=mode, threads=threads, machine=machine)
    return profiled(compilation, *arguments, plans=plans)


def timeline(
    module: Module,
    *arguments: object,
    passes: str = "default",
    mode: str = "strict",
    threads: int | None = None,
    machine: str | Machine | None = None,
) -> tuple[Slice, ...]:
    """One run as slices of time: each step's parts on each thread. Raises HloErrors.

    arguments: one per entry parameter; mode, machine: as for compile.
    """
    from hlo.backend.profiling.timeline import timeline as slices

    compilation = _timed(module, passes=passes, mode=mode, threads=threads, machine=machine)
    return slices(compilation, *arguments)


def _timed(
    module: Module, *, passes: str, mode: str, threads: int | None, machine: str | Machine | None
) -> Compilation:
    """A compilation whose program runs here, with clocks in it."""
    from hlo.backend.compilation import Compilation
    from hlo.backend.linking.toolchain import check_runs_here
    from hlo.given_machines import machine_of

    verify(module)
    code_for = None if machine is None else machine_of(machine)
    if code_for is not None:
        check_runs_here(code_for)
    return Compilation(module, passes=passes, mode=mode, threads=threads, machine=code_for)


def memory(
    module: Module, passes: str = "default", mode: str = "strict", threads: int | None = None
) -> MemoryMap:
    """Peak memory, and every buffer with the instruction and line that made it; nothing is run.

    Sizes are in bytes. Raises HloErrors when the module does not verify.

    >>> hlo.memory(hlo.read("examples/axpy.hlo")).argument_bytes
    8196
    """
    from hlo.backend.compilation import Compilation
    from hlo.backend.stages.memory_map import memory_map

    verify(module)
    return memory_map(Compilation(module, passes=passes, mode=mode, threads=threads))


def host_machine() -> Machine:
    """The description of the machine that this process runs on."""
    from hlo.backend.linking import toolchain

    return toolchain.host_machine()
