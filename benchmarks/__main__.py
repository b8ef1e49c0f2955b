"""`python -m benchmarks FILE...`: every program beside XLA:CPU, a table, geometric means.

Inputs are placed beforehand, results dropped before the next call; both sides warm up until times
are stable, then they are interleaved and medians are taken. Compile times are cold, caches off.
Programs with a recipe beside them (NAME.json) get its inputs, others made-up ones. `limit` is
the least time that the machine needs for the program's bytes and operations (benchmarks/least.py)
over ours.

`--machine=NAME` has both sides make code for less than this machine is: ours for the description
(hlo/machine.py), XLA for the largest set of instructions that it knows and the description has.
XLA's library of products is not XLA's code and uses what it finds.

`--start` times fresh processes instead (benchmarks/start.py).
"""

import argparse
import importlib.util
import math
import os
import pkgutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import hlo.analysis
import hlo.backend
import hlo.ops
import hlo.passes
import hlo.verifier
from benchmarks import start
from benchmarks.least import least_seconds
from benchmarks.stages import compile_stages, slowest_steps, stages_header, stages_row
from hlo import driver
from hlo.backend.profiling.limits import measured_limits
from hlo.choices import MODES
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.machine import Machine, named
from hlo.runtime.threads import thread_count
from hlo.tools import bench
from hlo.tools.cases import arrays
from hlo.tools.cases.fill import fill_elided
from hlo.tools.cases.inputs import made_up_inputs
from hlo.tools.jax.jax_engine import JaxProgram, without_donation


@dataclass(frozen=True)
class Row:
    """One program's figures; ratios are XLA's over ours, so more than 1 is faster than XLA."""

    name: str
    ours: bench.Timing
    theirs: bench.Timing
    our_compile: float
    their_compile: float
    our_temporary: int
    their_temporary: int
    difference: float
    least: float  # seconds (benchmarks/least.py)
    module: Module
    values: list[object]

    @property
    def run_ratio(self) -> float:
        return self.theirs.median / self.ours.median

    @property
    def compile_ratio(self) -> float:
        return self.their_compile / self.our_compile

    def text(self) -> str:
        spread = max(self.ours.spread, self.theirs.spread)
        return (
            f"{self.name[-46:]:<46}{bench.duration(self.ours.median):>9}"
            f"{bench.duration(self.theirs.median):>9}{self.run_ratio:>8.2f}{spread:>6.0%}"
            f"{self.least / self.ours.median:>7.0%}"
            f"{bench.duration(self.our_compile):>9}{bench.duration(self.their_compile):>9}"
            f"{self.compile_ratio:>7.2f}{self.our_temporary / 2**20:>8.1f}"
            f"{self.their_temporary / 2**20:>8.1f}{self.difference:>10.1e}"
        )


HEADER = (
    f"{'program':<46}{'ours':>9}{'xla':>9}{'xla/us':>8}{'+-':>6}{'limit':>7}{'compile':>9}{'xla':>9}"
    f"{'ratio':>7}{'MiB':>8}{'xla':>8}{'max diff':>10}"
)


def inputs_of(path: Path, module: object, seed: int) -> list[object]:
    """The recipe's inputs where a NAME.json stands beside the program, else made-up ones."""
    recipe = path.with_suffix(".json")
    loader = path.parent.parent / "load.py"
    if recipe.exists() and loader.exists():
        spec = importlib.util.spec_from_file_location("suite_load", loader)
        assert spec is not None
        assert spec.loader is not None
        load = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(load)
        return list(load.load_bench(path)[1])
    return made_up_inputs(module, "normal", seed)


