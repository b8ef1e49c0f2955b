"""hlo-run bench FILE...: time programs, beside XLA:CPU if asked."""

from __future__ import annotations

import time
from functools import partial
from typing import TYPE_CHECKING

import click
import msgspec
from msgspec import Struct

from hlo.choices import INPUTS, MODES
from hlo.cli.completing import FILE
from hlo.cli.machine_flags import machine_flags
from hlo.cli.numbers import SECONDS, SEED, THREAD_COUNTS
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import say, tell
from hlo.tools import bench

if TYPE_CHECKING:
    from hlo.ir.module import Module
    from hlo.machine import Machine


@click.command("bench")
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE...")
@click.option("--against", default=None, metavar="jax|FILE",
              help="The rival: XLA, or another module of the same arguments.")  # fmt: skip
@click.option("--inputs", "archive", type=FILE, default=None, metavar="FILE",
              help="Arrays by name, of all programs: npz, npy or safetensors.")  # fmt: skip
@click.option("--random", "kind", type=click.Choice(INPUTS), default="normal", show_default=True)
@click.option("--seed", default=0, type=SEED, show_default=True)
@click.option("--seconds", default=2.0, type=SECONDS, show_default=True,
              help="About this long per program.")  # fmt: skip
@click.option("--mode", type=click.Choice(MODES), default="strict", show_default=True)
@click.option("--threads", "counts", default=None, type=THREAD_COUNTS, metavar="N[,N...]",
              help="At most so many threads; several counts are timed in turns.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The same as data, a list of rows.")
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
    counts: tuple[int, ...] | None,
    as_json: bool,
    machine: Machine | None,
) -> int:
    """Median call times; with --against the ratio of interleaved medians."""
    from hlo.cli.arguments import given_arguments
    from hlo.tools.cases.fill import fill_elided
    from hlo.tools.jax.jax_engine import without_donation

    chosen = counts or (None,)
    rows: list[Benched] = []
    if not as_json:
        tell(_head(against, several=len(chosen) > 1), head=0)
    for file in files:
        module = without_donation(fill_elided(read_module(file), seed))
        values = given_arguments(module, (), archive, kind, seed)
        own = [_compiled(module, mode, threads, machine) for threads in chosen]
        runs: list[bench.Run] = [partial(executable, *values) for executable, _ in own]
        if against:
            runs.append(_rival(against, module, values, mode=mode, threads=chosen[-1], seed=seed))
        if _has_nans(runs[0]()):
            say(f"warning: {file}: outputs have NaNs, which may be faster or slower than numbers")
        timings = bench.measure(runs, seconds)
        rival = timings[len(own)].median if against else None
        made = [
            Benched(file, threads, compiled, timing.median, timing.spread, rival)
            for threads, (_, compiled), timing in zip(chosen, own, timings, strict=False)
        ]
        rows += made
        if not as_json:
            tell("\n".join(_row(row, several=len(chosen) > 1) for row in made))
    if as_json:
        tell(msgspec.json.format(msgspec.json.encode(rows)).decode())
    return 0


class Benched(Struct, frozen=True):
    """One program with one number of threads (None: as many as it may have). Seconds: to compile;
    of a call, the median; of the rival's. spread: of the quartiles, relative to the median.
    """

    program: str
    threads: int | None
    compile_seconds: float
    call_seconds: float
    spread: float
    rival_seconds: float | None


def _compiled(
    module: Module, mode: str, threads: int | None, machine: Machine | None
) -> tuple[bench.Called, float]:
    """Machine code, and the seconds that it took to make."""
    from hlo import driver

    start = time.perf_counter()
    made = driver.compile(module, mode=mode, threads=threads, cache=False, machine=machine)
    return made, time.perf_counter() - start


def _head(against: str | None, *, several: bool) -> str:
    name = "xla" if against == "jax" else "rival"
    beside = f"{name + ' call':>11}{name + '/ours':>11}" if against else ""
    threads = f"{'threads':>9}" if several else ""
    return f"{'program':<44}{threads}{'compile':>10}{'call':>10}{'spread':>8}{beside}"


def _row(row: Benched, *, several: bool) -> str:
    threads = f"{row.threads:>9}" if several else ""
    text = (
        f"{row.program[-43:]:<44}{threads}{bench.duration(row.compile_seconds):>10}"
        f"{bench.duration(row.call_seconds):>10}{row.spread:>7.0%} "
    )
    if row.rival_seconds is not None:
        ratio = row.rival_seconds / row.call_seconds
        text += f"{bench.duration(row.rival_seconds):>10}{ratio:>10.2f}x"
    return text


def _rival(
    against: str, module: Module, values: list[object], *, mode: str, threads: int | None, seed: int
) -> bench.Run:
    """XLA on the same module, or another module on the same arguments."""
    from hlo import driver
    from hlo.tools.cases import arrays
    from hlo.tools.cases.fill import fill_elided
    from hlo.tools.jax.jax_engine import JaxProgram, without_donation

    if against == "jax":
        program = JaxProgram(driver.to_text(module))
        placed = program.place(list(arrays.leaves(tuple(values))))
        return partial(program, placed)
    other = without_donation(fill_elided(read_module(against), seed))
    return partial(driver.compile(other, mode=mode, threads=threads, cache=False), *values)


def _has_nans(result: object) -> bool:
    from hlo.tools.cases import arrays
    from hlo.tools.faults.nans import ODD, has_kind

    return any(has_kind(array, ODD["nan"]) for array in arrays.leaves(result))
