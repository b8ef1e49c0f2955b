"""hlo-run bench FILE...: time programs, beside XLA:CPU if asked."""

from __future__ import annotations

import time

import click

from hlo import driver
from hlo.cli.machine_flags import machine_flags
from hlo.cli.numbers import SECONDS, SEED, THREADS
from hlo.cli.reading import read_module, reads_modules
from hlo.cli.terminal import tell
from hlo.machine import Machine
from hlo.tools import arrays, bench
from hlo.tools.fill import fill_elided
from hlo.tools.inputs import KINDS, made_up_inputs
from hlo.tools.jax_engine import JaxProgram, without_donation


@click.command("bench")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option("--against", type=click.Choice(["jax"]), default=None, help="The rival.")
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
    kind: str,
    seed: int,
    seconds: float,
    mode: str,
    threads: int | None,
    machine: Machine | None,
) -> int:
    """Median call times; with --against=jax the ratio of interleaved medians."""
    tell(f"{'program':<44}{'compile':>10}{'call':>10}{'spread':>8}"
               + (f"{'xla call':>11}{'xla/ours':>10}" if against else ""))  # fmt: skip
    for file in files:
        module = without_donation(fill_elided(read_module(file), seed))
        values = made_up_inputs(module, kind, seed)
        start = time.perf_counter()
        executable = driver.compile(
            module, mode=mode, threads=threads, cache=False, machine=machine
        )
        compiled = time.perf_counter() - start
        runs: list[bench.Run] = [lambda e=executable, v=values: e(*v)]  # type: ignore[misc]  # bound now
        if against:
            rival = JaxProgram(driver.to_text(module))
            placed = rival.place(list(arrays.leaves(tuple(values))))
            runs.append(lambda r=rival, p=placed: r(p))  # type: ignore[misc]  # bound now
        timings = bench.measure(runs, seconds)
        row = (
            f"{file[-43:]:<44}{bench.duration(compiled):>10}"
            f"{bench.duration(timings[0].median):>10}{timings[0].spread:>7.0%} "
        )
        if against:
            ratio = timings[1].median / timings[0].median
            row += f"{bench.duration(timings[1].median):>10}{ratio:>9.2f}x"
        tell(row)
    return 0
