"""Arrays, and rows of them, that a few registers hold are read by permutations."""

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


def rows(dtype: str, size: int, picked: int) -> str:
    """Each row's elements in another order."""
    return f"""HloModule m
ENTRY e {{
  t = {dtype}[7,{size}] parameter(0)
  i = s32[{picked},1] parameter(1)
  ROOT g = {dtype}[7,{picked}] gather(t, i), offset_dims={{0}}, collapsed_slice_dims={{1}},
    start_index_map={{1}}, index_vector_dim=1, slice_sizes={{7,1}}
}}
"""


@pytest.mark.parametrize("size", [2, 5, 8, 9, 16, 17, 31, 32, 33, 48, 63, 64, 65])
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
        ("x86-64-v4", 33, True),
        ("x86-64-v4", 64, True),
        ("x86-64-v4", 65, False),
        ("x86-64-v3", 8, True),
        ("x86-64-v3", 16, True),
        ("x86-64-v3", 17, False),
    ],
)
def test_the_machine_says_how_many_registers_are_picked_from(
    machine: str, size: int, *, is_held: bool
) -> None:
    for text in (program("f32", size), rows("f32", size, 45)):
        assert has_permutations(text, machine) == is_held


def has_permutations(text: str, machine: str) -> bool:
    code = driver.emit_stage(driver.optimize(driver.parse(text)), "llvm", machine=named(machine))
    return any(name in code for name in ("permvar.sf.512", "vpermi2var.ps", "permps"))


@pytest.mark.parametrize("size", [65, 100, 127, 128, 129, 200, 253, 255, 256, 257])
@pytest.mark.parametrize("dtype", ["u8", "s8", "u16", "bf16", "f16"])
def test_parts_of_words_are_found(dtype: str, size: int) -> None:
    for text, shape in ((program(dtype, size), (size,)), (rows(dtype, size, 45), (7, size))):
        module = driver.parse(text)
        numpy = module.entry.parameters[0].shape.dtype.numpy
        rng = np.random.default_rng(size)
        bits = np.uint8 if numpy.itemsize == 1 else np.uint16
        table = rng.integers(0, np.iinfo(bits).max, shape).astype(bits)
        index = rng.integers(-3, size + 3, module.entry.parameters[1].shape.dims).astype(np.int32)
        compiled = driver.compile(module, threads=1, cache=False)
        guarded = compiled.run_guarded(table.view(numpy), index)
        assert isinstance(guarded, np.ndarray)
        wanted = table[..., np.clip(index[..., 0], 0, size - 1)]
        assert guarded.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("dtype", "size", "machine", "is_held"),
    [
        ("u8", 256, "x86-64-v4", True),
        ("u8", 257, "x86-64-v4", False),
        ("bf16", 128, "x86-64-v4", True),
        ("bf16", 129, "x86-64-v4", False),
        ("u8", 65, "x86-64-v3", False),  # no masks for loads of bytes
    ],
)
def test_parts_of_words_are_held(dtype: str, size: int, machine: str, *, is_held: bool) -> None:
    assert has_permutations(program(dtype, size), machine) == is_held


@pytest.mark.parametrize("picked", [3, 24, 45])
@pytest.mark.parametrize("size", [2, 3, 9, 16, 17, 33, 64, 65])
@pytest.mark.parametrize("dtype", ["f32", "u32", "bf16", "s16", "u8", "pred"])
def test_each_element_of_a_row_is_found(dtype: str, size: int, picked: int) -> None:
    module = driver.parse(rows(dtype, size, picked))
    numpy = module.entry.parameters[0].shape.dtype.numpy
    rng = np.random.default_rng(size)
    table = rng.integers(0, 2 if dtype == "pred" else 100, (7, size)).astype(numpy)
    index = rng.integers(-3, size + 3, (picked, 1)).astype(np.int32)
    guarded = driver.compile(module, threads=1, cache=False).run_guarded(table, index)
    assert isinstance(guarded, np.ndarray)
    wanted = table[:, np.clip(index[:, 0], 0, size - 1)]
    assert guarded.tobytes() == wanted.tobytes()


@pytest.mark.parametrize(
    ("dtype", "picked", "machine", "is_held"),
    [
        ("u8", 24, "x86-64-v4", True),
        ("u8", 24, "x86-64-v3", False),  # no masks for loads of bytes
        ("f32", 2, "x86-64-v3", False),  # a row takes longer to load than two elements
    ],
)
def test_rows_are_held_where_that_takes_less_than_lanes_do(
    dtype: str, picked: int, machine: str, *, is_held: bool
) -> None:
    assert has_permutations(rows(dtype, 7, picked), machine) == is_held
