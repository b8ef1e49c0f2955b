"""Objects and headers that need no Python: what they hold, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.backend.ahead.ahead_of_time import AheadOfTime
from hlo.backend.ahead.interface import identifier
from hlo.machine import NAMED
from hlo.ops import lapack_library
from tests.support.ahead_harness import IS_THERE
from tests.support.ahead_library import Library, aligned

ROOT = Path(__file__).resolve().parents[4]
needs_gcc = pytest.mark.skipif(not IS_THERE, reason="there is no gcc")
V2 = NAMED["x86-64-v2"]
RUNS_HERE = driver.host_machine().features.issuperset(V2.features)

IN_PLACE = """HloModule step, input_output_alias={ {0}: (0, {}, may-alias) }
ENTRY e {
  x = f32[5] parameter(0)
  y = f32[5] parameter(1)
  z = f32[5] add(x, y)
  w = f32[] constant(2)
  b = f32[5] broadcast(w), dimensions={}
  u = f32[5] multiply(y, b)
  ROOT r = (f32[5], f32[5]) tuple(z, u)
}"""
LARGE = """HloModule large
ENTRY e {
  x = f32[2000] parameter(0)
  w = f32[2000] constant({VALUES})
  ROOT r = f32[2000] add(x, w)
}""".replace("VALUES", ", ".join(str(k) for k in range(2000)))
HOST = """HloModule host
ENTRY e {
  x = f32[5] parameter(0)
  t = token[] after-all()
  o = token[] outfeed(x, t), outfeed_shape=f32[5]
  p = token[] outfeed(x, o), outfeed_shape=f32[5]
  ROOT r = f32[5] negate(x)
}"""


def compiled(text: str, machine: str = V2.name, name: str | None = None) -> AheadOfTime:
    return driver.compile_ahead(driver.parse(text), machine, name)


def example(name: str) -> str:
    return (ROOT / "examples" / f"{name}.hlo").read_text()


@needs_gcc
@pytest.mark.skipif(not RUNS_HERE, reason="no x86-64-v2")
def test_results_in_the_memory_of_arguments(tmp_path: Path) -> None:
    made = compiled(IN_PLACE)
    assert "may be the memory of input 0" in made.header
    run = Library(made, tmp_path)
    x, y = np.arange(5, dtype=np.float32), np.full(5, 10, np.float32)
    z, u = np.zeros(5, np.float32), np.zeros(5, np.float32)
    assert run([x, y], [z, u]) == 0
    assert (x.tolist(), z.tolist(), u.tolist()) == ([0, 1, 2, 3, 4], [10, 11, 12, 13, 14], [20] * 5)
    assert run([x, y], [x, u]) == 0
    assert x.tolist() == [10, 11, 12, 13, 14]


@needs_gcc
@pytest.mark.skipif(not RUNS_HERE, reason="no x86-64-v2")
def test_constants_are_put_into_the_object(tmp_path: Path) -> None:
    run = Library(compiled(LARGE), tmp_path)
    result = np.zeros(2000, np.float32)
    assert run([np.ones(2000, np.float32)], [result]) == 0
    assert result.tolist() == [k + 1 for k in range(2000)]


@needs_gcc
@pytest.mark.skipif(not RUNS_HERE, reason="no x86-64-v2")
def test_constants_are_an_input(tmp_path: Path) -> None:
    made = driver.compile_ahead(driver.parse(LARGE), V2, weights="separate")
    assert len(made.object) < 4000
    assert "#define LARGE_INPUTS 2" in made.header
    run = Library(made, tmp_path)
    weights = aligned(len(made.weights) + 64)
    weights[: len(made.weights)] = np.frombuffer(made.weights, np.uint8)
    x, result = np.ones(2000, np.float32), np.zeros(2000, np.float32)
    assert run([x, weights], [result]) == 0
    assert result.tolist() == [k + 1 for k in range(2000)]
    assert run([x, None], [result]) == 1
    assert run([x, weights[8:]], [result]) == 2


@needs_gcc
@pytest.mark.skipif(not RUNS_HERE, reason="no x86-64-v2")
def test_errors(tmp_path: Path) -> None:
    run = Library(compiled(example("axpy")), tmp_path)
    a, x, r = np.ones((), np.float32), np.ones(1024, np.float32), np.zeros(1024, np.float32)
    place = run.arena.ctypes.data
    assert run([a, x, x], [r]) == 0
    assert r.tolist() == [2] * 1024
    assert run([a, None, x], [r]) == 1
    assert run([a, x, x], [None]) == 1
    assert run([a, x, x], [r], 0) == 1
    assert run([a, x, x], [r], place + 8) == 2


@needs_gcc
@pytest.mark.skipif(not RUNS_HERE, reason="no x86-64-v2")
def test_calls_on_different_arenas_run_at_once(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    made = compiled(example("softmax"))
    run = Library(made, tmp_path)
    (shape,) = (leaf.shape for leaf in made.interface.arguments)
    inputs = [np.random.default_rng(k).normal(size=shape.dims).astype("f4") for k in range(8)]

    def one(x: np.ndarray) -> bytes:
        memory = aligned(made.interface.arena_bytes)
        result = np.zeros(shape.dims, np.float32)
        for _ in range(20):
            assert run([x], [result], memory.ctypes.data) == 0
        return result.tobytes()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(one, inputs)) == [one(x) for x in inputs]


def test_host_steps_are_refused_with_a_list() -> None:
    with pytest.raises(hlo.HloErrors) as caught:
        compiled(HOST)
    assert isinstance(caught.value, hlo.HloErrors)
    found = [(e.code, e.line) for e in caught.value.errors]
    assert found == [("unsupported", 5), ("unsupported", 6)]


@pytest.mark.parametrize("name", ["1x", "int", "a b", "__x", ""])
def test_names_are_those_of_c(name: str) -> None:
    if name:
        with pytest.raises(hlo.HloError, match="identifier"):
            compiled(example("axpy"), name=name)
    assert identifier(f"{name}.7").isidentifier()


@pytest.mark.parametrize(("name", "limit"), [("axpy", 4096), ("softmax", 12288)])
def test_small_programs_are_small(name: str, limit: int) -> None:
    made = compiled(example(name), "x86-64-v3")
    table = made.size_table
    assert table is not None
    assert table.total < limit
    assert [s.name for s in table.symbols if s.name[1:2] != "_"] == [name, "hlo_entry"]
    assert sum(s.bytes for s in table.symbols) <= table.total
    assert str(table).splitlines()[0].endswith("variables 0")


def test_object_files_of_other_systems() -> None:
    from msgspec.structs import replace

    heads = {
        "x86_64-apple-macosx11.0": b"\xcf\xfa\xed\xfe",
        "arm64-apple-macosx11.0": b"\xcf\xfa\xed\xfe",
        "x86_64-pc-windows-msvc": b"\x64\x86",
    }
    for triple, head in heads.items():
        base = NAMED["neoverse-n1" if triple.startswith("arm64") else "x86-64-v3"]
        made = driver.compile_ahead(driver.parse(LARGE), replace(base, triple=triple))
        assert made.object.startswith(head)
        assert np.arange(2000, dtype=np.float32).tobytes() in made.object


WRITE = """import sys, os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))} if sys.argv[1] == "1" else
                     os.sched_getaffinity(0))
