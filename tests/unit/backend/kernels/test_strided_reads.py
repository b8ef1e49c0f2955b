"""Reads a few elements apart: every element size and stride, nothing touched beyond the array."""

import ctypes
import mmap
import sys

import ml_dtypes
import numpy as np
import pytest

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.lanes.strided import stretch
from hlo.machine import NAMED

KINDS = {
    "u8": np.uint8, "s16": np.int16, "bf16": ml_dtypes.bfloat16, "f32": np.float32,
    "f64": np.float64, "pred": np.bool_, "c64": np.complex64,
}  # fmt: skip


@pytest.mark.parametrize("step", [2, 3, 4, 5, 8, 16, 31])
@pytest.mark.parametrize("kind", sorted(KINDS))
def test_slices_with_strides(kind: str, step: int) -> None:
    count, first = 1031, step - 1
    length = first + step * (count - 1) + 1
    rng = np.random.default_rng(step)
    x = rng.integers(0, 2 if kind == "pred" else 100, length).astype(KINDS[kind])
    text = f"""HloModule m
    ENTRY e {{
      x = {kind}[{length}] parameter(0)
      s = {kind}[{count}] slice(x), slice={{[{first}:{length}:{step}]}}
      r = {kind}[{length}] reverse(x), dimensions={{0}}
      t = {kind}[{count}] slice(r), slice={{[0:{length}:{step}]}}
      ROOT both = ({kind}[{count}], {kind}[{count}]) tuple(s, t)
    }}"""
    forward, backward = driver.compile(driver.parse(text), cache=False)(x)
    assert np.array_equal(forward, x[first::step])
    assert np.array_equal(backward, x[::-1][::step])


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("item_bytes", [1, 2, 4, 8])
@pytest.mark.parametrize("step", [-7, -3, -2, 2, 3, 4, 6, 16])
def test_a_stretch_ends_with_its_last_lane(step: int, item_bytes: int, lanes: int) -> None:
    found = stretch(step, lanes, item_bytes, 64)
    if found is None:
        assert (abs(step) * (lanes - 1) + 1) * item_bytes > 64 * 3
        return
    offsets = [found.starts[chunk] + place for chunk, place in found.sources]
    assert offsets == sorted((abs(step) * k for k in range(lanes)), reverse=step < 0)
    assert all(0 <= place < found.width for _, place in found.sources)
    assert min(found.starts) == 0
    assert max(found.starts) + found.width == abs(step) * (lanes - 1) + 1


@pytest.mark.parametrize("columns", [3, 4, 7])
@pytest.mark.parametrize("rows", [4096, 4096 + 65, 8300])
@pytest.mark.parametrize("kind", ["u8", "s16", "f32"])
def test_sums_over_short_rows(kind: str, rows: int, columns: int) -> None:
    text = f"""HloModule m
    add {{
      a = {kind}[] parameter(0)
      b = {kind}[] parameter(1)
      ROOT c = {kind}[] add(a, b)
    }}
    ENTRY e {{
      x = {kind}[{rows},{columns}] parameter(0)
      z = {kind}[] constant(1)
      ROOT r = {kind}[{rows}] reduce(x, z), dimensions={{1}}, to_apply=add
    }}"""
    module = driver.parse(text)
    x = np.random.default_rng(rows).integers(0, 36, (rows, columns)).astype(KINDS[kind])
    assert np.array_equal(driver.compile(module, cache=False)(x), 1 + x.sum(1, dtype=x.dtype))
    (kernel,) = Compilation(driver.optimize(module), passes="", threads=1).program.kernels
    assert kernel.text.count("\n") < 400  # what is written out per row is not copied too


def crossed(kind: str, rows: int) -> str:
    """Vectors of three numbers: as few rows as make every round a masked one."""
    names = [(name, of, k) for of in "xy" for k, name in enumerate((f"{of}a", f"{of}b", f"{of}c"))]
    column = f"{kind}[{rows},1]"
    cuts = "\n".join(
        f"  {name} = {column} slice({of}), slice={{[0:{rows}], [{k}:{k + 1}]}}"
        for name, of, k in names
    )
    pairs = [("b", "c"), ("c", "a"), ("a", "b")]
    parts = "\n".join(
        f"""  l{k} = {column} multiply(x{p}, y{q})
  r{k} = {column} multiply(x{q}, y{p})
  d{k} = {column} subtract(l{k}, r{k})"""
        for k, (p, q) in enumerate(pairs)
    )
    return f"""HloModule m
ENTRY e {{
  x = {kind}[{rows},3] parameter(0)
  y = {kind}[{rows},3] parameter(1)
{cuts}
{parts}
  ROOT z = {kind}[{rows},3] concatenate(d0, d1, d2), dimensions={{1}}
}}"""


def at_the_end_of_memory(values: np.ndarray) -> np.ndarray:
    """The values where a page ends behind which nothing may be touched."""
    page = mmap.PAGESIZE
    memory = mmap.mmap(-1, 2 * page)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.mprotect(ctypes.c_void_p(start + page), ctypes.c_size_t(page), 0) == 0
    first = page - values.nbytes
    array = np.frombuffer(memory, values.dtype, values.size, first).reshape(values.shape)
    array[...] = values
    return array


@pytest.mark.skipif(sys.platform != "linux", reason="pages are taken away as Linux does it")
@pytest.mark.parametrize("rows", [13, 19, 29])
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("machine", [None, "x86-64-v3", "x86-64"])
def test_rows_under_a_mask(kind: str, rows: int, machine: str | None) -> None:
    module = driver.parse(crossed(kind, rows))
    arrays = []
    for seed in (1, 2):
        values = np.random.default_rng(seed).integers(-9, 9, (rows, 3))
        arrays.append(at_the_end_of_memory(values.astype(KINDS[kind])))
    found = driver.compile(module, cache=False, machine=machine)(*arrays)
    expected = np.cross(*(a.astype(np.float64) for a in arrays))
    assert np.array_equal(found.astype(np.float64), expected)


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
def test_every_second_complex_number_is_not_gathered(machine: str) -> None:
    text = """HloModule m
    ENTRY e {
      x = c64[500] parameter(0)
      ROOT s = c64[250] slice(x), slice={[0:500:2]}
    }"""
    module = driver.optimize(driver.parse(text))
    text = driver.emit_stage(module, "llvm", machine=NAMED[machine])
    assert "masked.gather" not in text


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
def test_rows_under_a_mask_are_not_gathered(machine: str) -> None:
    module = driver.optimize(driver.parse(crossed("f32", 19)))
    text = driver.emit_stage(module, "llvm", machine=NAMED[machine])
    assert "masked.gather" not in text
    assert "masked.load" in text
