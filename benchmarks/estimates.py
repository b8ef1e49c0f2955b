"""Plans' estimates beside what they take, by class of shapes: python -m benchmarks.estimates

    class --products, convolutions--> plan --profile--> estimate / time, a share within a fifth
    FILE..., --profile--> the same of the instructions that take a twentieth of a run and a us

No rival runs. Every program is profiled `--times` times, each a line's figure: where they differ,
the machine did something else meanwhile. `hlo-run profile FILE --plan` shows one program's.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from statistics import median

from msgspec import Struct

from benchmarks import convolutions
from benchmarks.contractions import FIFTH, PLAIN, TABLE, Product, product_of
from hlo import driver
from hlo.tools import bench
from hlo.tools.cases.inputs import made_up_inputs

NARROW = ("bf16", "f16", "s8", "u8", "u8*s8", "s8*u8", "s16", "s32")
FORMS = (PLAIN, "km,kn", "mk,nk", "km,nk")
# (m, n, k) of f32 by class, each in all orders of dimensions.
SHAPES: dict[str, tuple[tuple[int, int, int], ...]] = {
    "tall": ((8192, 64, 512), (20_000, 32, 128), (4096, 256, 64)),
    "wide": ((64, 8192, 512), (32, 20_000, 128), (256, 4096, 64)),
    "deep": ((64, 64, 8192), (24, 200, 20_000), (128, 128, 4096)),
    "few rows": tuple((m, 2048, 1024) for m in (2, 4, 8, 16)),
    "few columns": tuple((2048, n, 1024) for n in (2, 4, 8, 16)),
    "vector": ((1, 1024, 1024), (1, 4096, 4096), (1024, 1, 1024), (4096, 1, 4096)),
    "shallow": ((1024, 1024, 4), (2048, 512, 16), (500, 3000, 32)),
}
BATCHED = ((2000, 8), (1000, 16), (1000, 24), (500, 32), (300, 48), (200, 64), (32, 128))
LEAST_US, LEAST_SHARE = 1.0, 0.05  # of a run of a file's program
HALF = 1.5
BATCH_FORMS = ("bmk,bkn", "bkm,bkn", "bmk,bnk", "mbk,nbk")


class Estimate(Struct, frozen=True):
    """A program: its class, its name, what makes its text."""

    group: str
    name: str
    text: Callable[[], str]


def programs() -> Iterator[Estimate]:
    """All, class by class."""
    for dtype, out, form, each in TABLE:
        for sizes in each:
            group = "products, narrow" if dtype in NARROW else "products"
            yield _of(group, product_of(dtype, out, form, sizes))
    for group, shapes in SHAPES.items():
        for form in FORMS:
            yield from (_of(group, Product(("f32",) * 3, *s, form=form)) for s in shapes)
        for types in (("f64",) * 3, ("bf16", "bf16", "f32"), ("s8", "s8", "s32"), ("c64",) * 3):
            yield from (_of(f"{group}, other types", Product(types, *s)) for s in shapes)
    for form in BATCH_FORMS:
        yield from (_of("batched", product_of("f32", "", form, sizes)) for sizes in BATCHED)
    for asked in convolutions.ASKED:
        for layer in convolutions.LAYERS:
            for layout in convolutions.LAYOUTS:
                text = partial(_convolution, layer, layout, asked)
                yield Estimate(f"convolution {layout}, {asked}", layer.name, text)


def _of(group: str, product: Product) -> Estimate:
    return Estimate(group, product.name, product.text)


def _convolution(layer: convolutions.Layer, layout: str, asked: str) -> str:
    """Of eight images."""
    text, _ = convolutions.program(layer, layout, asked, 8)
    return text


def wanted(only: str, every: int) -> Iterator[Estimate]:
    """The programs whose class and name the pattern is found in, so many apart."""
    found = (p for p in programs() if re.search(only, f"{p.group}: {p.name}"))
    yield from (p for n, p in enumerate(found) if n % every == 0)


def ratios(program: Estimate, threads: int, times: int) -> tuple[float, list[float]]:
    """What the planned kernels take in microseconds, and the estimate over it, each time; none
    where no kernel has a plan.
    """
    module = driver.parse(program.text())
    values = made_up_inputs(module, "normal", 0)
    took, found = [], []
    for _ in range(times):
        plans = driver.profile(module, *values, threads=threads, plans=True).plans
        us = sum(plan.us for plan in plans)
        if us:
            took.append(us)
            found.append(sum(plan.estimate_us for plan in plans) / us)
    return min(took, default=math.nan), found


def is_near(found: Sequence[float], most: float = FIFTH) -> bool:
    """Whether the estimate nearest to the time is within a fifth of it, or so many times as far."""
    return min(max(r, 1 / r) for r in found) <= most


def of_files(files: Sequence[str], threads: int, times: int) -> None:
    """Instructions of programs, line by line; how many are near, and how many within half."""
    ratios: list[list[float]] = []
    others = 0
    for file in files:
        module = driver.parse(Path(file).read_text(), name=file)
        values = made_up_inputs(module, "normal", 0)
        found: dict[str, list[float]] = {}
        for _ in range(times):
            profile = driver.profile(module, *values, threads=threads, plans=True)
            least = max(LEAST_US, LEAST_SHARE * sum(row.us for row in profile.rows))
            plans = {plan.name: plan for plan in profile.plans if plan.us >= least}
            shown = {row.name for row in profile.rows if row.us >= least}
            for name, plan in plans.items():
                found.setdefault(name, []).append(plan.estimate_us / plan.us)
        others += len(shown - plans.keys())
        for name, each in found.items():
            mark = "" if is_near(each) else "  *"
            text = " ".join(f"{ratio:.2f}" for ratio in each)
            print(f"{Path(file).stem:<32} {name:<32}  {text}{mark}", flush=True)
        ratios += found.values()
    near, half = (sum(is_near(each, most) for each in ratios) for most in (FIFTH, HALF))
    print(
        f"{near} of {len(ratios)} estimates within a fifth, {half} within half; {others} have none"
    )


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.estimates", description=__doc__)
    parser.add_argument("files", nargs="*", help="programs instead of the classes")
    parser.add_argument("--only", default="", help="a pattern of 'CLASS: NAME'")
    parser.add_argument("--every", type=int, default=1, help="one program of so many")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--times", type=int, default=2)
    options = parser.parse_args()
    if options.files:
        of_files(options.files, options.threads, options.times)
        return 0
    near: dict[str, list[bool]] = {}
    off: dict[str, list[float]] = {}
    for program in wanted(options.only, options.every):
        us, found = ratios(program, options.threads, options.times)
        if not found:
            continue
        near.setdefault(program.group, []).append(is_near(found))
        off.setdefault(program.group, []).append(median(found))
        mark = "" if near[program.group][-1] else "  *"
        shown = " ".join(f"{ratio:.2f}" for ratio in found)
        label = f"{program.group}: {program.name}"
        print(f"{label:<64}{bench.duration(us / 1e6):>9}  {shown}{mark}", flush=True)
    for group, each in near.items():
        print(f"{sum(each):>4} of {len(each):<4} {median(off[group]):.2f}  {group}")
    every = [n for each in near.values() for n in each]
    print(f"{sum(every)} of {len(every)} estimates within a fifth")
    return 0


if __name__ == "__main__":
    sys.exit(main())
