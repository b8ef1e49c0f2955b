"""Sizes of what is compiled ahead of time, as a table: tests/unit/backend/ahead/sizes.txt.

python -m tests.support.ahead_sizes > tests/unit/backend/ahead/sizes.txt     writes it anew
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import hlo
from hlo import driver

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TABLE = Path(__file__).resolve().parents[1] / "unit" / "backend" / "ahead" / "sizes.txt"
LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
# Who runs loops, for which machines, what code is to be.
COLUMNS = {
    "v3": ("none", ("x86-64-v3",), "speed"),
    "v3, size": ("none", ("x86-64-v3",), "size"),
    "v3, pthreads": ("pthreads", ("x86-64-v3",), "speed"),
    "v2 v3 v4, none": ("none", LEVELS, "speed"),
    "v2 v3 v4, pthreads": ("pthreads", LEVELS, "speed"),
    "armv8-a": ("none", ("armv8-a",), "speed"),
    "rv64gcv": ("none", ("rv64gcv",), "speed"),
}
MLP = """HloModule mlp
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[1,784] parameter(0)
  w = f32[784,128] parameter(1)
  b = f32[128] parameter(2)
  v = f32[128,10] parameter(3)
  c = f32[10] parameter(4)
  xw = f32[1,128] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bb = f32[1,128] broadcast(b), dimensions={1}
  h = f32[1,128] add(xw, bb)
  zero = f32[] constant(0)
  zeros = f32[1,128] broadcast(zero), dimensions={}
  r = f32[1,128] maximum(h, zeros)
  rv = f32[1,10] dot(r, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  cc = f32[1,10] broadcast(c), dimensions={1}
  l = f32[1,10] add(rv, cc)
  low = f32[] constant(-inf)
  m = f32[1] reduce(l, low), dimensions={1}, to_apply=max
  mb = f32[1,10] broadcast(m), dimensions={0}
  d = f32[1,10] subtract(l, mb)
  ex = f32[1,10] exponential(d)
  s = f32[1] reduce(ex, zero), dimensions={1}, to_apply=add
  sb = f32[1,10] broadcast(s), dimensions={0}
  ROOT p = f32[1,10] divide(ex, sb)
}
"""


def programs() -> Iterator[tuple[str, str]]:
    """Names and texts of the programs whose sizes the issue's figures are about."""
    yield "axpy", (EXAMPLES / "axpy.hlo").read_text()
    yield "softmax", (EXAMPLES / "softmax.hlo").read_text()
    yield "mlp", MLP


def rows() -> Iterator[str]:
    """The table's lines: a program's code, constants and variables in bytes, by column."""
    yield f"llvmlite {version('llvmlite')}"
    for name, text in programs():
        module = hlo.parse(text)
        for column, (threads, machines, optimize) in COLUMNS.items():
            made = driver.compile_ahead(module, machines, threads=threads, optimize=optimize)
            sizes = made.size_table
            assert sizes is not None, "an object of ELF"
            numbers = f"{sizes.code:>6} {sizes.constants:>5} {sizes.variables:>4}"
            yield f"{name:<8} {column:<20} {numbers}"


if __name__ == "__main__":
    sys.stdout.write("\n".join(rows()) + "\n")
