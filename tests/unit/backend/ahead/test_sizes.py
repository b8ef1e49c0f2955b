"""What objects take: the table of sizes, byte for byte, and that --optimize=size takes less."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo import driver
from hlo.machine import NAMED
from tests.support.ahead_harness import IS_THERE
from tests.support.ahead_library import Library
from tests.support.ahead_sizes import MLP, TABLE, rows

V3 = NAMED["x86-64-v3"]
MOST = {"axpy": 4096, "softmax": 12288, "mlp": 30720}  # bytes, of x86-64-v3 without threads
LOOP = """HloModule looped
more { s = (f32[77], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=1
  k = s32[] constant(9)
  ROOT r = pred[] compare(n, k), direction=LT }
step { s = (f32[77], s32[]) parameter(0)
  x = f32[77] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  one = s32[] constant(1)
  t = f32[77] tanh(x)
  y = f32[77] add(t, x)
  m = s32[] add(n, one)
  ROOT r = (f32[77], s32[]) tuple(y, m) }
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[640,77] parameter(0)
  zero = f32[] constant(0)
  c = f32[77] reduce(x, zero), dimensions={0}, to_apply=add
  n = s32[] constant(0)
  s = (f32[77], s32[]) tuple(c, n)
  w = (f32[77], s32[]) while(s), condition=more, body=step
  y = f32[77] get-tuple-element(w), index=0
  b = f32[640,77] broadcast(y), dimensions={1}
  z = f32[640,77] subtract(x, b)
  q = f32[640] reduce(z, zero), dimensions={1}, to_apply=add
  ROOT r = (f32[640,77], f32[640]) tuple(z, q)
}"""


@pytest.mark.skipif(
    TABLE.read_text().split("\n")[0] != f"llvmlite {version('llvmlite')}", reason="another LLVM"
)
def test_the_table_of_sizes() -> None:
    """python -m tests.support.ahead_sizes writes it."""
    found = list(rows())
    assert found == TABLE.read_text().splitlines()
    for row in found[1:]:
        name, *_, code, constants, variables = row.split()
        if re.match(r"\w+ +v3 +\d", row):
            assert int(code) + int(constants) + int(variables) <= MOST[name], row


@pytest.mark.parametrize("name", ["x86-64-v3", "armv8-a", "armv7-a", "wasm32-simd128"])
def test_symbols_of_every_form_that_has_their_sizes(name: str) -> None:
    text = """HloModule table
ENTRY e { i = s32[8] parameter(0)
  t = f32[3000] constant({...})
  ROOT r = f32[8] gather(t, i), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
    index_vector_dim=1, slice_sizes={1} }"""
    module = hlo.fill_elided(hlo.parse(text))
    table = hlo.compile_ahead(module, NAMED[name]).size_table
    assert sum(s.bytes for s in table.symbols if s.kind == "code") <= table.code
    (call,) = (s for s in table.symbols if s.name == "table")
    assert (call.kind, call.bytes > 20) == ("code", True)
    held = max(s.bytes for s in table.symbols if s.kind == "constants")
    assert 12_000 <= held < 12_064
    assert table.variables == 0


@pytest.mark.parametrize("triple", ["arm64-apple-macosx14", "x86_64-pc-windows-msvc"])
def test_sections_of_other_forms(triple: str) -> None:
    base = NAMED["armv8-a" if triple.startswith("arm") else "x86-64-v3"]
    module = hlo.parse("HloModule m ENTRY e { x = f32[99] parameter(0) ROOT r = f32[99] tanh(x) }")
    table = hlo.compile_ahead(module, replace(base, triple=triple)).size_table
    assert 100 < table.code < 10_000
    assert {s.name for s in table.symbols if s.kind == "code"} <= {"__text", ".text"}


@pytest.mark.skipif(
    not (IS_THERE and driver.host_machine().features.issuperset(V3.features)),
    reason="no gcc, or no x86-64-v3",
)
def test_little_code_gives_the_same_bits(tmp_path: Path) -> None:
    found = []
    for optimize in ("speed", "size"):
        made = driver.compile_ahead(hlo.parse(LOOP), V3, name=optimize, optimize=optimize)
        run = Library(made, tmp_path)
        x = np.random.default_rng(3).normal(size=(640, 77)).astype(np.float32)
        results = run.results()
        assert run([x], results) == 0
        found.append((b"".join(r.tobytes() for r in results), made.size_table.code))
    (bits, code), (other, less) = found
    assert bits == other
    assert less < 0.9 * code


def test_what_is_not_used_is_not_there() -> None:
    """A pool, of which a small program asks no loop; equal constants are there once."""
    small = driver.compile_ahead(hlo.parse(MLP), V3, threads="pthreads")
    assert "@hlo_parallel" not in small.llvm
    weight = ", ".join(str(k) for k in range(3000))
    text = f"""HloModule twice
      ENTRY e {{ x = f32[3000] parameter(0)
        w = f32[3000] constant({{{weight}}})
        v = f32[3000] constant({{{weight}}})
        y = f32[3000] add(x, w)
        z = f32[3000] multiply(x, v)
        ROOT r = (f32[3000], f32[3000]) tuple(y, z) }}"""
    made = driver.compile_ahead(hlo.parse(text), V3, passes="")
    assert made.interface.constant_bytes == 12032


def test_each_function_has_a_section() -> None:
    made = driver.compile_ahead(hlo.parse(LOOP), V3)
    assert made.size_table is not None
    code = [s.name for s in made.size_table.symbols if s.kind == "code"]
    assert all(f'section ".text.{name}"' in made.llvm for name in code)
    assert "optsize" not in made.llvm
