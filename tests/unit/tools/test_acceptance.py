"""Cases that users bring: each is one command, and its answer names the place."""

from __future__ import annotations

import re
from pathlib import Path

import hlo
from hlo.passes.catalogue import CATALOGUE
from tests.support.command import call
from tests.support.long_chain import chain
from tests.unit.tools.test_diff import layers, renamed
from tests.unit.tools.test_nans import scan
from tests.unit.tools.test_reduce import SWAP

SOUND = ("dce", "cse", "simplify", "tuple-simplifier", "reshape-mover")

ROUNDED_ONCE = """HloModule m
inside {
  a = bf16[64] parameter(0)
  b = bf16[64] parameter(1)
  x = f32[64] convert(a)
  y = f32[64] convert(b)
  s = f32[64] add(x, y)
  p = f32[64] multiply(s, y)
  d = f32[64] subtract(p, x)
  ROOT r = bf16[64] convert(d)
}
ENTRY e {
  a = bf16[64] parameter(0)
  b = bf16[64] parameter(1)
  ROOT f = bf16[64] fusion(a, b), kind=kLoop, calls=inside
}
"""
ROUNDED_EACH = """HloModule m
inside {
  a = bf16[64] parameter(0)
  b = bf16[64] parameter(1)
  s = bf16[64] add(a, b)
  p = bf16[64] multiply(s, b)
  ROOT d = bf16[64] subtract(p, a)
}
ENTRY e {
  a = bf16[64] parameter(0)
  b = bf16[64] parameter(1)
  ROOT f = bf16[64] fusion(a, b), kind=kLoop, calls=inside
}
"""


def test_a_wrong_pass_among_30_in_2000_instructions(tmp_path: Path) -> None:
    module, mine, small = (tmp_path / n for n in ("m.hlo", "mine.py", "small.hlo"))
    module.write_text(chain(2000, "divide", 1990))
    mine.write_text(SWAP)
    passes = [*(SOUND * 4), "swap-divide", *(SOUND * 2)][:30]
    assert len(passes) == 30
    try:
        told = call("hlo-opt", "bisect", str(module), "-p", ",".join(passes), "--load", str(mine),
                    "--random=model", "--seconds=60", "-o", str(small))  # fmt: skip
    finally:
        CATALOGUE.pop("swap-divide", None)
    assert told.code == 1
    assert "swap-divide, run 1 of it, is the first that breaks" in told.out
    assert len(hlo.parse(small.read_text()).entry) <= 5
    assert "stopped before the end" not in told.err


def test_the_first_nan_of_a_scan_names_iteration_and_line(tmp_path: Path) -> None:
    path = tmp_path / "loss.hlo"
    path.write_text(scan("l"))
    told = call("hlo-run", "nans", str(path), "--input=f32[4]={-1,0.125,-1,-1}")
    assert told.code == 1
    assert re.search(r"first nan .* log\(%rest\) +loss.py:41\n.*iteration 3 of body", told.out)


def test_a_fusion_that_rounds_once_is_shown(tmp_path: Path) -> None:
    """In f64 they are the same: the sides differ by roundings of bf16 alone."""
    a, b = tmp_path / "each.hlo", tmp_path / "once.hlo"
    a.write_text(ROUNDED_EACH)
    b.write_text(ROUNDED_ONCE)
    told = call("hlo-run", "compare", str(a), str(b), "--random=model")
    assert told.code == 1
    assert re.search(r"first diverges .*%f = bf16\[64\]", told.out)
    assert "nearer to f64  output 0: the second" in told.out


def test_one_convert_of_24_layers_in_few_lines(tmp_path: Path) -> None:
    a, b = tmp_path / "a.hlo", tmp_path / "b.hlo"
    a.write_text(layers(24))
    b.write_text(renamed(layers(24, narrow=frozenset({11}))))
    told = call("hlo-opt", "diff", str(a), str(b))
    lines = told.out.splitlines()
    assert len(lines) < 40
    assert [line.split()[:3] for line in lines[1:]] == [["only", "in", "B"]] * 2
    assert all("convert" in line for line in lines[1:])
