"""What only moves a float keeps its bits, whichever NaN it is: scalars, vectors, in kernels, loops.

The lanes of narrow floats are wider than their codes, and instructions that widen make signalling
NaNs quiet; codes have to come along.
"""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from tests.support.covering import covering
from tests.support.narrow import codes_of, every_code, of_codes

SIZE = 21  # vectors, and a rest
FLOATS = [t for t in dt.ARRAY_TYPES if t.float_format is not None and t.float_format.nan != "none"]
PROGRAMS = {
    "broadcast": "ROOT r = T[21] broadcast(s), dimensions={}",
    "select": "b = T[21] broadcast(s), dimensions={}\n ROOT r = T[21] select(p, b, v)",
    "select of scalars": """q = pred[] constant(true)
 z = T[] constant(1)
 k = T[] select(q, s, z)
 ROOT r = T[21] broadcast(k), dimensions={}""",
    "select of a constant": """b = T[21] broadcast(s), dimensions={}
 z = T[] constant(1)
 w = T[21] broadcast(z), dimensions={}
 ROOT r = T[21] select(p, b, w)""",
    "selects of selects": """b = T[21] broadcast(s), dimensions={}
 w = T[21] select(p, v, b)
 a = T[21] reverse(v), dimensions={0}
 ROOT r = T[21] select(p, a, w)""",
    "pad": "ROOT r = T[28] pad(v, s), padding=3_4",
    "pad of a select": """b = T[21] broadcast(s), dimensions={}
 w = T[21] select(p, v, b)
 ROOT r = T[45] pad(w, s), padding=1_3_1""",
    "concatenate": """b = T[1] reshape(s)
 ROOT r = T[43] concatenate(v, b, v), dimensions={0}""",
    "reverse": """b = T[21] broadcast(s), dimensions={}
 c = T[42] concatenate(b, v), dimensions={0}
 ROOT r = T[42] reverse(c), dimensions={0}""",
    "slice": """b = T[21] broadcast(s), dimensions={}
 c = T[21] select(p, b, v)
 ROOT r = T[10] slice(c), slice={[1:21:2]}""",
    "dynamic-slice": """b = T[21] broadcast(s), dimensions={}
 c = T[21] select(p, b, v)
 ROOT r = T[9] dynamic-slice(c, i), dynamic_slice_sizes={9}""",
    "dynamic-update-slice": """b = T[1] reshape(s)
 ROOT r = T[21] dynamic-update-slice(v, b, i)""",
    "transpose": """b = T[3,21] broadcast(s), dimensions={}
 q = pred[3,21] broadcast(p), dimensions={1}
 w = T[3,21] broadcast(v), dimensions={1}
 c = T[3,21] select(q, b, w)
 ROOT r = T[21,3] transpose(c), dimensions={1,0}""",
    "gather": """b = T[1] reshape(s)
 c = T[22] concatenate(b, v), dimensions={0}
 x = s32[4,1] constant({{0},{1},{0},{7}})
 ROOT r = T[4] gather(c, x), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0},
  index_vector_dim=1, slice_sizes={1}""",
    "while": """t = (s32[], T[], T[21]) tuple(i, s, v)
 w = (s32[], T[], T[21]) while(t), condition=again, body=step
 ROOT r = T[21] get-tuple-element(w), index=2""",
    "while, a scalar": """t = (s32[], T[], T[21]) tuple(i, s, v)
 w = (s32[], T[], T[21]) while(t), condition=again, body=step
 ROOT r = T[] get-tuple-element(w), index=1""",
    "conditional": """q = pred[] compare(i, i), direction=EQ
 ROOT r = T[] conditional(q, s, s), true_computation=same, false_computation=same""",
}
MODULE = """HloModule m
same { ROOT x = T[] parameter(0) }
again { t = (s32[], T[], T[21]) parameter(0)
 n = s32[] get-tuple-element(t), index=0
 k = s32[] constant(5)
 ROOT c = pred[] compare(n, k), direction=LT }
step { t = (s32[], T[], T[21]) parameter(0)
 n = s32[] get-tuple-element(t), index=0
 one = s32[] constant(1)
 m = s32[] add(n, one)
 s = T[] get-tuple-element(t), index=1
 v = T[21] get-tuple-element(t), index=2
 k = s32[] constant(3)
 q = pred[] compare(n, k), direction=EQ
 u = s32[21] iota(), iota_dimension=0
 ks = s32[21] broadcast(k), dimensions={}
 g = pred[21] compare(u, ks), direction=GT
 qs = pred[21] broadcast(q), dimensions={}
 h = pred[21] and(g, qs)
 b = T[21] broadcast(s), dimensions={}
 w = T[21] select(h, b, v)
 ROOT r = (s32[], T[], T[21]) tuple(m, s, w) }
ENTRY e { s = T[] parameter(0)
 v = T[21] parameter(1)
 p = pred[21] parameter(2)
 i = s32[] parameter(3)
 BODY }"""


def nan_codes(dtype: DType) -> np.ndarray:
    """All of a type with few codes; of others the ends of both signs, and some between."""
    form = dtype.float_format
    assert form is not None
    if dtype.bits <= 8:
        codes = every_code(dtype)
        return np.asarray(codes[np.isnan(of_codes(codes, dtype).astype(np.float32))])
    digits, unsigned = form.mantissa, np.dtype(f"u{dtype.item_bytes}")
    first = ((1 << form.exponent) - 1) << digits
    quiet = 1 << (digits - 1)
    low = [1, 2, quiet - 1, quiet, quiet | 1, 2 * quiet - 1, quiet // 2, 3 * quiet // 2]
    both = [first | c | sign << (dtype.bits - 1) for c in low for sign in (0, 1)]
    return np.array(both, unsigned)


@pytest.mark.parametrize(
    ("program", "dtype"),
    covering(PROGRAMS, [t for t in FLOATS if len(nan_codes(t)) > 2], strength=1),
)
def test_nans_keep_their_bits(dtype: DType, program: str) -> None:
    check(dtype, program)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("dtype", [t for t in FLOATS if len(nan_codes(t)) <= 2], ids=str)
def test_one_or_two_nans_keep_their_bits(dtype: DType, program: str) -> None:
    """pytest -m slow tests/property/test_moved_bits.py"""
    check(dtype, program)


def check(dtype: DType, program: str) -> None:
    text = MODULE.replace("BODY", PROGRAMS[program]).replace("T[", f"{dtype}[")
    module = driver.parse(text)
    executable, codes = driver.compile(module), nan_codes(dtype)
    one = of_codes(np.ones(1, codes.dtype), dtype)[0]
    v = of_codes(np.resize(codes, SIZE), dtype)
    v[1::3] = one
    p = np.arange(SIZE) % 4 < 2
    for code in codes[:: max(1, len(codes) // 16)]:
        s = of_codes(np.array([code], codes.dtype), dtype)[0]
        made, want = (
            np.asarray(run(s, v, p, np.int32(2)))
            for run in (executable, lambda *a: driver.evaluate(module, *a))
        )
        np.testing.assert_array_equal(codes_of(made, dtype), codes_of(want, dtype))
