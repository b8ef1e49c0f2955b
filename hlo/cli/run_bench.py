"""hlo-run bench FILE...: time programs, beside XLA:CPU if asked."""

from __future__ import annotations

import time
from functools import partial

import click

from hlo import driver
from hlo.cli.completing import FILE
from hlo.cli.machine_flags import machine_flags
from hlo.cli.numbers import SECONDS, SEED, THREADS
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.run import given_arguments
from hlo.cli.terminal import say, tell
from hlo.ir.module import Module
from hlo.machine import Machine
from hlo.tools import arrays, bench
from hlo.tools.fill import fill_elided
from hlo.tools.inputs import KINDS
from hlo.tools.jax_engine import JaxProgram, without_donation
from hlo.tools.nans import ODD, has_kind


@click.command("bench")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--against", default=None, metavar="jax|FILE",
              help="The rival: XLA, or another module of the same arguments.")  # fmt: skip
@click.option("--inputs", "archive", type=FILE, default=None, metavar="FILE",
              help="Arrays by name, of all programs: npz, npy or safetensors.")  # fmt: skip
@click.option("--random", "kind", type=click.Choice(KINDS), default="normal", show_default=True)
@click.option("--seed", default=0, type=SEED, show_default=True)
@click.option("--seconds", default=2.0, type=SECONDS, show_default=True,
              help="About this long per program.")  # fmt: skip
@click.option("--mode", type=click.Choice(driver.MODES), default="strict", show_default=True)
@click.option("--threads", default=None, type=THREADS)
@machine_flags
@reads_modules
def command(
    files: tuple[str, ...],
    against: str | None,
    archive: str | None,
    kind: str,
    seed: int,
    seconds: float,
    mode: str,
    threads: int | None,
    machine: Machine | None,
) -> int:
    """Median call times; with --against the ratio of interleaved medians."""
    name = "xla" if against == "jax" else "rival"
    beside = f"{name + ' call':>11}{name + '/ours':>11}" if against else ""
    tell(f"{'program':<44}{'compile':>10}{'call':>10}{'spread':>8}{beside}")
    for file in files:
        module = without_donation(fill_elided(read_module(file), seed))
        values = given_arguments(module, (), archive, kind, seed)
        start = time.perf_counter()
        executable = driver.compile(
            module, mode=mode, threads=threads, cache=False, machine=machine
        )
        compiled = time.perf_counter() - start
        runs: list[bench.Run] = [lambda e=executable, v=values: e(*v)]  # type: ignore[misc]  # bound now
        if against:
            runs.append(_rival(against, module, values, mode=mode, threads=threads, seed=seed))
        if _has_nans(runs[0]()):
            say(f"warning: {file}: outputs have NaNs, which may be faster or slower than numbers")
        timings = bench.measure(runs, seconds)
        row = (
            f"{file[-43:]:<44}{bench.duration(compiled):>10}"
            f"{bench.duration(timings[0].median):>10}{timings[0].spread:>7.0%} "
        )
        if against:
            ratio = timings[1].median / timings[0].median
            row += f"{bench.duration(timings[1].median):>10}{ratio:>10.2f}x"
        tell(row)
    return 0


def _rival(
    against: str, module: Module, values: list[object], *, mode: str, threads: int | None, seed: int
) -> bench.Run:
    """XLA on the same module, or another module on the same arguments."""
    if against == "jax":
        program = JaxProgram(driver.to_text(module))
        placed = program.place(list(arrays.leaves(tuple(values))))
        return partial(program, placed)
    other = without_donation(fill_elided(read_module(against), seed))
    return partial(driver.compile(other, mode=mode, threads=threads, cache=False), *values)


def _has_nans(result: object) -> bool:
    return any(has_kind(array, ODD["nan"]) for array in arrays.leaves(result))
