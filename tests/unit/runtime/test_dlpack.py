"""DLPack in and out: no copies, every element type, memory that lives as long as it is used."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import ml_dtypes
import numpy as np
import pytest

import hlo
from hlo.runtime import dlpack
from hlo.runtime.arguments import as_array

TYPES = [np.float32, np.int8, np.uint16, np.complex64, np.bool_, ml_dtypes.bfloat16,
         ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2]  # fmt: skip


class Tensor:
    """As torch's bf16 tensors: `__array__` raises, `__dlpack__` works."""

    def __init__(self, array: np.ndarray) -> None:
        self._offered = hlo.to_dlpack(array)

    def __array__(self, *_: object, **__: object) -> np.ndarray:
        raise TypeError("Got unsupported ScalarType BFloat16")

    def __dlpack__(self, **keywords: object) -> object:
        return self._offered.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._offered.__dlpack_device__()


@pytest.mark.parametrize("dtype", TYPES)
def test_arrays_pass_without_copies(dtype: type) -> None:
    array = np.arange(12).reshape(3, 4).astype(dtype)
    for view in (array, array.T, array[::-1, ::2], array[:0], array[1, 2]):
        taken = as_array(Tensor(np.asarray(view)))
        assert taken is not None
        assert taken.dtype == array.dtype
        np.testing.assert_array_equal(taken.astype(np.complex64), view.astype(np.complex64))
        assert not taken.size or np.shares_memory(taken, array) or not view.ndim


@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_programs_take_and_offer(dtype: type) -> None:
    name = {np.float32: "f32", ml_dtypes.bfloat16: "bf16"}[dtype]
    module = hlo.parse(f"HloModule m\nENTRY e {{ x = {name}[8] parameter(0)\n"
                       f"  ROOT y = {name}[8] add(x, x) }}")  # fmt: skip
    executable = hlo.compile(module)
    result = executable(Tensor(np.arange(8).astype(dtype)))
    assert isinstance(result, np.ndarray)
    again = as_array(Tensor(result))
    assert again is not None
    np.testing.assert_array_equal(again.astype(np.float32), 2.0 * np.arange(8))
    assert np.shares_memory(again, result)


def test_numpy_takes_what_is_offered() -> None:
    array = np.arange(6, dtype=np.float64).reshape(2, 3)
    taken = np.from_dlpack(hlo.to_dlpack(array))
    assert np.shares_memory(taken, array)
    np.testing.assert_array_equal(taken, array)
    copied = np.from_dlpack(hlo.to_dlpack(array), copy=True)
    assert not np.shares_memory(copied, array)


def test_memory_lives_as_long_as_it_is_used() -> None:
    array = np.full(1000, 7, ml_dtypes.bfloat16)
    ended = weakref.ref(array)
    taken = as_array(Tensor(array))
    del array
    gc.collect()
    assert taken is not None
    assert ended() is not None
    part = taken[10:20]
    del taken
    gc.collect()
    assert (part == 7).all()
    del part
    gc.collect()
    assert ended() is None


def test_capsules_that_nobody_takes_end() -> None:
    array = np.ones(3, ml_dtypes.bfloat16)
    ended = weakref.ref(array)
    hlo.to_dlpack(array).__dlpack__()
    del array
    gc.collect()
    assert ended() is None


def test_what_dlpack_cannot_say_is_refused() -> None:
    with pytest.raises((BufferError, RuntimeError)):
        hlo.to_dlpack(np.array(["text"])).__dlpack__()
    with pytest.raises((BufferError, RuntimeError)):
        np.from_dlpack(hlo.to_dlpack(np.ones(2, ml_dtypes.bfloat16)))  # no type of NumPy's
    capsule = hlo.to_dlpack(np.ones(2)).__dlpack__()
    assert isinstance(dlpack._tensor(capsule), dlpack._Tensor)
    with pytest.raises(BufferError, match="can be taken"):
        dlpack._tensor("no capsule")


JAX = """
import os, jax.numpy as jnp, numpy as np, hlo
m = hlo.parse("HloModule m\\nENTRY e { x = bf16[64] parameter(0)\\n ROOT y = bf16[64] add(x, x) }")
x = jnp.arange(64, dtype=jnp.bfloat16)
y = hlo.compile(m)(x)
z = jnp.from_dlpack(hlo.to_dlpack(y))
assert z.dtype == jnp.bfloat16 and (z == 2 * x).all()
w = hlo.compile(m)(hlo.to_dlpack(y))
assert (w == 2 * y).all()
os._exit(0)  # JAX at exit may wait for a thread that gives memory back and waits for the lock
"""


def test_jax_arrays_both_ways() -> None:
    pytest.importorskip("jax")
    done = subprocess.run(
        [sys.executable, "-c", JAX], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
