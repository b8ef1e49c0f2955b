"""bf16 and f64 columns divided by a reduction of theirs: products that round as the divisions
would."""

import ml_dtypes
import numpy as np

from hlo import driver
from hlo.backend.compilation import Compilation
from tests.support.by_threads import for_threads

SOURCE = """HloModule m
max { a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT c = bf16[] maximum(a, b) }
ENTRY e {
  x = bf16[40,96] parameter(0)
  z = bf16[40,96] parameter(1)
  least = bf16[] constant(-inf)
  top = bf16[96] reduce(z, least), dimensions={0}, to_apply=max
  tops = bf16[40,96] broadcast(top), dimensions={1}
  ROOT r = bf16[40,96] divide(x, tops)
}"""


def test_quotients_round_as_divisions_do() -> None:
    rng = np.random.default_rng(0)
    codes = rng.integers(0, 1 << 16, (2, 40, 96)).astype(np.uint16)
    codes[1, :, :48] = codes[1, 0, :48]
    codes[1, :, :8] = [0, 0x8000, 0x7F80, 0xFF80, 0x7FC0, 1, 0x8001, 0x7F7F]
    x, z = codes.view(ml_dtypes.bfloat16)
    got = driver.compile(driver.parse(SOURCE), threads=1, cache=False)(x, z)
    with np.errstate(all="ignore"):
        want = (x.astype(np.float32) / z.astype(np.float32).max(0)).astype(ml_dtypes.bfloat16)
    assert np.array_equal(np.isnan(got.astype(np.float32)), np.isnan(want.astype(np.float32)))
    known = ~np.isnan(want.astype(np.float32))
    assert np.array_equal(got.view(np.uint16)[known], want.view(np.uint16)[known])


def test_columns_are_divided_once_each() -> None:
    module = driver.optimize(driver.parse(SOURCE))
    (text,) = [m.text for m in Compilation(module, passes="", threads=1).ir if "@k_" in m.text]
    inside = text[text.rindex("store") - 2000 : text.rindex("store")]
    assert "fdiv" in text
    assert "fdiv" not in inside


def test_doubles_are_the_quotients_too() -> None:
    rng = np.random.default_rng(1)
    x, z = np.exp(rng.uniform(-40, 40, (2, 40, 96))) * rng.choice([-1.0, 1.0], (2, 40, 96))
    z[:, 32:] = np.abs(z[:, 32:])
    z[:, 40:44] = [0.0, np.inf, np.nan, 5e-324]
    x[3, 64:70] = [0.0, -0.0, np.inf, np.nan, 5e-324, 1e308]
    module = driver.parse(SOURCE.replace("bf16", "f64"))
    with np.errstate(all="ignore"):
        want = x / z.max(0)
    for threads in (1, 2):
        got = for_threads(module, threads=threads)(x, z)
        assert np.array_equal(got, want, equal_nan=True)
        assert np.array_equal(np.signbit(got[want == 0]), np.signbit(want[want == 0]))
