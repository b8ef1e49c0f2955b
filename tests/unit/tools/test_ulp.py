"""ULP distance for every float type: adjacent values differ by 1."""

import numpy as np
import pytest

from hlo.ir.dtype import ARRAY_TYPES, DType
from hlo.tools.comparison.ulp import ordinals, spacing, ulp_distance

FLOATS = [t for t in ARRAY_TYPES if t.is_float]
NARROW = [t for t in FLOATS if t.bits <= 16]


def all_values(dtype: DType) -> np.ndarray:
    word = np.uint8 if dtype.bits <= 8 else np.uint16
    codes = np.arange(1 << dtype.bits, dtype=np.uint32).astype(word)
    return codes.view(dtype.numpy)


@pytest.mark.parametrize("dtype", NARROW, ids=str)
def test_ordinals_follow_the_values(dtype: DType) -> None:
    values = all_values(dtype)
    with np.errstate(invalid="ignore"):  # signalling NaNs
        wide = values.astype(np.float64)
    finite = np.isfinite(wide)
    order = np.argsort(wide[finite], kind="stable")
    steps = np.diff(ordinals(values)[finite][order])
    assert set(steps.tolist()) <= {0, 1}
    same = np.diff(wide[finite][order]) == 0
    assert ((steps == 0) == same).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_spacing_is_the_step_to_the_next_value(dtype: DType) -> None:
    for start in (1.0, 2.0):
        x = np.array([start]).astype(dtype.numpy)
        code = x.view(f"u{dtype.item_bytes}")
        following = (code + code.dtype.type(1)).view(dtype.numpy).astype(np.float64)
        assert spacing(x)[0] == following[0] - start


@pytest.mark.parametrize("dtype", [t for t in FLOATS if t.float_format.nan == "ieee"], ids=str)  # type: ignore[union-attr]  # a float type
def test_distances_of_special_values(dtype: DType) -> None:
    values = np.array([0.0, -0.0, np.nan, np.inf, -np.inf]).astype(dtype.numpy)
    zero, minus, nan, inf, _ = (values[i : i + 1] for i in range(5))
    assert ulp_distance(zero, minus)[0] == 0
    assert ulp_distance(nan, nan)[0] == 0
    assert ulp_distance(nan, zero)[0] == np.inf
    assert ulp_distance(inf, inf)[0] == 0
    assert ulp_distance(inf, zero)[0] > 10


def test_largest_distance_of_f64_does_not_overflow() -> None:
    greatest = np.finfo(np.float64).max
    distance = ulp_distance(np.array([greatest]), np.array([-greatest]))[0]
    assert distance == pytest.approx(2 * 0x7FEFFFFFFFFFFFFF, rel=1e-15)
