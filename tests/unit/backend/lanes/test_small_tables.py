"""Arrays that a register or two hold are read by a permutation."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.machine import named


def program(dtype: str, size: int) -> str:
    return f"""HloModule m
ENTRY e {{
  t = {dtype}[{size}] parameter(0)
  i = s32[7,45,1] parameter(1)
  ROOT g = {dtype}[7,45] gather(t, i), offset_dims={{}}, collapsed_slice_dims={{0}},
    start_index_map={{0}}, index_vector_dim=2, slice_sizes={{1}}
}}
"""


@pytest.mark.parametrize("size", [2, 5, 8, 9, 16, 17, 31, 32, 33])
@pytest.mark.parametrize("dtype", ["f32", "s32", "u32"])
def test_each_element_is_found_and_indices_beyond_are_clamped(dtype: str, size: int) -> None:
    module = driver.parse(program(dtype, size))
    numpy = module.entry.parameters[0].shape.dtype.numpy
    rng = np.random.default_rng(size)
    table = rng.integers(0, 1 << 31, size).astype(np.uint32).view(numpy)
    index = rng.integers(-3, size + 3, (7, 45, 1)).astype(np.int32)
    guarded = driver.compile(module, threads=1, cache=False).run_guarded(table, index)
    assert isinstance(guarded, np.ndarray)
    wanted = table[np.clip(index[..., 0], 0, size - 1)]
    np.testing.assert_array_equal(guarded.view(np.uint32), wanted.view(np.uint32))


@pytest.mark.parametrize(
    ("machine", "size", "is_held"),
    [
        ("x86-64-v4", 16, True),
        ("x86-64-v4", 32, True),
        ("x86-64-v4", 33, False),
        ("x86-64-v3", 8, True),
        ("x86-64-v3", 9, False),
    ],
)
def test_the_machine_says_how_many_registers_are_picked_from(
    machine: str, size: int, *, is_held: bool
) -> None:
    module = driver.optimize(driver.parse(program("f32", size)))
    text = driver.emit_stage(module, "llvm", machine=named(machine))
    assert any(name in text for name in ("permvar.sf.512", "vpermi2var.ps", "permps")) == is_held