def largest_difference(ours: list[np.ndarray], theirs: list[np.ndarray]) -> float:
    """The largest |a - b| / max(1, |b|) over all leaves; inf where only one is NaN or infinite."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        kind = np.complex128 if a.dtype.kind == "c" else np.float64
        x, y = np.asarray(a).astype(kind), np.asarray(b).astype(kind)
        with np.errstate(all="ignore"):
            error = np.abs(x - y) / np.maximum(1, np.abs(y))
        same = (x == y) | (np.isnan(x) & np.isnan(y))
        error = np.where(same, 0, np.where(np.isnan(error), np.inf, error))
        worst = max(worst, float(error.max(initial=0)))
    return worst


TINY = "HloModule tiny\nENTRY e { x = f32[8] parameter(0) ROOT y = f32[8] negate(x) }"


def load_both_sides() -> None:
    """All our modules, one compilation on each side: libraries load here, outside all figures."""
    for part in (hlo.analysis, hlo.backend, hlo.ops, hlo.passes, hlo.verifier):
        for found in pkgutil.walk_packages(part.__path__, f"{part.__name__}."):
            importlib.import_module(found.name)
    x = np.ones(8, np.float32)
    driver.compile(driver.parse(TINY), cache=False)(x)
    JaxProgram(TINY).run([x])


def measure(path: Path, arguments: argparse.Namespace) -> Row:
    """All figures of one program."""
    module = driver.parse(path.read_text(), path.name)
    if int(module.attributes.get("num_partitions", 1)) > 1:
        module = driver.optimize(module, "sharding-remover")
    module = without_donation(fill_elided(module, arguments.seed))
    values = inputs_of(path, module, arguments.seed)
    start = time.perf_counter()
    executable = driver.compile(
        module,
        mode=arguments.mode,
        threads=arguments.threads,
        cache=False,
        machine=arguments.machine,
    )
    our_compile = time.perf_counter() - start
    rival = JaxProgram(driver.to_text(module))
    placed = rival.place(list(arrays.leaves(tuple(values))))
    difference = largest_difference(
        list(arrays.leaves(executable(*values))), [np.asarray(a) for a in rival(placed)]
    )
    ours, theirs = bench.measure(
        [lambda: executable(*values), lambda: rival(placed)], arguments.seconds
    )
    return Row(
        path.stem,
        ours,
        theirs,
        our_compile,
        rival.compile_seconds,
        executable.temporary_bytes,
        rival.temporary_bytes(),
        difference,
        least_seconds(module, arguments.limits, arguments.machine or driver.host_machine()),
        module,
        values,
    )


# XLA's names (xla_cpu_max_isa), the most capable first, and what a description has that stands for
# the whole of each.
_XLA_SETS = (
    ("AMX", "amx-bf16"),
    ("AVX512_BF16", "avx512bf16"),
    ("AVX512_VNNI", "avx512vnni"),
    ("AVX512", "avx512f"),
    ("AVX2", "avx2"),
    ("SSE4_2", "sse4.2"),
)


def limit_xla(machine: Machine) -> None:
    """XLA makes code for no more than a description has; before it is loaded."""
    for name, feature in _XLA_SETS:
        if machine.has(feature):
            flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_max_isa={name}"
            os.environ["XLA_FLAGS"] = flags.strip()
            return
    known = ", ".join(name for name, _ in _XLA_SETS)
    raise SystemExit(f"--machine={machine.name}: XLA knows {known}, expected one that has these")


def report_details(rows: list[Row], arguments: argparse.Namespace) -> None:
    """Compile times stage by stage, and the steps of the programs that gain least on XLA."""
    if arguments.stages:
        print(stages_header())
        for row in rows:
            print(stages_row(row.name, compile_stages(row.module, arguments.threads)))
    for row in sorted(rows, key=lambda row: row.run_ratio)[: arguments.slowest]:
        print(f"{row.name}, {row.run_ratio:.2f}x")
        print(slowest_steps(row.module, row.values, arguments.threads))


def programs(given: list[Path], parser: argparse.ArgumentParser) -> list[Path]:
    """The files, those of folders among them; a usage error for what is not there."""
    found: list[Path] = []
    for path in given:
        if not path.exists():
            parser.error(f"{path}: there is no such file or folder")
        inside = sorted(path.glob("*.hlo")) if path.is_dir() else [path]
        if not inside:
            parser.error(f"{path}: there is no .hlo file in it")
        found += inside
    return found


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("files", nargs="+", type=Path, help="or folders: all .hlo files in them")
    parser.add_argument("--seconds", type=float, default=2.0, help="about this long a program")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=None)
    parser.add_argument("--mode", default="strict", choices=MODES)
    parser.add_argument("--machine", type=named, help="code for this machine, on both sides")
    parser.add_argument("--stages", action="store_true", help="compile times stage by stage")
    parser.add_argument("--slowest", type=int, default=0, help="show so many programs' steps")
    parser.add_argument("--start", action="store_true", help="fresh processes instead, in turns")
    parser.add_argument("--beside", type=Path, help="with --start: another checkout")
    arguments = parser.parse_args()
    arguments.files = programs(arguments.files, parser)
    if arguments.start:
        trees = [start.ROOT, *([arguments.beside.resolve()] if arguments.beside else [])]
        start.report_starts(arguments.files, start.ROUNDS, trees)
        return 0
    try:
        load_both_sides()
    except HloError as error:  # JAX is not here
        print(f"{error}\n`hlo-run bench FILE...` times programs without a rival", file=sys.stderr)
        return 2
    arguments.limits = measured_limits(thread_count(arguments.threads))
    print(arguments.limits)
    print(HEADER)
    rows = []
    failed = 0
    for path in arguments.files:
        try:
            row = measure(path, arguments)
        except HloError as error:
            failed += 1
            print(f"{path.stem[-46:]:<46}{str(error).splitlines()[0]}")
            continue
        rows.append(row)
        print(row.text(), flush=True)
    if rows:
        means = [
            math.exp(math.fsum(map(math.log, ratios)) / len(rows))
            for ratios in ([r.run_ratio for r in rows], [r.compile_ratio for r in rows])
        ]
        print(f"geometric mean of {len(rows)}: run {means[0]:.2f}x, compile {means[1]:.2f}x")
        report_details(rows, arguments)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
