"""hlo.jit gives what jax.jit gives: values, types, trees, for functions across JAX's API."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import hlo
from tests.support import with_jax

if not with_jax.available():
    pytest.skip("needs jax", allow_module_level=True)

import jax  # behind the check

from tests.support.jax_functions import FUNCTIONS

pytestmark = [pytest.mark.oracle, pytest.mark.filterwarnings("ignore")]
LOOSE = {"linalg.pinv": 1e-3, "linalg.inv": 1e-3, "bfloat16": 2e-2, "float16": 2e-3}


def close(ours: Any, theirs: Any, bound: float) -> None:
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert (ours.dtype, ours.shape) == (theirs.dtype, theirs.shape)
    wide = np.complex128 if theirs.dtype.kind == "c" else np.float64
    scale = np.abs(theirs.astype(wide)).max(initial=0.0, where=np.isfinite(theirs.astype(wide)))
    np.testing.assert_allclose(
        ours.astype(wide), theirs.astype(wide), rtol=bound, atol=bound * max(scale, 1e-3)
    )


@pytest.mark.parametrize("number", range(len(FUNCTIONS)), ids=list(FUNCTIONS))
def test_as_jax_jit(number: int) -> None:
    """One mode each, in turn; the other one in the slow tests."""
    check_function(list(FUNCTIONS)[number], x64=number % 2 == 1)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(FUNCTIONS)), ids=list(FUNCTIONS))
def test_as_jax_jit_in_the_other_mode(number: int) -> None:
    check_function(list(FUNCTIONS)[number], x64=number % 2 == 0)


def check_function(name: str, *, x64: bool) -> None:
    f, arguments = FUNCTIONS[name]
    with with_jax.enable_x64(x64):
        theirs = jax.jit(f)(*arguments)
        ours = hlo.jit(f)(*arguments)
        assert jax.tree.structure(ours) == jax.tree.structure(theirs)
        for a, b in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
            close(a, b, LOOSE.get(name, 2e-5))
