"""Arrays on their way in and out of a jitted function: NumPy's, JAX's, keys, numbers.

Memory is shared wherever element type and alignment allow: a jax array is seen by the buffer
protocol, a result becomes one over its memory where that begins a line of 64 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hlo.errors import HloError
from hlo.formats.jax_program import Result
from hlo.tools.jax import jax_door


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


def seen(leaves: Sequence[Any]) -> list[Any] | None:
    """Leaves of which the jax arrays are NumPy's over their memory; None where one's type is weak,
    or it lies elsewhere.
    """
    kind = jax_door.private("ArrayImpl")
    found = list(leaves)
    for n, leaf in enumerate(leaves):
        if type(leaf) is kind:
            if leaf.weak_type or not jax_door.single_device(leaf):
                return None
            found[n] = np.asarray(leaf)
    return found


def result_maker(
    result: Result, dims: tuple[int, ...], *, as_jax: bool
) -> Callable[[Any], Any] | None:
    """What makes of a result's array what the function gives; None where it is the array itself."""
    jax = jax_door.jax()
    if result.dtype is None:
        token = jax.lax.create_token()
        return lambda _: token
    if jax.dtypes.issubdtype(result.dtype, jax.dtypes.prng_key):
        kind = jax_door.key_kind(result.dtype)
        return lambda array: jax.random.wrap_key_data(jax.numpy.asarray(array), impl=kind)
    if result.dtype == jax.dtypes.float0:
        return lambda array: np.zeros(array.shape, jax.dtypes.float0)
    if not as_jax:
        return None
    return jax_door.placing(dims, np.dtype(result.dtype), is_weak=result.is_weak)