import hlo
made = hlo.compile_ahead(hlo.parse(open(sys.argv[2]).read()))
sys.stdout.buffer.write(made.object + made.header.encode() + made.llvm.encode())
"""


def test_the_same_bytes_whatever_the_process_and_its_processors() -> None:
    path = str(ROOT / "examples" / "transformer_block.hlo")
    found = set()
    for seed, count in (("1", "1"), ("2", "2")):
        done = subprocess.run(
            [sys.executable, "-c", WRITE, count, path],
            capture_output=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        )
        found.add(done.stdout)
    assert len(found) == 1
    assert len(found.pop()) > 10_000


CALLS = """HloModule calls
ENTRY e {
  x = f32[3] parameter(0)
  n = s32[] parameter(1)
  c = (f32[3], s32[2]) custom-call(x, n), custom_call_target="scaled_by"
  y = f32[3] get-tuple-element(c), index=0
  m = s32[2] get-tuple-element(c), index=1
  z = f32[3] add(y, x)
  ROOT r = (f32[3], s32[2]) tuple(z, m)
}"""
SCALED = """#include "calls.h"
int scaled_by(const void *const *operands, void *const *results) {
    const float *x = operands[0];
    int32_t n = *(const int32_t *)operands[1];
    if (n < 0) return 77;
    for (int k = 0; k < 3; k++) ((float *)results[0])[k] = x[k] * (float)n;
    ((int32_t *)results[1])[0] = n, ((int32_t *)results[1])[1] = -n;
    return 0;
}
"""


@needs_gcc
@pytest.mark.skipif(not RUNS_HERE, reason="no x86-64-v2")
def test_custom_calls_are_functions_of_whoever_links(tmp_path: Path) -> None:
    made = compiled(CALLS)
    (tmp_path / "calls.h").write_text(made.header)
    (tmp_path / "scaled.c").write_text(SCALED)
    command = ["gcc", "-c", "-fPIC", "-Werror", "scaled.c", "-o", "scaled.o"]
    subprocess.run(command, cwd=tmp_path, check=True)
    run = Library(made, tmp_path, str(tmp_path / "scaled.o"))
    z, m = np.zeros(3, np.float32), np.zeros(2, np.int32)
    x = np.arange(3, dtype=np.float32)
    assert run([x, np.array(5, np.int32)], [z, m]) == 0
    assert (z.tolist(), m.tolist()) == ([0, 6, 12], [5, -5])
    assert run([x, np.array(-1, np.int32)], [z, m]) == 77


QR = """HloModule q
ENTRY e {
  x = c128[6,4] parameter(0)
  ROOT c = (c128[6,4], c128[4]) custom-call(x), custom_call_target="lapack_zgeqrf_ffi"
}"""


@pytest.mark.parametrize("has_scipy", [True, False])
def test_lapack_is_refused_or_left_to_the_linker(
    has_scipy: bool,  # noqa: FBT001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever the machine that compiles has installed."""
    if not has_scipy:
        monkeypatch.setattr(lapack_library, "_capsules", dict)
    with pytest.raises(hlo.HloErrors, match="calls LAPACK"):
        compiled(QR)
    made = driver.compile_ahead(driver.parse(QR), V2, lapack="fortran")
    assert "declare void @zgeqrf_(" in made.llvm
    assert compiled(QR.replace("c128", "f64").replace("zgeqrf", "dgeqrf")).object
    with pytest.raises(hlo.HloError, match="lapack is"):
        driver.compile_ahead(driver.parse(QR), V2, lapack="netlib")


