"""Convolutions beside XLA:CPU and the rate of a product: python -m benchmarks.convolutions

    layer (sizes, layout, what is asked for) --jax--> HLO --both sides--> a line of the table

Layers are those of networks: ResNet-50's, EfficientNet's, ConvNeXt's, dilated and transposed ones;
forward, and the gradients as jax.grad writes them. `of product` is the rate of a layer's
multiply-adds (those of forward, whatever is asked for; zeros of padding counted) over that of an
f32 product of 1024^3, which is timed between the calls of both sides.
"""

from __future__ import annotations

import argparse
import itertools
import math
import re
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from msgspec import Struct

from benchmarks.__main__ import load_both_sides
from hlo import driver
from hlo.choices import MODES
from hlo.tools import bench
from hlo.tools.jax import jax_door
from hlo.tools.jax.jax_engine import JaxProgram

BATCHES = (1, 8, 32)
LAYOUTS = ("NHWC", "NCHW")
ASKED = ("forward", "input", "filter")
PRODUCT = 1024


class Layer(Struct, frozen=True):
    """A square convolution: base, features in and out, window, stride, groups (0: depthwise)."""

    name: str
    size: int
    inputs: int
    outputs: int
    window: int
    stride: int = 1
    groups: int = 1
    dilation: int = 1
    transposed: bool = False

    @property
    def group_count(self) -> int:
        return self.groups or self.inputs

    @property
    def out_size(self) -> int:
        return self.size * self.stride if self.transposed else -(-self.size // self.stride)

    def operations(self, batch: int) -> int:
        """Of the products, those with zeros beside the base counted, those with holes not."""
        positions = self.size if self.transposed else self.out_size
        depth = self.window**2 * self.inputs // self.group_count
        return 2 * batch * positions**2 * self.outputs * depth


LAYERS = (
    Layer("stem 7x7/2", 224, 3, 64, 7, stride=2),
    Layer("1x1 64-256", 56, 64, 256, 1),
    Layer("1x1 256-64", 56, 256, 64, 1),
    Layer("3x3 64", 56, 64, 64, 3),
    Layer("1x1/2 256-512", 56, 256, 512, 1, stride=2),
    Layer("3x3/2 128", 56, 128, 128, 3, stride=2),
    Layer("3x3 128", 28, 128, 128, 3),
    Layer("1x1 512-128", 28, 512, 128, 1),
    Layer("3x3 256", 14, 256, 256, 3),
    Layer("1x1 1024-256", 14, 1024, 256, 1),
    Layer("3x3 512", 7, 512, 512, 3),
    Layer("1x1 512-2048", 7, 512, 2048, 1),
    Layer("stem 3x3/2", 224, 3, 32, 3, stride=2),
    Layer("dw 3x3 32", 112, 32, 32, 3, groups=0),
    Layer("1x1 32-16", 112, 32, 16, 1),
    Layer("1x1 16-96", 112, 16, 96, 1),
    Layer("dw 3x3/2 96", 112, 96, 96, 3, stride=2, groups=0),
    Layer("dw 5x5/2 144", 56, 144, 144, 5, stride=2, groups=0),
    Layer("dw 3x3 480", 14, 480, 480, 3, groups=0),
    Layer("dw 5x5 672", 14, 672, 672, 5, groups=0),
    Layer("dw 5x5 1152", 7, 1152, 1152, 5, groups=0),
    Layer("1x1 1152-320", 7, 1152, 320, 1),
    Layer("dw 7x7 96", 56, 96, 96, 7, groups=0),
    Layer("dw 7x7 768", 7, 768, 768, 7, groups=0),
    Layer("grouped 3x3 128/32", 56, 128, 128, 3, groups=32),
    Layer("grouped 3x3 512/32", 14, 512, 512, 3, groups=32),
    Layer("dilated 3x3 256", 28, 256, 256, 3, dilation=2),
    Layer("transposed 4x4/2", 16, 256, 128, 4, stride=2, transposed=True),
    Layer("transposed 3x3/2", 28, 128, 64, 3, stride=2, transposed=True),
)


def convolution(layer: Layer, layout: str) -> Callable[[Any, Any], Any]:
    """The layer as JAX's own function."""
    lax = jax_door.jax().lax
    order = (layout, "HWIO" if layout == "NHWC" else "OIHW", layout)

    def apply(x: Any, w: Any) -> Any:
        strides = (layer.stride,) * 2
        if layer.transposed:
            return lax.conv_transpose(x, w, strides, "SAME", dimension_numbers=order)
        return lax.conv_general_dilated(
            x, w, strides, "SAME", rhs_dilation=(layer.dilation,) * 2, dimension_numbers=order,
            feature_group_count=layer.group_count,
        )  # fmt: skip

    return apply


def arguments(layer: Layer, layout: str, batch: int) -> list[np.ndarray]:
    """Base, kernel and the result's gradient."""
    side, out = (layer.size,) * 2, (layer.out_size,) * 2
    window, depth = (layer.window,) * 2, layer.inputs // layer.group_count
    if layout == "NHWC":
        shapes = (batch, *side, layer.inputs), (*window, depth, layer.outputs)
        shapes += ((batch, *out, layer.outputs),)
    else:
        shapes = (batch, layer.inputs, *side), (layer.outputs, depth, *window)
        shapes += ((batch, layer.outputs, *out),)
    random = np.random.default_rng(0)
    return [random.standard_normal(shape, np.float32) for shape in shapes]


def program(layer: Layer, layout: str, asked: str, batch: int) -> tuple[str, list[np.ndarray]]:
    """HLO text as JAX writes it, and what it is called with."""
    jax = jax_door.jax()
    apply, (x, w, gradient) = convolution(layer, layout), arguments(layer, layout, batch)
    functions = {
        "forward": (apply, [x, w]),
        "input": (lambda w, g: jax.linear_transpose(lambda v: apply(v, w), x)(g)[0], [w, gradient]),
        "filter": (
            lambda x, g: jax.linear_transpose(lambda v: apply(x, v), w)(g)[0],
            [x, gradient],
        ),
    }
    function, values = functions[asked]
    return jax.jit(function).lower(*values).compiler_ir("hlo").as_hlo_text(), values


class Row(Struct, frozen=True):
    """Seconds of a call on both sides and of the product, and of compiling; the largest difference
    over the largest result."""

    ours: float
    theirs: float
    product: float
    our_compile: float
    their_compile: float
    difference: float


def product(threads: int) -> Callable[[], object]:
    """A call of an f32 product."""
    n = PRODUCT
    matrix = f"f32[{n},{n}]"
    text = (
        f"HloModule product\nENTRY e {{ x = {matrix} parameter(0) y = {matrix} parameter(1)"
        f" ROOT r = {matrix} dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}"
    )
    values = [np.random.default_rng(n).standard_normal((n, n), np.float32) for _ in range(2)]
    executable = driver.compile(driver.parse(text), threads=threads, cache=False)
    return lambda: executable(*values)


def measured(
    text: str, values: list[np.ndarray], product: Callable[[], object], options: argparse.Namespace
) -> Row:
    """All in turn, the least of all calls: what else the machine does is left out."""
    start = time.perf_counter()
    executable = driver.compile(
        driver.parse(text), mode=options.mode, threads=options.threads, cache=False
    )
    our_compile = time.perf_counter() - start
    rival = JaxProgram(text)
    placed = rival.place(values)
    mine, other = np.asarray(executable(*values)), np.asarray(rival(placed)[0])
    difference = float(np.abs(mine - other).max()) / (float(np.abs(other).max()) or 1.0)
    runs = [lambda: executable(*values), lambda: rival(placed), product]
    for run in runs:
        bench.warm_up(run)
    least = [math.inf] * len(runs)
    end = time.perf_counter() + options.seconds
    while time.perf_counter() < end:
        for n, run in enumerate(runs):
            begun = time.perf_counter()
            run()
            least[n] = min(least[n], time.perf_counter() - begun)
    return Row(*least, our_compile, rival.compile_seconds, difference)


def wanted(options: argparse.Namespace) -> Iterator[tuple[Layer, str, str, int]]:
    """The table's lines, those whose label the pattern is found in."""
    for asked, layout, batch, layer in itertools.product(
        options.asked, options.layouts, options.batches, LAYERS
    ):
        if re.search(options.only, f"{layer.name} {asked} {layout} {batch}"):
            yield layer, layout, asked, batch


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.convolutions", description=__doc__)
    parser.add_argument("--only", default="", help="a pattern of 'NAME ASKED LAYOUT BATCH'")
    parser.add_argument("--asked", nargs="+", default=ASKED, choices=ASKED)
    parser.add_argument("--layouts", nargs="+", default=LAYOUTS, choices=LAYOUTS)
    parser.add_argument("--batches", nargs="+", type=int, default=BATCHES)
    parser.add_argument("--mode", default="strict", choices=MODES)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=0.2, help="about this long a line")
    options = parser.parse_args()
    load_both_sides()
    reference = product(options.threads)
    print(
        f"{'layer':<20}{'asked':<9}{'layout':<7}{'batch':>5}{'ours':>9}{'of product':>12}"
        f"{'xla/us':>8}{'compile':>9}{'xla/us':>8}{'diff':>9}"
    )
    ratios = []
    for layer, layout, asked, batch in wanted(options):
        text, values = program(layer, layout, asked, batch)
        row = measured(text, values, reference, options)
        share = layer.operations(batch) / row.ours / (2 * PRODUCT**3 / row.product)
        ratios.append((row.theirs / row.ours, row.their_compile / row.our_compile))
        print(
            f"{layer.name:<20}{asked:<9}{layout:<7}{batch:>5}{bench.duration(row.ours):>9}"
            f"{share:>12.0%}{ratios[-1][0]:>8.2f}{bench.duration(row.our_compile):>9}"
            f"{ratios[-1][1]:>8.2f}{row.difference:>9.0e}",
            flush=True,
        )
    if ratios:
        run, compiled = (
            math.exp(sum(map(math.log, each)) / len(ratios)) for each in zip(*ratios, strict=True)
        )
        print(f"geometric mean of {len(ratios)}: run {run:.2f}x, compile {compiled:.2f}x")
    return 0


if __name__ == "__main__":
    sys.exit(main())
