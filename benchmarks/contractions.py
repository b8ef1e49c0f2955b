"""Products beside XLA:CPU and OpenBLAS: python -m benchmarks.contractions [--only PATTERN]

    product (types, orders, sizes) --> HLO --both sides--> a line of the table

`peak` is the share that a product reaches of its own instruction's rate (benchmarks/least.py),
`blas` NumPy's time over ours, where NumPy has the types and the form. `plan` is the time that the
plan's estimate says over what it takes, as `hlo-run profile --plan` does: 1.00 is right. The last
line says how many are within a fifth of it.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
from msgspec import Struct

from benchmarks.__main__ import load_both_sides
from benchmarks.least import least_seconds
from hlo import driver
from hlo.backend.profiling.limits import Limits, measured_limits
from hlo.ir.module import Module
from hlo.tools import bench
from hlo.tools.cases.inputs import made_up_inputs
from hlo.tools.jax.jax_engine import JaxProgram

PLAIN = "mk,kn"
BY_BLAS = ("f32", "f64", "c64", "c128")
BLAS_FORMS = (PLAIN, "km,kn", "mk,nk", "bmk,bkn")
FIFTH = 1.2
ROUNDS = 3
APART_S = 0.025


class Product(Struct, frozen=True):
    """types: of lhs, rhs and the result. form: the letters of lhs's and rhs's dimensions; b: the
    batch, m: rows, n: columns, k: depth.
    """

    types: tuple[str, str, str]
    m: int
    n: int
    k: int
    b: int = 0
    form: str = PLAIN

    @property
    def name(self) -> str:
        lhs, rhs, out = self.types
        types = (lhs if lhs == rhs else f"{lhs}*{rhs}") + ("" if lhs == rhs == out else f"->{out}")
        sizes = "x".join(str(size) for size in (self.b, self.m, self.n, self.k) if size)
        return f"{types} {sizes} {self.form}"

    def text(self) -> str:
        """The product as HLO."""
        sizes = {"b": self.b, "m": self.m, "n": self.n, "k": self.k}
        lhs, rhs = self.form.split(",")
        out = "bmn" if "b" in lhs else "mn"

        def shape(dtype: str, letters: str) -> str:
            return f"{dtype}[{','.join(str(sizes[letter]) for letter in letters)}]"

        batch = ""
        if "b" in lhs:
            batch = f", lhs_batch_dims={{{lhs.index('b')}}}, rhs_batch_dims={{{rhs.index('b')}}}"
        return (
            "HloModule product\n\nENTRY main {\n"
            f"  x = {shape(self.types[0], lhs)} parameter(0)\n"
            f"  y = {shape(self.types[1], rhs)} parameter(1)\n"
            f"  ROOT r = {shape(self.types[2], out)} dot(x, y), "
            f"lhs_contracting_dims={{{lhs.index('k')}}}, rhs_contracting_dims={{{rhs.index('k')}}}"
            f"{batch}\n}}\n"
        )

    def by_blas(self, x: np.ndarray, y: np.ndarray) -> Callable[[], object] | None:
        """The same by NumPy, which gives it to OpenBLAS."""
        if set(self.types) - set(BY_BLAS) or self.form not in BLAS_FORMS:
            return None
        a = x.T if self.form.startswith("km") else x
        b = y.T if self.form.endswith("nk") else y
        return lambda: a @ b


# Types of the factors, of the result where it differs, form, sizes: n, or (m, n, k), or (b, n).
TABLE: tuple[tuple[str, str, str, tuple[int | tuple[int, ...], ...]], ...] = (
    ("f32", "", PLAIN, (8, 16, 32, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)),
    ("f32", "", PLAIN, (31, 67, 101, 127, 251, 509, 1021)),
    *(("f32", "", form, (256, 512, 1024)) for form in ("km,kn", "mk,nk", "km,nk")),
    ("f64", "", PLAIN, (64, 128, 256, 512, 1024, 2048)),
    ("c64", "", PLAIN, (64, 128, 256, 512)),
    ("c128", "", PLAIN, (64, 128, 256, 512)),
    ("bf16", "", PLAIN, (128, 256, 512, 1024, 2048, (32, 3072, 768), (128, 3072, 768))),
    ("bf16", "f32", PLAIN, (128, 256, 512, 1024, 2048)),
    ("f16", "", PLAIN, (128, 256, 512, 1024, 2048)),
    ("s8", "s32", PLAIN, (128, 256, 512, 1024, 2048)),
    ("u8", "u32", PLAIN, (512, 1024)),
    ("u8*s8", "s32", PLAIN, (512, 1024)),
    ("s8*u8", "s32", PLAIN, (512, 1024)),
    ("s16", "s32", PLAIN, (512, 1024)),
    ("s32", "", PLAIN, (512, 1024)),
    ("f32", "", PLAIN, tuple((m, 3072, 768) for m in (1, 2, 4, 8, 16, 32, 64, 128))),
    ("f32", "", PLAIN, tuple((m, 768, 3072) for m in (1, 2, 4, 8, 16, 32, 64, 128))),
    ("f32", "", PLAIN, tuple((2048, n, 2048) for n in (1, 4, 16, 64))),
    ("f32", "", PLAIN, ((1024, 1024, 1), (1024, 1024, 16), (4096, 64, 64), (8192, 128, 32))),
    ("f32", "", PLAIN, ((64, 64, 16384), (16, 16, 100_000))),
    ("f32", "", "bmk,bkn", ((2000, 4), (1000, 16), (500, 32), (1000, 64), (200, 100), (64, 128))),
    *(("f32", "", form, ((100, 64),)) for form in ("mbk,bkn", "mkb,knb", "bkm,bkn", "bmk,bnk")),
    ("f32", "", "bmk,bkn", ((12, 128, 64, 128), (12, 512, 64, 512))),
)  # fmt: skip


def product_of(dtype: str, out: str, form: str, sizes: int | tuple[int, ...]) -> Product:
    """A line of the table."""
    lhs, _, rhs = dtype.partition("*")
    *batch, m, n, k = (
        (sizes,) * 3
        if isinstance(sizes, int)
        else sizes
        if len(sizes) > 2
        else (sizes[0], *sizes[1:] * 3)
    )
    return Product((lhs, rhs or lhs, out or lhs), m, n, k, *batch, form=form)


def products() -> Iterator[Product]:
    """The table's lines."""
    for dtype, out, form, each in TABLE:
        yield from (product_of(dtype, out, form, sizes) for sizes in each)


