"""Products of what may be subnormal have the bits of products, on machines with an assist, too."""

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.driver import emit_stage, host_machine
from hlo.ir import dtype as dt
from hlo.ir.module import Module
from hlo.machine import named
from hlo.ops.table import OPS, Trait, opcodes
from tests.support.by_threads import for_threads
from tests.support.other_machines import assisting

PROGRAM = """HloModule m
ENTRY e {{
  x = {t}[{n}] parameter(0)
  y = {t}[{n}] parameter(1)
  e = {t}[{n}] exponential(x)
  p = {t}[{n}] multiply(e, y)
  n = {t}[{n}] negate(p)
  q = {t}[{n}] multiply(y, n)
  s = {t}[{n}] multiply(e, e)
  ROOT r = ({t}[{n}], {t}[{n}], {t}[{n}], {t}[{n}]) tuple(e, p, q, s)
}}
"""
ROWS = """HloModule m
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  x = f32[{m},{n}] parameter(0)
  y = f32[{n}] parameter(1)
  e = f32[{m},{n}] exponential(x)
  b = f32[{m},{n}] broadcast(y), dimensions={{1}}
  p = f32[{m},{n}] multiply(e, b)
  z = f32[] constant(0)
  ROOT s = f32[{m}] reduce(p, z), dimensions={{1}}, to_apply=add
}}
"""


