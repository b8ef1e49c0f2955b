"""Scans in both of their forms, as windows and as trees: programs for `benchmarks.errors`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from benchmarks.error_cases import Case, Shape, Truth, array, module, zero


def running(shape: Shape, dim: int, dtype: str = "f32", *, reverse: bool = False) -> Case:
    """Running sums as jnp.cumsum writes them."""
    length, ones = shape[dim], ["1"] * len(shape)
    sizes, pads = [*ones], ["0_0"] * len(shape)
    sizes[dim] = str(length)
    pads[dim] = f"0_{length - 1}" if reverse else f"{length - 1}_0"
    text = module(
        [array(dtype, shape)],
        f"z = {dtype}[] constant({zero(dtype)})",
        f"ROOT r = {array(dtype, shape)} reduce-window(p0, z), "
        f"window={{size={'x'.join(sizes)} pad={'x'.join(pads)}}}, to_apply=add",
        add=f"{dtype}[]",
    )

    def truth(x: np.ndarray) -> Truth:
        return _running(x, dim, reverse=reverse), _running(abs(x), dim, reverse=reverse)

    name = f"running {array(dtype, shape)} along {dim}" + " backwards" * reverse
    return Case(name, text, (shape,), truth, dtype)


def _running(x: np.ndarray, dim: int, *, reverse: bool = False) -> np.ndarray:
    """In blocks of 1000: exact enough for long doubles too."""
    x = np.moveaxis(x, dim, -1)
    x = x[..., ::-1] if reverse else x
    padded = np.concatenate([x, np.zeros((*x.shape[:-1], -x.shape[-1] % 1000), x.dtype)], -1)
    inside = np.cumsum(padded.reshape(*x.shape[:-1], -1, 1000), -1)
    before = np.cumsum(inside[..., -1], -1) - inside[..., -1]
    sums = (inside + before[..., None]).reshape(padded.shape)[..., : x.shape[-1]]
    return np.moveaxis(sums[..., ::-1] if reverse else sums, -1, dim)


def scanned(shape: Shape) -> Case:
    """Running sums along the first dimension as lax.associative_scan writes them."""
    lines: list[str] = []
    inner = shape[1:]

    def line(length: int, of: str) -> str:
        lines.append(f"v{len(lines)} = {array('f32', (length, *inner))} {of}")
        return f"v{len(lines) - 1}"

    def part(x: str, first: int, end: int, step: int) -> str:
        rest = "".join(f", [0:{n}]" for n in inner)
        length = -(-(end - first) // step)
        return line(length, f"slice({x}), slice={{[{first}:{end}:{step}]{rest}}}")

    def spread(x: str, length: int, low: int, high: int) -> str:
        zeros = "".join("x0_0_0" for _ in inner)
        return line(length, f"pad({x}, z), padding={low}_{high}_1{zeros}")

    def scan(x: str, n: int) -> str:
        if n < 2:
            return x
        pairs = line(n // 2, f"add({part(x, 0, n - 1, 2)}, {part(x, 1, n, 2)})")
        odd = scan(pairs, n // 2)
        even = part(x, 0, 1, 1)
        if n > 2:
            rest = (n - 1) // 2
            first = odd if rest == n // 2 else part(odd, 0, rest, 1)
            later = line(rest, f"add({first}, {part(x, 2, n, 2)})")
            even = line(rest + 1, f"concatenate({even}, {later}), dimensions={{0}}")
        high = n % 2
        return line(n, f"add({spread(even, n, 0, 1 - high)}, {spread(odd, n, 1, high)})")

    last = scan("p0", shape[0])
    text = module(
        [array("f32", shape)],
        "z = f32[] constant(0)",
        *lines,
        f"ROOT r = {array('f32', shape)} copy({last})",
    )

    def truth(x: np.ndarray) -> Truth:
        return _running(x, 0), _running(abs(x), 0)

    return Case(f"associative scan {array('f32', shape)}", text, (shape,), truth)


def running_sums() -> Iterator[Case]:
    """Running sums in both forms."""
    for length in (1000, 5000, 100_000, 1_000_000):
        yield running((length,), 0)
        yield running((length,), 0, reverse=True)
    for shape, dim in (
        ((3, 30_000), 1), ((30_000, 5), 0), ((100_000, 8), 0), ((1_000_000, 4), 0),
        ((4, 1_000_000), 1), ((3000, 300), 0), ((300, 3000), 1), ((4, 5000, 40), 1),
        ((2, 100_000, 3), 1),
    ):  # fmt: skip
        yield running(shape, dim)
    for dtype in ("f16", "bf16", "f64", "c64"):
        for shape, dim in (((1000,), 0), ((5000, 8), 0), ((8, 5000), 1), ((100_000,), 0)):
            yield running(shape, dim, dtype)
    for shape in ((1000,), (100_000,), (5000, 8)):
        yield scanned(shape)
