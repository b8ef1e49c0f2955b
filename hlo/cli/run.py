"""hlo-run FILE: compile, run once, print, compare, time."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import click

from hlo import progress
from hlo.choices import INPUTS, MODES
from hlo.cli.case_flags import takes_tolerance
from hlo.cli.completing import FILE, PASSES
from hlo.cli.machine_flags import machine_flags
from hlo.cli.numbers import SEED, THREADS, TIMEOUT, Count
from hlo.cli.reading import read_program, reads_modules
from hlo.cli.terminal import say, tell
from hlo.errors import HloError
from hlo.tools.files.writing import check_writable

if TYPE_CHECKING:
    from hlo.formats.program import Program
    from hlo.ir.module import Module
    from hlo.machine import Machine
    from hlo.tools.comparison import check
    from hlo.tools.comparison.compare import Tolerance

if TYPE_CHECKING:
    from hlo.backend.compilation import Compiled

RECORDED = "recorded"  # what --compare calls the result that a snapshot holds
ENGINES = ("compiled", "interpreter")
PRINTED = ("full", "summary", "hash", "none")


@click.command("run")
@click.argument("file", type=FILE, metavar="FILE")
@click.option("--input", "inputs", multiple=True, help="f32[2,3]=VALUES, @x.npy or NAME=...")
@click.option("--inputs", "archive", type=FILE, default=None, metavar="FILE",
              help="Arrays by name: npz, npy or safetensors.")  # fmt: skip
@click.option("--random", "kind", is_flag=False, flag_value="normal", default="normal",
              type=click.Choice(INPUTS), help="Made-up inputs (the default: normal).")  # fmt: skip
@click.option("--seed", default=0, type=SEED, show_default=True)
@click.option("--fill-elided", "fill", is_flag=False, flag_value=0, default=None, type=SEED,
              metavar="[SEED]", help="Give constant({...}) made-up values.")  # fmt: skip
@click.option("--outputs", type=FILE, default=None, metavar="FILE.npz", help="Write the results.")
@click.option("--print-outputs", "printed", is_flag=False, flag_value="full", default="summary",
              type=click.Choice(PRINTED), show_default=True)  # fmt: skip
@click.option("--compare", default=None, metavar="WITH",
              help="interpreter, unoptimized, fast, f64, jax, recorded, or FILE.npz.")  # fmt: skip
@click.option(
    "--allow-undecided", is_flag=True, help="--compare: exit 0 where nothing can be said."
)
@takes_tolerance
@click.option("--engine", type=click.Choice(ENGINES), default="compiled", show_default=True)
@click.option("-p", "--passes", type=PASSES, default="default", show_default=True)
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True)
@click.option("--threads", default=None, type=THREADS)
@click.option("--no-cache", is_flag=True, help="Compile anew.")
@click.option("--max-steps", default=None, type=Count(1), help="Interpreter's limit.")
@click.option("--timeout", default=None, type=TIMEOUT, metavar="SECONDS",
              help="Stop a run that takes longer.")  # fmt: skip
@click.option("--time", "timed", is_flag=True, help="Compile and call times on stderr.")
@click.option("--memory", is_flag=True, help="Peak memory by buffer on stderr.")
@click.option("--check-nans", "checked", is_flag=False, flag_value="first", default=None,
              type=click.Choice(["first", "all"]),
              help="Then say which instruction makes NaNs or infinities.")  # fmt: skip
@click.option("--one-device", is_flag=True, help="Drop sharding annotations first.")
@machine_flags
@reads_modules
def command(
    file: str,
    inputs: tuple[str, ...],
    archive: str | None,
    kind: str,
    seed: int,
    fill: int | None,
    outputs: str | None,
    printed: str,
    compare: str | None,
    allow_undecided: bool,
    tolerance: Tolerance,
    engine: str,
    passes: str,
    mode: str,
    threads: int | None,
    no_cache: bool,
    max_steps: int | None,
    timeout: float | None,
    timed: bool,
    memory: bool,
    checked: str | None,
    one_device: bool,
    machine: Machine | None,
) -> int:
    """Compile and run once."""
    from hlo import driver
    from hlo.cli.arguments import given_arguments

    _check_usage(engine, checked, max_steps)
    if outputs:
        check_writable(outputs)
    program = read_program(file)
    module = _prepared(program.module, fill, one_device=one_device)
    if program.arguments is not None and not inputs and archive is None:
        values, compare = _recorded(program, compare)
    else:
        values = given_arguments(module, inputs, archive, kind, seed)
    if engine == "interpreter":
        reference = partial(driver.evaluate, module, max_steps=max_steps, timeout=timeout)
        run: check.Run = partial(reference, progress=partial(progress.tell, "interpreter"))
    else:
        start = time.perf_counter()
        asked = (passes, mode, threads, not no_cache)
        compiled = driver.compile(module, *asked, machine=machine)
        run = compiled if timeout is None else partial(compiled, timeout=timeout)
        _tell_of(compiled, time.perf_counter() - start if timed else None, memory=memory)
    result = run(*values)
    if timed:
        say(_call_time(run, values))
    _print(result, printed)
    _write_outputs(outputs, result)
    if checked is not None and _makes_odd_values(module, values, checked, mode):
        return 1
    if compare is None:
        return 0
    report = _compared(module, values, result, _rival(compare, program), run, tolerance)
    say(report.text)
    return 0 if report.passed or (allow_undecided and report.verdict == "undecided") else 1


def _compared(
    module: Module,
    values: list[object],
    result: object,
    rival: str | check.Recorded,
    run: check.Run,
    tolerance: Tolerance,
) -> check.Checked:
    from hlo.tools.comparison.check import compared

    return compared(module, values, result, rival, rerun=run, tolerance=tolerance)


def _write_outputs(path: str | None, result: object) -> None:
    if path is None:
        return
    from hlo.tools.cases.arrays import leaves
    from hlo.tools.files.npz import write_npz

    write_npz(path, {f"out{i}": array for i, array in enumerate(leaves(result))})


def _check_usage(engine: str, checked: str | None, max_steps: int | None) -> None:
    """Flags of one engine with the other are a usage error."""
    if checked is not None and engine == "interpreter":
        help = "hlo-run nans --engine=interpreter looks at the reference"
        raise click.UsageError(f"--check-nans probes compiled code; {help}")
    if max_steps is not None and engine != "interpreter":
        raise click.UsageError("--max-steps counts the steps of --engine=interpreter")


def _tell_of(compiled: Compiled, seconds: float | None, *, memory: bool) -> None:
    """How long compiling took, and the memory that a run takes, where they are asked for."""
    if seconds is not None:
        from hlo.tools import bench  # for --time alone

        say(f"compile {bench.duration(seconds)}")
    if memory:
        say(compiled.memory_report(), nl=False)


def _makes_odd_values(module: Module, values: list[object], checked: str, mode: str) -> bool:
    """Whether compiled code makes NaNs or infinities, which is told."""
    from hlo.cli.findings import told  # what a start without the flag need not load
    from hlo.tools.cases.case import Case

    return told(Case(module, tuple(values)), every=checked == "all", mode=mode) != 0


def _recorded(program: Program, compare: str | None) -> tuple[list[object], str | None]:
    """A snapshot's arguments, and what its result is compared with where nothing else is asked."""
    say("inputs: as recorded")
    values = list(program.arguments or ())
    return values, compare or (RECORDED if program.result is not None else None)


