"""An element type is a row: nothing else is edited.

A copy of the project without `f6e2m3fn` gets the same numbers as `f6e2m3` (OCP's MX float of six
bits: a sign, two bits of exponent with bias 1, three of mantissa, neither infinity nor NaN), and
does with them all that it does with any type, judged by the formula of the format alone.
"""

from __future__ import annotations

import pytest

from tests.support.project_copy import ProjectCopy

DTYPE = "hlo/ir/dtype.py"
ROW = """\
F6E2M3 = _float("f6e2m3", "float6_e2m3fn", FloatFormat(2, 3, 1, False, "none"))
"""
# What the scripts know of the type: its 64 values by code, and the nearest to a number.
FORMAT = '''
import ml_dtypes
import numpy as np
from hlo.errors import HloError

F6 = np.dtype(ml_dtypes.float6_e2m3fn)
CODES = np.arange(64, dtype=np.uint8)
exponent, mantissa = CODES >> 3 & 3, CODES & 7
size = np.where(exponent == 0, mantissa / 8, (1 + mantissa / 8) * 2.0 ** (exponent - 1.0))
VALUES = np.where(CODES & 32, -size, size)


def rounded(x):
    """The codes of the nearest values, halves to even; beyond the greatest, it; -0 for NaN."""
    x = np.asarray(x, np.float64)
    middles = (size[:31] + size[1:32]) / 2
    below = np.searchsorted(middles, abs(x), "left")
    above = np.searchsorted(middles, abs(x), "right")
    code = np.where(below % 2 == 0, below, above) | np.where(np.signbit(x), 32, 0)
    return np.where(np.isnan(x), 32, code).astype(np.uint8)


def codes(array):
    assert array.dtype == F6, array.dtype
    return array.view(np.uint8)


def engines(text):
    """The reference, and code of the program as it stands and optimised."""
    module = hlo.parse(text)
    hlo.verify(module)
    yield lambda *values: hlo.evaluate(module, *values)
    yield hlo.compile(module)
    yield hlo.compile(module, passes="")
'''
READS = (
    FORMAT
    + '''
text = """HloModule m, entry_computation_layout={(f6e2m3[2,3]{1,0:E(6)})->f6e2m3[2,3]{1,0:E(6)}}

ENTRY %e (x: f6e2m3[2,3]) -> f6e2m3[2,3] {
  %x = f6e2m3[2,3]{1,0:E(6)} parameter(0)
  %c = f6e2m3[2,3]{1,0:E(6)} constant({ { 0.12, -0.0, 7.5 }, { -1.6, 2.25, -7 } })
  ROOT %r = f6e2m3[2,3]{1,0:E(6)} maximum(%x, %c)
}
"""
module = hlo.parse(text)
hlo.verify(module)
literal = module.entry.instructions[1].attributes["literal"]
assert codes(literal.array).tolist() == rounded([[0.12, -0.0, 7.5], [-1.6, 2.25, -7]]).tolist()
printed = str(module)
assert "{ { 0.125, -0.0, 7.5 }, { -1.62, 2.25, -7 } }" in printed, printed
assert str(hlo.parse(printed)) == printed
shape = module.entry.root.shape
assert (str(shape.dtype), shape.dtype.bits, shape.dtype.item_bytes) == ("f6e2m3", 6, 1)
every = ", ".join(f"{v:g}" for v in VALUES).replace("-0,", "-0.0,")
constant = hlo.parse(f"HloModule m\\nENTRY e {{\\n ROOT c = f6e2m3[64] constant({{{every}}})\\n}}")
assert codes(hlo.evaluate(constant)).tolist() == CODES.tolist()
again = hlo.evaluate(hlo.parse(str(constant)))
assert codes(again).tolist() == CODES.tolist()
for wrong in ("f6e2m3fn[2] parameter(0)", "f6e2m3[2] constant({1, nan(0x1)})"):
    try:
        hlo.parse(f"HloModule m\\nENTRY e {{\\n ROOT c = {wrong}\\n}}")
    except HloError as error:
        print(error.code)
'''
)
COMPUTES = (
    FORMAT
    + '''
step = np.float32(2.0**-12)
numbers = np.concatenate([VALUES, (size[:31] + size[1:32]) / 2, [7.6, 7.75, 8, 1e30, 1e-30]])
numbers = np.concatenate([numbers, -numbers, numbers + step, numbers - step, [np.inf, -np.inf]])
numbers = np.concatenate([numbers, [np.nan]]).astype(np.float32)
n = len(numbers)
assert n % 2, "an odd size"
for run in engines(f"""HloModule m
ENTRY e {{
  x = f32[{n}] parameter(0)
  d = f64[{n}] convert(x)
  a = f6e2m3[{n}] convert(x)
  b = f6e2m3[{n}] convert(d)
  f = f32[{n}] convert(a)
  h = bf16[{n}] convert(a)
  s = s8[{n}] convert(a)
  z = f6e2m3[{n}] convert(s)
  ROOT r = (f6e2m3[{n}], f6e2m3[{n}], f32[{n}], bf16[{n}], s8[{n}], f6e2m3[{n}])
    tuple(a, b, f, h, s, z)
}}"""):
    a, b, f, h, s, z = run(numbers)
    assert codes(a).tolist() == codes(b).tolist() == rounded(numbers).tolist()
    assert f.tolist() == h.astype(np.float32).tolist() == VALUES[codes(a)].tolist()
    assert np.signbit(f).tolist() == np.signbit(VALUES[codes(a)]).tolist()
    assert s.tolist() == np.trunc(VALUES[codes(a)]).tolist()
    assert codes(z).tolist() == rounded(s).tolist()

left, right = (side.ravel() for side in np.meshgrid(CODES, CODES))
ARITHMETIC = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
}
DIRECTIONS = {
    "EQ": np.equal, "NE": np.not_equal, "LT": np.less, "LE": np.less_equal, "GT": np.greater,
    "GE": np.greater_equal,
}
PROGRAM = """HloModule m
ENTRY e {
  x = T[N] parameter(0)
  y = T[N] parameter(1)
  add = T[N] add(x, y)
  subtract = T[N] subtract(x, y)
  multiply = T[N] multiply(x, y)
  divide = T[N] divide(x, y)
  root = T[N] sqrt(x)
  exp = T[N] exponential(x)
  negated = T[N] negate(x)
  absolute = T[N] abs(x)
  larger = T[N] maximum(x, y)
  EQ = pred[N] compare(x, y), direction=EQ
  NE = pred[N] compare(x, y), direction=NE
  LT = pred[N] compare(x, y), direction=LT
  LE = pred[N] compare(x, y), direction=LE
  GT = pred[N] compare(x, y), direction=GT
  GE = pred[N] compare(x, y), direction=GE
  total = pred[N] compare(x, y), direction=LT, type=TOTALORDER
  chosen = T[N] select(LT, x, y)
  back = T[N] reverse(chosen), dimensions={0}
  ROOT r = (T[N], T[N], T[N], T[N], T[N], T[N], T[N], T[N], T[N], pred[N], pred[N], pred[N],
    pred[N], pred[N], pred[N], pred[N], T[N], T[N]) tuple(add, subtract, multiply, divide, root,
    exp, negated, absolute, larger, EQ, NE, LT, LE, GT, GE, total, chosen, back)
}"""
NAMES = PROGRAM.split("tuple(")[1].removesuffix(")\\n}").split(",")
for n in (1, 7, 4095):
    c, d = left[-n:], right[-n:]
    x, y = VALUES[c], VALUES[d]
    with np.errstate(all="ignore"):
        expected = [rounded(f(x, y)) for f in ARITHMETIC.values()]
        expected += [rounded(np.sqrt(x)), rounded(np.exp(x)), c ^ 32, c & 31]
    expected.append(np.where((x > y) | ((x == y) & (c < 32)), c, d))
    expected += [f(x, y) for f in DIRECTIONS.values()]
    order = np.where(c & 32, -1.0 - (c & 31), c), np.where(d & 32, -1.0 - (d & 31), d)
    expected.append(order[0] < order[1])
    chosen = np.where(x < y, c, d)
    expected += [chosen, chosen[::-1]]
    for run in engines(PROGRAM.replace("T[", "f6e2m3[").replace("[N]", f"[{n}]")):
        results = [codes(r) if r.dtype == F6 else r for r in run(c.view(F6), d.view(F6))]
        for name, found, want in zip(NAMES, results, expected, strict=True):
            differ = np.flatnonzero(found != want)
            assert not len(differ), (name, n, x[differ[:3]], y[differ[:3]], found[differ[:3]])
print("ok")
'''
)
MOVES = (
    FORMAT
    + '''
x = np.arange(3 * 37, dtype=np.uint8).reshape(3, 37) * 7 % 64
for run in engines("""HloModule m
sum {
  a = f6e2m3[] parameter(0)
  b = f6e2m3[] parameter(1)
  ROOT s = f6e2m3[] add(a, b)
}
most {
  a = f6e2m3[] parameter(0)
  b = f6e2m3[] parameter(1)
  ROOT s = f6e2m3[] maximum(a, b)
}
before {
  a = f6e2m3[] parameter(0)
  b = f6e2m3[] parameter(1)
  ROOT s = pred[] compare(a, b), direction=LT
}
ENTRY e {
  x = f6e2m3[3,37] parameter(0)
  half = f6e2m3[] constant(-0.5)
  low = f6e2m3[] constant(-7.5)
  t = f6e2m3[37,3] transpose(x), dimensions={1,0}
  p = f6e2m3[4,39] pad(x, half), padding=0_1x1_1
  m = f6e2m3[3] reduce(x, low), dimensions={1}, to_apply=most
  s = f6e2m3[37,3] sort(t), dimensions={0}, to_apply=before
  product = f32[3,3] dot(x, t), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  y = f6e2m3[3,37] exponential(x)
  z = f6e2m3[3,37] tanh(y)
  zero = f6e2m3[] constant(0)
  r = f6e2m3[3] reduce(z, zero), dimensions={1}, to_apply=sum
  ROOT u = (f6e2m3[37,3], f6e2m3[4,39], f6e2m3[3], f6e2m3[37,3], f32[3,3], f6e2m3[3])
    tuple(t, p, m, s, product, r)
}"""):
    t, p, m, s, product, r = run(x.view(F6))
    assert codes(t).tolist() == x.T.tolist()
    assert codes(p).tolist() == np.pad(x, ((0, 1), (1, 1)), constant_values=36).tolist()
    assert VALUES[codes(m)].tolist() == VALUES[x].max(1).tolist()
    assert VALUES[codes(s)].tolist() == np.sort(VALUES[x.T], 0).tolist()
    assert product.tolist() == (VALUES[x] @ VALUES[x].T).tolist()
    z = VALUES[rounded(np.tanh(VALUES[rounded(np.exp(VALUES[x]))]))]
    assert codes(r).tolist() == rounded(z.sum(1)).tolist()
print("ok")
'''
)


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> ProjectCopy:
    """The project with the type."""
    copy = ProjectCopy(tmp_path_factory.mktemp("project"))
    copy.take_away(DTYPE, "F6E2M3FN = ")
    copy.insert(DTYPE, ROW, before="F6E3M2FN = ")
    return copy


def test_it_is_a_row(copy: ProjectCopy) -> None:
    assert copy.added == []
    assert copy.edited == {DTYPE: 1}


def test_it_is_read_printed_and_refused(copy: ProjectCopy) -> None:
    assert copy.script(READS).split() == ["syntax", "literal"]


def test_it_is_converted_and_computed(copy: ProjectCopy) -> None:
    assert copy.script(COMPUTES) == "ok\n"


def test_it_is_moved_reduced_and_multiplied(copy: ProjectCopy) -> None:
    assert copy.script(MOVES) == "ok\n"
