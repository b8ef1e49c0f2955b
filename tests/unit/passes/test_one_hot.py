"""Products with one-hot rows: what they come to for infinities, NaN, -0 and indices of no row."""

import numpy as np
import pytest

import hlo
from hlo.passes.contraction.one_hot_rewriter import one_hot_rewriter

TEXT = """HloModule m
ENTRY e {
  i = s32[8,16] parameter(0)
  w = TYPE[70,130] parameter(1)
  y = TYPE[8,16,130] parameter(2)
  index = s32[8,16,70] broadcast(i), dimensions={0,1}
  count = s32[70] iota(), iota_dimension=0
  counts = s32[8,16,70] broadcast(count), dimensions={2}
  is = pred[8,16,70] compare(counts, index), direction=EQ
  hot = TYPE[8,16,70] convert(is)
  a = RESULT[8,16,130] dot(hot, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  b = RESULT[130,70] dot(y, hot), lhs_contracting_dims={0,1}, rhs_contracting_dims={0,1}
  ROOT r = (RESULT[8,16,130], RESULT[130,70]) tuple(a, b)
}"""
TYPES = [("f32", "f32"), ("f16", "f32"), ("f32", "bf16"), ("f64", "f64"), ("s8", "s32")]


@pytest.mark.parametrize(("of", "result"), TYPES)
@pytest.mark.parametrize("special", ["none", "-0", "nan", "inf"])
def test_picked_rows_are_the_product(of: str, result: str, special: str) -> None:
    text = TEXT.replace("TYPE", of).replace("RESULT", result)
    module = hlo.parse(text)
    rng = np.random.default_rng(3)
    kind = module.entry.parameters[1].shape.dtype.numpy
    index = rng.integers(-3, 75, (8, 16)).astype(np.int32)
    index[0, :2] = [-(2**31), 2**31 - 1]
    arrays = [rng.integers(-100, 100, d).astype(kind) for d in ((70, 130), (8, 16, 130))]
    if special != "none" and of != "s8":
        for array in arrays:
            array.reshape(-1)[::97] = float(special)
    expected = hlo.evaluate(module, index, *arrays)
    for threads in (1, 2):
        made = hlo.compile(hlo.parse(text), threads=threads)(index, *arrays)
        for one, other in zip(made, expected, strict=True):
            numbers, wanted = np.asarray(one, np.float64), np.asarray(other, np.float64)
            np.testing.assert_array_equal(numbers, wanted)
            assert np.all((np.signbit(numbers) == np.signbit(wanted)) | np.isnan(wanted))


def test_it_is_done_once() -> None:
    module = hlo.parse(TEXT.replace("TYPE", "f32").replace("RESULT", "f32"))
    assert one_hot_rewriter(module)
    hlo.verify(module)
    assert not one_hot_rewriter(module)
