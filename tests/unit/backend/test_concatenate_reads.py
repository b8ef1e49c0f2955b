"""Concatenates that are not cut at their seams: no operand is read where another one stands."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.machine import named

SUMMED = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[3,60000] parameter(0)
  y = f32[3,16] parameter(1)
  zero = f32[] constant(0)
  c = f32[3,60016] concatenate(x, y), dimensions={1}
  ROOT r = f32[3] reduce(c, zero), dimensions={1}, to_apply=add
}
"""


def of_many(count: int) -> str:
    """A concatenate of more operands than it has boxes for."""
    shape = "f32[1,4096]"
    parts = "\n".join(f"  p{n} = {shape} parameter({n})" for n in range(count))
    names = ", ".join(f"p{n}" for n in range(count))
    root = f"ROOT r = f32[{count},4096] concatenate({names}), dimensions={{0}}"
    return f"HloModule m\nENTRY e {{\n{parts}\n  {root}\n}}\n"


@pytest.mark.parametrize("text", [SUMMED, of_many(72)], ids=["summed", "many"])
def test_the_last_operand_is_not_read_before_its_beginning(text: str) -> None:
    module = driver.parse(text)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry.parameters]
    executable = driver.compile(module, threads=2, cache=False)
    guarded = executable.run_guarded(*values)
    assert isinstance(guarded, np.ndarray)
    np.testing.assert_allclose(guarded, driver.evaluate(module, *values), rtol=1e-4, atol=1e-3)


ROTATED = """HloModule m
ENTRY e {
  x = f32[4,14,10,16] parameter(0)
  below = f32[4,11,10,16] slice(x), slice={[0:4], [3:14], [0:10], [0:16]}
  above = f32[4,3,10,16] slice(x), slice={[0:4], [0:3], [0:10], [0:16]}
  rows = f32[4,14,10,16] concatenate(below, above), dimensions={1}
  right = f32[4,14,6,16] slice(rows), slice={[0:4], [0:14], [4:10], [0:16]}
  left = f32[4,14,4,16] slice(rows), slice={[0:4], [0:14], [0:4], [0:16]}
  turned = f32[4,14,10,16] concatenate(right, left), dimensions={2}
  windows = f32[4,2,7,2,5,16] reshape(turned)
  ROOT r = f32[4,2,2,7,5,16] transpose(windows), dimensions={0,1,3,2,4,5}
}
"""


# The columns that were rotated are rotated again: how far places are apart is no constant then.
TWICE = ROTATED.replace("reshape(turned)", "reshape(again)").replace(
    "  windows",
    """  more = f32[4,14,7,16] slice(turned), slice={[0:4], [0:14], [3:10], [0:16]}
  less = f32[4,14,3,16] slice(turned), slice={[0:4], [0:14], [0:3], [0:16]}
  again = f32[4,14,10,16] concatenate(more, less), dimensions={2}
  windows""",
    1,
)


@pytest.mark.parametrize("text", [ROTATED, TWICE], ids=["once", "twice"])
def test_a_rotation_is_read_by_one_load(text: str) -> None:
    """Windows of a rotated image: rows and columns choose where, no masks and no blends."""
    module = driver.parse(text)
    text = driver.emit_stage(driver.optimize(module), "llvm", machine=named("x86-64-v4"))
    kernels = [function for function in text.split("\ndefine ") if "load <16 x float>" in function]
    assert [function.count("load <16 x float>") for function in kernels] == [1]
    assert "masked.load" not in kernels[0]
    x = np.arange(4 * 14 * 10 * 16, dtype=np.float32).reshape(4, 14, 10, 16)
    guarded = driver.compile(module, threads=2, cache=False).run_guarded(x)
    np.testing.assert_array_equal(guarded, driver.evaluate(module, x))


def test_rows_of_two_arrays_are_not_one_place() -> None:
    """The other array's rows lie elsewhere: each has a load of its own, and where it holds."""
    text = ROTATED.replace("x = f32", "y = f32[4,3,10,16] parameter(1)\n  x = f32", 1)
    text = text.replace("rows = f32[4,14,10,16] concatenate(below, above)",
                        "rows = f32[4,14,10,16] concatenate(below, y)")  # fmt: skip
    module = driver.parse(text)
    rng = np.random.default_rng(0)
    values = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry.parameters]
    guarded = driver.compile(module, threads=2, cache=False).run_guarded(*values)
    np.testing.assert_array_equal(guarded, driver.evaluate(module, *values))


HALVES = """HloModule m
ENTRY e {
  x = f16[5,40] parameter(0)
  z = f16[] constant(0)
  last = f16[1,40] slice(x), slice={[4:5], [0:40]}
  first = f16[4,40] slice(x), slice={[0:4], [0:40]}
  turned = f16[5,40] concatenate(last, first), dimensions={0}
  p = f16[5,43] pad(turned, z), padding=0_0x2_1
  low = f16[3,43] slice(p), slice={[2:5], [0:43]}
  high = f16[2,43] slice(p), slice={[2:4], [0:43]}
  c = f16[5,43] concatenate(low, high), dimensions={0}
  right = f16[5,39] slice(c), slice={[0:5], [4:43]}
  left = f16[5,4] slice(c), slice={[0:5], [0:4]}
  ROOT r = f16[5,43] concatenate(right, left), dimensions={1}
}
"""
SUM = """HloModule m
add { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT r = s32[] add(a, b) }
ENTRY e {
  x = s32[1,8] parameter(0)
  z = s32[] constant(0)
  p = s32[5,8] pad(x, z), padding=2_2x0_0
  f = s32[40] reshape(p)
  s = s32[14] slice(f), slice={[13:27]}
  ROOT r = s32[] reduce(s, z), dimensions={0}, to_apply=add
}
"""


def test_halves_that_are_only_moved_are_chosen_as_codes() -> None:
    """Constants beside the array's rows are codes as well, where no element is computed."""
    module = driver.parse(HALVES)
    x = np.arange(200, dtype=np.float16).reshape(5, 40)
    result = driver.compile(module, threads=1, cache=False)(x)
    np.testing.assert_array_equal(result, driver.evaluate(module, x))


def test_rows_of_a_reshaped_pad_are_summed_to_a_scalar() -> None:
    """The result has no dimension that could be cut where the padding begins."""
    module = driver.parse(SUM)
    x = np.arange(1, 9, dtype=np.int32).reshape(1, 8)
    assert driver.compile(module, threads=1, cache=False)(x) == driver.evaluate(module, x)
