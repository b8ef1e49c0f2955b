"""Functions of scalars give the bits that lanes of vectors give, special values included."""

import numpy as np
import pytest

from hlo import driver

TYPES = {"f32": (np.float32, np.uint32), "f64": (np.float64, np.uint64)}
SPECIAL = (0.0, -0.0, np.inf, -np.inf, np.nan, 1.0, -1.0, 1e-40, -1e-42, 1e-310, 1e38, -0.5, -0.999)
NEAR_LIMITS = (
    88.0,
    89.0,
    -87.3,
    -87.4,
    -100.5,
    -103.9,
    -104.1,
    709.7,
    710.1,
    -708.5,
    -744.9,
    -746.0,
)


@pytest.mark.parametrize("opcode", ["exponential", "log", "log-plus-one", "cbrt", "logistic"])
@pytest.mark.parametrize("dtype", TYPES)
def test_scalars_have_the_bits_of_lanes(opcode: str, dtype: str) -> None:
    real, integer = TYPES[dtype]
    random = np.random.default_rng(3).standard_normal(60) * 20
    values = np.array([*SPECIAL, *NEAR_LIMITS, *random]).astype(real)
    text = "HloModule m\nENTRY e {{ x = {0} parameter(0)\n ROOT r = {0} {1}(x) }}"
    lanes = driver.compile(driver.parse(text.format(f"{dtype}[{values.size}]", opcode)))
    single = driver.compile(driver.parse(text.format(f"{dtype}[]", opcode)))
    found = np.array([np.asarray(single(np.array(v))) for v in values], real)
    expected = np.asarray(lanes(values))
    same = found.view(integer) == expected.view(integer)
    assert np.all(same | (np.isnan(found) & np.isnan(expected)))