class Row(Struct, frozen=True):
    """Seconds of a call by us, by XLA and by NumPy (nan: not asked); the least. estimate: over what
    a plan took.
    """

    ours: float
    theirs: float
    blas: float
    least: float
    estimate: float
    difference: float


def measured(product: Product, limits: Limits, options: argparse.Namespace) -> Row:
    """All in turns, the least of all calls: what else the machine does is left out."""
    module = driver.parse(product.text())
    values = made_up_inputs(module, "normal", 0)
    executable = driver.compile(module, threads=options.threads, cache=False)
    runs: list[Callable[[], object]] = [lambda: executable(*values)]
    difference = math.nan
    if options.xla:
        rival = JaxProgram(product.text())
        placed = rival.place(values)
        difference = _difference(executable(*values), rival(placed)[0])
        runs.append(lambda: rival(placed))
    x, y = map(np.asarray, values)
    blas = product.by_blas(x, y)
    runs += [blas] if blas is not None and options.blas else []
    least = _least(runs, options.seconds)
    ours, *others = least
    theirs = others.pop(0) if options.xla else math.nan
    estimate = estimated(module, values, options.threads)
    lower = least_seconds(module, limits, driver.host_machine())
    return Row(ours, theirs, others[0] if others else math.nan, lower, estimate, difference)


def _difference(ours: object, theirs: object) -> float:
    wide = [np.asarray(a).astype(np.complex128) for a in (ours, theirs)]
    return float(np.abs(wide[0] - wide[1]).max()) / (float(np.abs(wide[1]).max()) or 1.0)


def _least(runs: Sequence[Callable[[], object]], seconds: float) -> list[float]:
    """Each side for a while, then the next, and so on: threads of the one that spin a little after
    a call (OpenBLAS's for 20 ms) are asleep by then.
    """
    least = [math.inf] * len(runs)
    for _ in range(ROUNDS):
        for n, run in enumerate(runs):
            time.sleep(APART_S)
            end = time.perf_counter() + seconds / ROUNDS
            while (begun := time.perf_counter()) < end:
                run()
                least[n] = min(least[n], time.perf_counter() - begun)
    return least


def estimated(module: Module, values: Sequence[object], threads: int) -> float:
    """The plans' estimate over what the profiler says that they took; nan: no plan's."""
    plans = driver.profile(module, *values, threads=threads, plans=True).plans
    took = sum(plan.us for plan in plans)
    return sum(plan.estimate_us for plan in plans) / took if took else math.nan


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.contractions", description=__doc__)
    parser.add_argument("--only", default="", help="a pattern of 'TYPES SIZES FORM'")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.1, help="so long a side of a line")
    parser.add_argument("--no-xla", dest="xla", action="store_false")
    parser.add_argument("--no-blas", dest="blas", action="store_false")
    options = parser.parse_args()
    load_both_sides()
    limits = measured_limits(options.threads)
    print(limits)
    print(f"{'product':<34}{'ours':>9}{'GFLOP/s':>9}{'peak':>7}{'xla/us':>8}{'blas':>8}"
          f"{'plan':>7}{'diff':>9}")  # fmt: skip
    rows = []
    for product in products():
        if not re.search(options.only, product.name):
            continue
        row = measured(product, limits, options)
        rows.append(row)
        flops = 2 * product.m * product.n * product.k * max(product.b, 1) / row.ours / 1e9
        print(
            f"{product.name:<34}{bench.duration(row.ours):>9}{flops:>9.0f}"
            f"{row.least / row.ours:>7.0%}{row.theirs / row.ours:>8.2f}{row.blas / row.ours:>8.2f}"
            f"{row.estimate:>7.2f}{row.difference:>9.0e}",
            flush=True,
        )
    planned = [row for row in rows if not math.isnan(row.estimate)]
    near = [row for row in planned if 1 / FIFTH <= row.estimate <= FIFTH]
    print(f"{len(near)} of {len(planned)} estimates within a fifth")
    return 0


if __name__ == "__main__":
    sys.exit(main())
