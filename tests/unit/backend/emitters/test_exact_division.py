"""Division by one number, as products: the bits of the division, special values included."""

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.emitters.exact_division import known, quotients
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.linking.toolchain import object_code
from hlo.machine import named

KINDS = {"f32": (np.float32, np.uint32), "f64": (np.float64, np.uint64)}
CONSTANT = """HloModule m
ENTRY e {{
  x = {kind}[{n}] parameter(0)
  c = {kind}[] constant({value!r})
  b = {kind}[{n}] broadcast(c), dimensions={{}}
  ROOT q = {kind}[{n}] divide(x, b)
}}
"""
ROWS = """HloModule m
ENTRY e {{
  x = {kind}[{n},512] parameter(0)
  y = {kind}[{n}] parameter(1)
  b = {kind}[{n},512] broadcast(y), dimensions={{0}}
  ROOT q = {kind}[{n},512] divide(x, b)
}}
"""
SPECIAL = [0.0, -0.0, np.inf, -np.inf, np.nan, 1e-40, -1e-45, 1.0, -1.0, 3e38, 1e-30]
DIVISORS = [3.7, -1.4142, 7.0, -10.0, 0.1, 2.0, -0.5, 1.0000001192092896, 1.9999998807907104, 1e-30]


def drawn(kind: str, count: int, seed: int) -> np.ndarray:
    """Ordinary numbers, some of any bits, and the special ones, in vectors apart."""
    form, code = KINDS[kind]
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(count).astype(form)
    x[: count // 4] = rng.integers(0, np.iinfo(code).max, count // 4, dtype=code).view(form)
    with np.errstate(over="ignore"):
        x[-200 : -200 + len(SPECIAL)] = np.array(SPECIAL).astype(form)
    x[count // 2 :: 7] = 0.0
    x[count // 2 :: 11] = -0.0
    return x


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    code = f"u{expected.itemsize}"
    nan = np.isnan(expected)
    assert np.array_equal(np.isnan(found), nan)
    assert np.array_equal(found.view(code)[~nan], expected.view(code)[~nan])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", DIVISORS)
def test_quotients_by_a_constant(kind: str, value: float) -> None:
    form, _ = KINDS[kind]
    x = drawn(kind, 40003, 1)
    value = float(form(value))
    divide = hlo.compile(hlo.parse(CONSTANT.format(kind=kind, n=x.size, value=value)), cache=False)
    with np.errstate(all="ignore"):
        assert_same(divide(x), x / form(value))


@pytest.mark.parametrize("kind", KINDS)
def test_quotients_by_each_rows_number(kind: str) -> None:
    form, _ = KINDS[kind]
    x = drawn(kind, 200 * 512, 2).reshape(200, 512)
    y = np.exp(np.random.default_rng(3).standard_normal(200) * 3).astype(form)
    with np.errstate(over="ignore"):
        y[: len(SPECIAL)] = np.array(SPECIAL).astype(form)
    y[20:40] *= -1
    divide = hlo.compile(hlo.parse(ROWS.format(kind=kind, n=200)), cache=False)
    with np.errstate(all="ignore"):
        assert_same(divide(x, y), x / y[:, None])


def test_every_significand_by_a_hard_divisor() -> None:
    x = np.arange(0x3F800000, 0x40000000, 1, dtype=np.uint32).view(np.float32)
    for value in (1.0000001192092896, 1.9999998807907104, 1.3333334, -0.7071068):
        divisor = np.float32(value)
        text = CONSTANT.format(kind="f32", n=x.size, value=float(divisor))
        found = hlo.compile(hlo.parse(text), cache=False)(x)
        assert np.array_equal(found, x / divisor)


def test_vectors_of_several_lengths_share_one_test() -> None:
    w = Writer()
    xs = [Value("%a", "<8 x double>"), Value("%b", "<2 x double>"), Value("%c", "<8 x double>")]
    divisor = known(w, w.float(3.7, "double"))
    found = quotients(w, xs, [divisor] * 3)
    assert [q.type for q in found] == [x.type for x in xs]
    head = f"define void @f({', '.join(x.typed for x in xs)}) {{\nentry:"
    body = "\n".join([*w.declarations.values(), head, w.text(), "  ret void", "}"])
    assert object_code(IrModule(body, ()))


LEFT_BEHIND = """HloModule m
ENTRY e {
  x = f64[2000] parameter(0)
  y = f64[2000] parameter(1)
  c = f64[] constant(3.7)
  cs = f64[2000] broadcast(c), dimensions={}
  first = f64[2000] divide(x, cs)
  sum = f64[2000] add(first, y)
  d = f64[] constant(1.4)
  ds = f64[2000] broadcast(d), dimensions={}
  second = f64[2000] divide(sum, ds)
  product = f64[2000] multiply(second, y)
  negated = f64[2000] negate(x)
  ROOT r = f64[2000] subtract(negated, product)
}
"""


def test_what_a_quotient_negates_is_computed_again_behind_its_branch() -> None:
    x, y = drawn("f64", 2000, 4), drawn("f64", 2000, 5)
    with np.errstate(all="ignore"):
        expected = -x - (x / 3.7 + y) / 1.4 * y
    assert_same(hlo.compile(hlo.parse(LEFT_BEHIND), cache=False)(x, y), expected)


@pytest.mark.parametrize(("machine", "length", "is_short"), [
    ("sapphirerapids", 512, True),
    ("sapphirerapids", 64, False),
    ("znver4", 512, False),
])  # fmt: skip
def test_long_rows_of_floats_where_quotients_are_looked_at_anyway(
    machine: str, length: int, *, is_short: bool
) -> None:
    text = ROWS.format(kind="f32", n=256).replace("512", str(length))
    compilation = Compilation(hlo.parse(text), threads=1, machine=named(machine))
    (kernel,) = compilation.program.kernels
    assert ("fdiv <16 x float>" not in kernel.text) is is_short


WHOLE = """HloModule m
ENTRY e {{
  k = {source}[{n}] parameter(0)
  x = {kind}[{n}] convert(k)
  c = {kind}[] constant({value!r})
  b = {kind}[{n}] broadcast(c), dimensions={{}}
  ROOT q = {kind}[{n}] divide(x, b)
}}
"""


@pytest.mark.parametrize("source", ["u8", "s32", "u32", "s64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [3.7, -7.0, 255.0, 1.0000001192092896])
def test_quotients_of_integers_are_looked_at_by_none(value: float, kind: str, source: str) -> None:
    form, _ = KINDS[kind]
    value = float(form(value))
    dtype = np.dtype({"u": "uint", "s": "int"}[source[0]] + source[1:])
    ends = np.iinfo(dtype)
    k = np.random.default_rng(4).integers(ends.min, ends.max, 40003, dtype=dtype, endpoint=True)
    k[:5] = [0, 1, ends.min, ends.max, ends.max // 2]
    module = hlo.parse(WHOLE.format(source=source, kind=kind, n=k.size, value=value))
    assert_same(hlo.compile(module, cache=False)(k), k.astype(form) / form(value))
    (kernel,) = Compilation(module, threads=1, machine=named("znver4")).program.kernels
    assert "fdiv <" not in kernel.text