def drawn(kind: str, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Arguments of powers that are subnormal, zero, infinite; factors of all sizes and kinds."""
    rng = np.random.default_rng(5)
    x = rng.uniform(-106.0, -60.0, n)
    x[: n // 4] = rng.uniform(-90.0, 90.0, n // 4)
    x[n // 4 : n // 2] = rng.uniform(-2.0, 2.0, n // 2 - n // 4)
    y = rng.standard_normal(n) * 2.0 ** rng.integers(-140, 120, n)
    y[n // 3 :: 7] = 0.0
    y[n // 3 :: 11] = -0.0
    x[-5:] = [np.nan, np.inf, -np.inf, -1e9, 0.0]
    y[-9:] = [np.inf, -np.inf, np.nan, 1e-40, 1.0, 0.0, 2.0, 3.0, 1e38]
    form = dt.DTYPES[kind].numpy
    with np.errstate(over="ignore"):
        return x.astype(form), y.astype(form)


def assert_same(found: np.ndarray, expected: np.ndarray) -> None:
    nan = np.isnan(expected.astype(np.float64))
    code = f"u{expected.itemsize}"
    assert np.array_equal(np.isnan(found.astype(np.float64)), nan)
    assert np.array_equal(found.view(code)[~nan], expected.view(code)[~nan])


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("kind", ["f32", "bf16", "f16", "f64"])
def test_products_have_the_bits_of_each_alone(kind: str, threads: int) -> None:
    n = 12289
    module = hlo.parse(PROGRAM.format(t=kind, n=n))
    x, y = drawn(kind, n)
    found = hlo.compile(module, cache=False, machine=assisting(), threads=threads)(x, y)
    e, *products = (np.asarray(a) for a in found)
    assert_same(e, np.asarray(hlo.compile(module, cache=False)(x, y)[0]))
    wide = np.float32 if kind in ("bf16", "f16") else e.dtype
    with np.errstate(all="ignore"):
        p = (e.astype(wide) * y.astype(wide)).astype(e.dtype)
        q = (y.astype(wide) * -p.astype(wide)).astype(e.dtype)
        s = (e.astype(wide) * e.astype(wide)).astype(e.dtype)
    for product, expected in zip(products, (p, q, s), strict=True):
        assert_same(product, expected)


@pytest.mark.parametrize("columns", [7, 100, 513])
def test_sums_of_products_have_the_same_bits(columns: int) -> None:
    module = hlo.parse(ROWS.format(m=1301, n=columns))
    rng = np.random.default_rng(6)
    x = rng.uniform(-104.0, -80.0, (1301, columns)).astype(np.float32)
    y = rng.standard_normal(columns).astype(np.float32)
    with_assist = for_threads(module, threads=2, machine=assisting())(x, y)
    host = host_machine()
    without = replace(host, cycles=replace(host.cycles, assist=0))
    assert_same(with_assist, np.asarray(hlo.compile(module, cache=False, machine=without)(x, y)))


def assembly(module: Module, machine: str, mode: str = "strict") -> str:
    return emit_stage(hlo.optimize(module), "asm", machine=named(machine), mode=mode)


def test_only_where_it_gains() -> None:
    module = hlo.parse(PROGRAM.format(t="f32", n=9000))
    assert "vcvtps2pd" in assembly(module, "sapphirerapids")
    assert "vcvtps2pd" not in assembly(module, "sapphirerapids", "fast")
    for other in ("znver5", "x86-64-v3", "neoverse-v1"):
        text = assembly(module, other)
        assert "vcvtps2pd" not in text
        assert "fcvtl" not in text
    few = hlo.parse(PROGRAM.format(t="f32", n=300))
    assert "vcvtps2pd" not in assembly(few, "sapphirerapids")
    sums = PROGRAM.replace("exponential(x)", "add(x, y)")
    assert "vcvtps2pd" not in assembly(hlo.parse(sums.format(t="f32", n=9000)), "sapphirerapids")


LOOPED = """HloModule m
body {{
  s = (s32[], f32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  u = f32[{n}] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
{lines}
  ROOT t = (s32[], f32[{n}]) tuple(j, r)
}}
condition {{
  s = (s32[], f32[{n}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(40)
  ROOT q = pred[] compare(i, n), direction=LT
}}
ENTRY e {{
  x = f32[{n}] parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[{n}]) tuple(z, x)
  w = (s32[], f32[{n}]) while(s), condition=condition, body=body
  ROOT r = f32[{n}] get-tuple-element(w), index=1
}}
"""
DECAY = """  c = f32[] constant(0.7)
  b = f32[{n}] broadcast(c), dimensions={{}}
  r = f32[{n}] multiply(u, b)"""
SPREAD = """  l = f32[{m}] slice(u), slice={{[1:{n}]}}
  o = f32[1] slice(u), slice={{[0:1]}}
  d = f32[{n}] concatenate(l, o), dimensions={{0}}
  c = f32[] constant(0.3)
  b = f32[{n}] broadcast(c), dimensions={{}}
  p = f32[{n}] multiply(d, b)
  r = f32[{n}] subtract(u, p)"""


@pytest.mark.parametrize("n", [1, 5, 64, 3000])
@pytest.mark.parametrize("threads", [1, 2])
def test_states_of_loops_have_the_bits_of_each_alone(n: int, threads: int) -> None:
    """Some of them are subnormal from the start, others become so, or stop to be."""
    x = (np.random.default_rng(9).standard_normal(n) * 1e-33).astype(np.float32)
    x[::5], x[3::7] = 1e-44, 0.0
    machine = assisting()
    decayed, spread = x.copy(), x.copy()
    for _ in range(40):
        decayed = decayed * np.float32(0.7)
        spread = spread - np.roll(spread, -1) * np.float32(0.3)
    for lines, expected in ((DECAY, decayed), (SPREAD, spread)):
        text = LOOPED.format(n=n, lines=lines.format(n=n, m=n - 1))
        run = hlo.compile(hlo.parse(text), cache=False, machine=machine, threads=threads)
        for _ in range(2):  # The second one begins with what the first has met.
            assert_same(np.asarray(run(x)), expected)


def test_a_loop_has_a_kernel_for_subnormal_numbers_beside_the_usual_one() -> None:
    """The usual one has no tests: its code is that of machines without an assist."""
    text = LOOPED.format(n=3000, lines=SPREAD.format(n=3000, m=2999))
    machine = named("sapphirerapids")
    plain = replace(machine, cycles=replace(machine.cycles, assist=0))
    code, usual = (
        emit_stage(hlo.parse(text), "llvm", machine=m).count("fmul <") for m in (machine, plain)
    )
    assert code > usual > 0
    assert "stmxcsr" in emit_stage(hlo.parse(text), "llvm", machine=machine)


def test_scalars_of_loops_are_looked_at_where_they_are_multiplied() -> None:
    """By a branch, which costs less than what waits for both ways."""
    text = LOOPED.format(n=1, lines=DECAY.format(n=1))
    code = emit_stage(hlo.parse(text), "asm", machine=named("sapphirerapids"))
    assert "stmxcsr" not in code
    before, _, after = code.partition("vfpclass")
    assert "vcvtsd2ss" in before + after
    assert after.index("\tj") < after.index("vmulss")


@pytest.mark.parametrize("n", [5, 8, 64])
def test_few_vectors_are_looked_at_in_one_kernel(n: int) -> None:
    """Two would keep them in memory from trip to trip. Lanes that fill no register are looked at,
    too, and what takes long for subnormal numbers stands behind the branch.
    """
    text = LOOPED.format(n=n, lines=DECAY.format(n=n))
    code = emit_stage(hlo.parse(text), "llvm", machine=named("sapphirerapids"))
    assert "stmxcsr" not in code
    assert "fpclass" in code
    assert "branch_weights" in code


POWER = """HloModule m
ENTRY e {
  x = f32[9001] parameter(0)
  x2 = f32[9001] multiply(x, x)
  x4 = f32[9001] multiply(x2, x2)
  x8 = f32[9001] multiply(x4, x4)
  x16 = f32[9001] multiply(x8, x8)
  x24 = f32[9001] multiply(x16, x8)
  ROOT x40 = f32[9001] multiply(x16, x24)
}
"""


def test_high_powers_have_the_bits_of_each_alone() -> None:
    """Products that underflow, of factors that do not."""
    x = np.random.default_rng(3).uniform(-1.0, 1.0, 9001).astype(np.float32)
    x[:7] = [0.0, -0.0, np.inf, np.nan, 1e-20, 1e38, 1.0]
    with np.errstate(all="ignore"):
        x8 = (x * x) * (x * x)
        x8 = x8 * x8
        x16 = x8 * x8
        expected = x16 * (x16 * x8)
    run = hlo.compile(hlo.parse(POWER), cache=False, machine=assisting())
    assert_same(np.asarray(run(x)), expected)


PRODUCT = """HloModule m
product {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] multiply(a, b)
}}
ENTRY e {{
  x = f32[3,{n}] parameter(0)
  one = f32[] constant(1)
  r = f32[3] reduce(x, one), dimensions={{1}}, to_apply=product
  w = f32[3,{n}] reduce-window(x, one), window={{size=1x{n} pad=0_0x{before}_0}}, to_apply=product
  ROOT t = (f32[3], f32[3,{n}]) tuple(r, w)
}}
"""


@pytest.mark.parametrize("n", [40, 1500, 5000])
def test_products_of_many_factors(n: int) -> None:
    """They end among the subnormal numbers, at zero, or come back out of them: as on a machine
    that does not wait, bit by bit.
    """
    rng = np.random.default_rng(41)
    x = rng.uniform(0.5, 1.5, (3, n)).astype(np.float32)
    x[1] = np.float32(0.5) ** (rng.random(n) < 135 / n)
    x[2, : n // 2], x[2, n // 2 :] = np.float32(2.0 ** (-290 / n)), np.float32(2.0 ** (290 / n))
    module, machine = hlo.parse(PRODUCT.format(n=n, before=n - 1)), assisting()
    plain = replace(machine, cycles=replace(machine.cycles, assist=0))
    for threads in (1, 2):
        runs = [
            hlo.compile(module, machine=m, threads=threads, cache=False) for m in (machine, plain)
        ]
        for _ in range(2):  # The second one begins with what the first has met.
            (found, scanned), (expected, alone) = ([np.asarray(a) for a in run(x)] for run in runs)
            assert_same(found, expected)
            assert_same(scanned.ravel(), alone.ravel())
    assert np.count_nonzero((alone > 0) & (alone < 2.0**-126)) > 0


FUNCTION = """  c = f32[] constant(0.8)
  b = f32[{n}] broadcast(c), dimensions={{}}
  p = f32[{n}] multiply(u, b)
  r = f32[{n}] {op}(p)"""


@pytest.mark.parametrize("n", [1, 70])
@pytest.mark.parametrize("op", sorted(name for name in OPS if name in opcodes(Trait.KEEPS_TINY)))
def test_functions_of_states_that_decay(op: str, n: int) -> None:
    """As on a machine that does not wait, bit by bit."""
    x = (np.random.default_rng(43).standard_normal(n) * 1e-38).astype(np.float32)
    x[::5], x[-1] = 1e-44, -0.0
    module, machine = hlo.parse(LOOPED.format(n=n, lines=FUNCTION.format(n=n, op=op))), assisting()
    plain = replace(machine, cycles=replace(machine.cycles, assist=0))
    found, expected = (
        np.asarray(hlo.compile(module, machine=m, cache=False)(x)) for m in (machine, plain)
    )
    assert_same(found, expected)
    for one, is_careful in ((machine, True), (plain, False)):
        assert ("vfpclass" in emit_stage(module, "asm", machine=one)) is is_careful
