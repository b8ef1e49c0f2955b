"""Arrays on their way in and out of a jitted function: NumPy's, JAX's, keys, numbers.

Memory is shared wherever element type and alignment allow: a jax array is seen by the buffer
protocol, a result becomes one by DLPack.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from hlo.errors import HloError
from hlo.formats.jax_program import Result
from hlo.runtime.dlpack import CODES, to_dlpack
from hlo.tools import jax_door


def numpy_leaf(value: Any, dtype: np.dtype | None) -> object:
    """An argument's leaf as its parameter takes it: cast as JAX casts, keys as their numbers."""
    if type(value) is np.ndarray and value.dtype is dtype:
        return value
    if dtype is None:
        return None
    if not isinstance(value, np.ndarray | np.generic | int | float | complex):
        value = _of_jax(value)
    return np.asarray(value, dtype)


def _of_jax(value: Any) -> Any:
    jax = jax_door.jax()
    if hasattr(value, "__jax_array__"):
        value = value.__jax_array__()
    if isinstance(value, jax.Array):
        if not jax_door.single_device(value):
            raise HloError("unsupported", "an array on several devices, or not the CPU's")
        if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
            value = jax.random.key_data(value)
    return value


def jax_array(array: np.ndarray) -> Any:
    """A result as a jax array over its memory."""
    if array.dtype.isbuiltin == 1:
        return jax_door.importer()(array.__dlpack__())
    if array.dtype.name in CODES:
        return jax_door.importer()(to_dlpack(array).__dlpack__())
    return jax_door.jax().numpy.asarray(array)  # fewer bits than 8, which DLPack has not


def result_maker(result: Result, *, as_jax: bool) -> Callable[[Any], Any] | None:
    """What makes of a result's array what the function gives; None where it is the array itself."""
    jax = jax_door.jax()
    if jax.dtypes.issubdtype(result.dtype, jax.dtypes.prng_key):
        kind = jax_door.key_kind(result.dtype)
        return lambda array: jax.random.wrap_key_data(jax_array(array), impl=kind)
    if result.dtype == jax.dtypes.float0:
        return lambda array: np.zeros(array.shape, jax.dtypes.float0)
    if not as_jax:
        return None
    if result.is_weak:
        return lambda array: jax_door.weakly_typed(jax_array(array))
    return _direct(np.dtype(result.dtype))


def _direct(dtype: np.dtype) -> Callable[[np.ndarray], Any]:
    """The same as `jax_array` for one type, with what that asks of the type asked before."""
    if dtype.isbuiltin != 1:
        return jax_array
    convert = jax_door.importer()
    return lambda array: convert(array.__dlpack__())