def _rival(compare: str, program: Program) -> str | check.Recorded:
    """What a result is compared with."""
    from hlo.tools.comparison import check

    if compare != RECORDED:
        return compare
    if program.result is None:
        raise HloError("comparison", "no result is recorded, expected a snapshot with one")
    return check.Recorded(program.result)


def _prepared(module: Module, fill: int | None, *, one_device: bool) -> Module:
    """The module as it runs, verified."""
    from hlo import driver

    if one_device:
        module = driver.optimize(module, "sharding-remover")
    if fill is not None:
        from hlo.tools.cases.fill import fill_elided

        module = fill_elided(module, fill)
    driver.verify(module)
    return module


def _call_time(run: check.Run, values: list[object]) -> str:
    from hlo.tools import bench  # for --time alone

    (timing,) = bench.measure([lambda: run(*values)])
    return (
        f"call {bench.duration(timing.median)} (median of {timing.calls}, quartiles "
        f"{bench.duration(timing.low)} to {bench.duration(timing.high)})"
    )


def _print(result: object, printed: str) -> None:
    from hlo.tools.cases import arrays

    if printed == "hash":
        tell(arrays.digest(result))
    elif printed == "summary":
        tell(arrays.summary(result))
    elif printed == "full":
        for i, array in enumerate(arrays.leaves(result)):
            tell(f"output {i}: {arrays.full_text(array)}")