MOVES = """HloModule moves
ENTRY e {
  x = u8[5003] parameter(0)
  y = u8[37] parameter(1)
  z = u8[] constant(7)
  b = u8[2001] broadcast(z), dimensions={}
  ROOT r = (u8[5040], u8[5003], u8[2001]) tuple(c, x, b)
}""".replace("  ROOT", "  c = u8[5040] concatenate(x, y), dimensions={0}\n  ROOT")


@needs_gcc
@pytest.mark.skipif(not RUNS_HERE, reason="no x86-64-v2")
def test_nothing_is_left_to_the_library(tmp_path: Path) -> None:
    plain = compiled(MOVES)
    made = driver.compile_ahead(driver.parse(MOVES), V2, name="moves", freestanding=True)
    assert [s.name for s in (made.size_table or plain.size_table).symbols if s.name == "memcpy"]
    (tmp_path / "moves.o").write_bytes(made.object)
    done = subprocess.run(["nm", "-u", tmp_path / "moves.o"], capture_output=True, check=True)
    assert done.stdout == b""
    rng = np.random.default_rng(3)
    x, y = rng.integers(0, 255, 5003).astype(np.uint8), rng.integers(0, 255, 37).astype(np.uint8)
    results = [np.zeros(5040, np.uint8), np.zeros(5003, np.uint8), np.zeros(2001, np.uint8)]
    assert Library(made, tmp_path)([x, y], results) == 0
    assert results[0].tolist() == [*x.tolist(), *y.tolist()]
    assert results[1].tolist() == x.tolist()
    assert results[2].tolist() == [7] * 2001
