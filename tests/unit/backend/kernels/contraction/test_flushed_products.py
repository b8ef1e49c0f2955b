"""Products of factors with tails, as machines compute them that leave subnormal numbers to
microcode: none is lost that matters.
"""

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.driver import emit_stage, host_machine
from hlo.ir import dtype as dt
from hlo.ir.module import Module
from hlo.machine import named
from tests.support.by_threads import for_threads
from tests.support.other_machines import assisting

PRODUCT = """HloModule m
ENTRY e {{
  x = {t}[{m},{k}] parameter(0)
  v = {t}[{k},{n}] parameter(1)
  e = {t}[{m},{k}] exponential(x)
  d = f32[{m},{n}] dot(e, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT t = (f32[{m},{n}], {t}[{m},{k}]) tuple(d, e)
}}
"""
ATTENTION = """HloModule m
max {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }}
add {{ a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }}
ENTRY e {{
  q = f32[{h},{n},64] parameter(0)
  k = f32[{h},{n},64] parameter(1)
  v = f32[{h},{n},64] parameter(2)
  s = f32[{h},{n},{n}] dot(q, k), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{2}}
  low = f32[] constant(-inf)
  m = f32[{h},{n}] reduce(s, low), dimensions={{2}}, to_apply=max
  b = f32[{h},{n},{n}] broadcast(m), dimensions={{0,1}}
  d = f32[{h},{n},{n}] subtract(s, b)
  e = f32[{h},{n},{n}] exponential(d)
  z = f32[] constant(0)
  t = f32[{h},{n}] reduce(e, z), dimensions={{2}}, to_apply=add
  tb = f32[{h},{n},{n}] broadcast(t), dimensions={{0,1}}
  p = f32[{h},{n},{n}] divide(e, tb)
  ROOT o = f32[{h},{n},64] dot(p, v), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}
}}
"""  # noqa: E501
M, K, N = 96, 130, 80


def product(kind: str = "f32") -> Module:
    return hlo.parse(PRODUCT.format(m=M, k=K, n=N, t=kind))


def assert_near(found: np.ndarray, e: np.ndarray, v: np.ndarray) -> None:
    """Each sum within the bound of its terms' magnitudes, and half a unit of subnormal numbers."""
    wide = e.astype(np.float64) @ v.astype(np.float64)
    bound = np.abs(e.astype(np.float64)) @ np.abs(v.astype(np.float64)) * K * 2.0**-24
    assert np.all(np.abs(found - wide) <= bound + K * 2.0**-150)


@pytest.mark.parametrize(
    ("low", "high", "scale"),
    [(-104.0, 0.0, 1.0), (-104.0, -88.0, 1.0), (-104.0, -88.0, 1e30), (-103.0, -80.0, 1e38),
     (-60.0, 20.0, 1e-42), (0.0, 1.0, 1e-43)],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_what_matters_is_in_the_sums(kind: str, low: float, high: float, scale: float) -> None:
    """bf16's numbers meet instructions that take subnormal ones for zeros, where there are such."""
    rng = np.random.default_rng(7)
    form = dt.DTYPES[kind].numpy
    x = rng.uniform(low, high, (M, K)).astype(form)
    v = (rng.standard_normal((K, N)) * scale).clip(-3e38, 3e38).astype(form)
    v[:, 3] = 0.0
    v[:, 5] = 0.0
    v[K // 2, 5] = scale  # one term alone
    run = for_threads(product(kind), threads=2, machine=assisting())
    found, e = (np.asarray(a) for a in run(x, v))
    assert_near(found, e, v)


COMPUTED = """HloModule m
fused {{
  x = {t}[96,{k}] parameter(0)
  y = {t}[{k},80] parameter(1)
  c = {t}[] constant(2)
  b = {t}[{k},80] broadcast(c), dimensions={{}}
  p = {t}[{k},80] multiply(y, b)
  e = {t}[{k},80] exponential(p)
  ROOT d = {root}
}}
ENTRY e {{
  x = {t}[96,{k}] parameter(0)
  y = {t}[{k},80] parameter(1)
  ROOT f = {result} fusion(x, y), kind=kOutput, calls=fused
}}
"""
ROOTS = {
    "f32[96,80]": "dot(x, e), lhs_contracting_dims={1}, rhs_contracting_dims={0}",
    "f32[80,96]": "dot(e, x), lhs_contracting_dims={0}, rhs_contracting_dims={1}",
}


@pytest.mark.parametrize("kind", ["f32", "bf16"])
@pytest.mark.parametrize("result", ROOTS)
@pytest.mark.parametrize("dots", [0.5, 2.0])
def test_factors_that_are_computed_where_they_are_read(kind: str, result: str, dots: float) -> None:
    """Of either side, as numbers and as words: results are looked at beside numbers in memory."""
    machine = assisting()
    machine = replace(machine, cycles=replace(machine.cycles, bf16_dots=dots))
    text = COMPUTED.format(t=kind, k=192, root=f"{result} {ROOTS[result]}", result=result)
    rng = np.random.default_rng(11)
    form = dt.DTYPES[kind].numpy
    x = rng.standard_normal((96, 192)).astype(form)
    y = rng.uniform(-52.0, 1.0, (192, 80)).astype(form)
    x[3], y[:, 7], y[:, 8] = 1e-39, -45.5, -51.0
    module = hlo.parse(text)
    found = hlo.compile(module, machine=machine, threads=2, passes="", cache=False)(x, y)
    sizes = np.abs(x.astype(np.float64)) @ np.exp(2.0 * y.astype(np.float64))
    bound = 1e-5 * (sizes if result == "f32[96,80]" else sizes.T) + 192 * 2.0**-150
    assert np.all(np.abs(found - hlo.evaluate(module, x, y)) <= bound)


TRIANGLE = """HloModule m
ENTRY e {
  x = f32[256,256] parameter(0)
  v = f32[256,64] parameter(1)
  e = f32[256,256] exponential(x)
  i = s32[256,256] iota(), iota_dimension=0
  j = s32[256,256] iota(), iota_dimension=1
  w = pred[256,256] compare(i, j), direction=GE
  z = f32[] constant(0)
  b = f32[256,256] broadcast(z), dimensions={}
  p = f32[256,256] select(w, e, b)
  ROOT d = f32[256,64] dot(p, v), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""


@pytest.mark.parametrize(("low", "scale"), [(-104.0, 1.0), (-104.0, 1e30), (-20.0, 1e-42)])
def test_triangles_of_tails(low: float, scale: float) -> None:
    """Products of the parts that are not zero, and of all where that is not so."""
    module = hlo.parse(TRIANGLE)
    rng = np.random.default_rng(12)
    x = rng.uniform(low, low + 20.0, (256, 256)).astype(np.float32)
    v = (rng.standard_normal((256, 64)) * scale).astype(np.float32)
    found = for_threads(module, threads=2, machine=assisting())(x, v)
    v[200, 5] = np.inf
    told = hlo.compile(module, machine=assisting(), cache=False)(x, v)
    assert np.array_equal(np.isnan(told), np.isnan(hlo.evaluate(module, x, v)))
    v[200, 5] = 0.0
    p = np.tril(np.exp(x.astype(np.float64)))
    sizes = np.abs(v.astype(np.float64))
    bound = 1e-4 * (p @ sizes) + 2.0**-149 * (sizes.sum(0) + 256)  # powers are rounded, too
    expected = p @ v.astype(np.float64)
    assert np.all((np.abs(found - expected) <= bound)[:, :5])


def test_what_is_not_finite_is_told() -> None:
    rng = np.random.default_rng(8)
    x = rng.uniform(-104.0, 0.0, (M, K)).astype(np.float32)
    v = rng.standard_normal((K, N)).astype(np.float32)
    v[4, 4], v[5, 5], x[6, 6], x[7, 7] = np.inf, np.nan, np.nan, 1000.0
    host = host_machine()
    without = replace(host, cycles=replace(host.cycles, assist=0))
    found, plain = (
        np.asarray(hlo.compile(product(), cache=False, machine=machine)(x, v)[0])
        for machine in (assisting(), without)
    )
    assert np.array_equal(np.isnan(found), np.isnan(plain))
    assert np.array_equal(np.isinf(found), np.isinf(plain))


@pytest.mark.parametrize(("heads", "n"), [(2, 96), (4, 1024)])
def test_attention_whose_scores_are_far_apart(heads: int, n: int) -> None:
    """The longer one may be stopped on its way, so that its kernels ask whether it is."""
    module = hlo.parse(ATTENTION.format(h=heads, n=n))
    rng = np.random.default_rng(9)
    q, k, v = (rng.standard_normal((heads, n, 64)).astype(np.float32) for _ in range(3))
    q *= 4.0
    s = np.einsum("hid,hjd->hij", q.astype(np.float64), k.astype(np.float64))
    p = np.exp(s - s.max(2, keepdims=True))
    expected = np.einsum("hij,hjd->hid", p / p.sum(2, keepdims=True), v.astype(np.float64))
    found = for_threads(module, threads=2, machine=assisting())(q, k, v)
    assert np.abs(found - expected).max() < 2e-4


def test_only_where_it_gains() -> None:
    module, told = hlo.optimize(product()), "with zeros for subnormal numbers"
    assert told in emit_stage(module, "loops", machine=named("sapphirerapids"))
    assert told not in emit_stage(module, "loops", machine=named("sapphirerapids"), mode="fast")
    for other in ("znver5", "x86-64-v3", "neoverse-v1"):
        assert told not in emit_stage(module, "loops", machine=named(other))
    plain = hlo.parse(PRODUCT.replace("exponential(x)", "cosine(x)").format(m=M, k=K, n=N, t="f32"))
    assert told not in emit_stage(hlo.optimize(plain), "loops", machine=named("sapphirerapids"))


def test_results_that_underflow_of_factors_that_do_not() -> None:
    """Their sums are subnormal, or what they add is, and no factor is."""
    rng = np.random.default_rng(13)
    x = rng.uniform(-60.0, -55.0, (M, K)).astype(np.float32)
    v = (rng.standard_normal((K, N)) * 1e-16).astype(np.float32)
    v[:, 3], v[:, 4] = 0.0, 1e-8
    found, e = (np.asarray(a) for a in for_threads(product(), threads=2, machine=assisting())(x, v))
    assert_near(found, e, v)
    assert np.count_nonzero(found[:, 5]) == M


FINISHED = """HloModule m
fused {{
  e = f32[{m},{k}] parameter(0)
  v = f32[{k},{n}] parameter(1)
  b = f32[{m},{n}] parameter(2)
  d = f32[{m},{n}] dot(e, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  p = f32[{m},{n}] multiply(d, b)
  ROOT t = (f32[{m},{n}], f32[{m},{n}]) tuple(p, d)
}}
ENTRY e {{
  x = f32[{m},{k}] parameter(0)
  v = f32[{k},{n}] parameter(1)
  b = f32[{m},{n}] parameter(2)
  e = f32[{m},{k}] exponential(x)
  f = (f32[{m},{n}], f32[{m},{n}]) fusion(e, v, b), kind=kOutput, calls=fused
  g = f32[{m},{n}] get-tuple-element(f), index=0
  h = f32[{m},{n}] get-tuple-element(f), index=1
  ROOT t = (f32[{m},{n}], f32[{m},{n}], f32[{m},{k}]) tuple(g, h, e)
}}
"""


@pytest.mark.parametrize("low", [-104.0, -60.0])
@pytest.mark.parametrize("scale", [1.0, 1e-20])
def test_what_is_made_of_results(low: float, scale: float) -> None:
    """It may be subnormal where results are not: it is not made in the product's mode."""
    rng = np.random.default_rng(17)
    x = rng.uniform(low, 0.0, (M, K)).astype(np.float32)
    x[5] = rng.uniform(-104.0, -90.0, K)
    v = (rng.standard_normal((K, N)) * scale).astype(np.float32)
    b = (10.0 ** rng.uniform(-40.0, 0.0, (M, N))).astype(np.float32)
    module = hlo.parse(FINISHED.format(m=M, k=K, n=N))
    run = hlo.compile(module, machine=assisting(), threads=2, passes="", cache=False)
    made, sums, e = (np.asarray(a) for a in run(x, v, b))
    assert_near(sums, e, v)
    assert np.array_equal(made, sums * b)


VECTOR = """HloModule m
ENTRY e {{
  x = {t}[{m},{k}] parameter(0)
  v = {t}[{k}] parameter(1)
  s = {t}[{m},{k}] multiply(x, x)
  n = {t}[{m},{k}] negate(s)
  e = {t}[{m},{k}] exponential(n)
  d = f32[{m}] dot(e, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  w = f32[{k}] dot(e, d), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  ROOT t = (f32[{m}], f32[{k}], {t}[{m},{k}]) tuple(d, w, e)
}}
"""


@pytest.mark.parametrize("least", [0.0, 9.0])
@pytest.mark.parametrize("scale", [1.0, 1e-10, 1e-30, 1e27])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_matrices_by_vectors(kind: str, least: float, scale: float) -> None:
    """Of both sides; where results are small on doubles, whatever the factors' ranges are."""
    m, k = 300, 500
    rng = np.random.default_rng(19)
    form = dt.DTYPES[kind].numpy
    x = rng.uniform(least, 10.2, (m, k)).astype(form)
    v = (rng.standard_normal(k) * scale).astype(form)
    module = hlo.parse(VECTOR.format(m=m, k=k, t=kind))
    run = hlo.compile(module, machine=assisting(), threads=2, passes="", cache=False)
    d, w, e = (np.asarray(a).astype(np.float64) for a in run(x, v))
    for found, factor, vector in ((d, e, v.astype(np.float64)), (w, e.T, d)):
        bound = np.abs(factor) @ np.abs(vector) * k * 2.0**-24 + k * 2.0**-150
        assert np.all(np.abs(found - factor @ vector) <= bound)


SQUARES = """HloModule m
ENTRY e {
  x = f32[96,96] parameter(0)
  e = f32[96,96] exponential(x)
  d = f32[96,96] dot(e, e), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[96,96] dot(d, e), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT t = (f32[96,96], f32[96,96], f32[96,96]) tuple(d, s, e)
}
"""


@pytest.mark.parametrize("most", [-30.0, -60.0, 25.0])
def test_powers_of_a_matrix(most: float) -> None:
    """Factors that are one array, and a product's results; scaled, or beyond what is scaled."""
    x = np.random.default_rng(23).uniform(-100.0, most, (96, 96)).astype(np.float32)
    x[7] = np.random.default_rng(24).uniform(-103.0, -88.0, 96)
    run = hlo.compile(hlo.parse(SQUARES), machine=assisting(), threads=2, passes="", cache=False)
    d, s, e = (np.asarray(a) for a in run(x))
    for found, left in ((d, e), (s, d)):
        wide = left.astype(np.float64) @ e.astype(np.float64)
        terms = np.abs(left.astype(np.float64)) @ np.abs(e.astype(np.float64))
        assert np.all(np.abs(found - wide) <= terms * 96 * 2.0**-24 + 96 * 2.0**-150)


CHAIN = """HloModule m
condition {{
  s = (s32[], f32[{b},{k}], f32[{b},{k},{k}], f32[{k}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(30)
  ROOT less = pred[] compare(i, n), direction=LT
}}
body {{
  s = (s32[], f32[{b},{k}], f32[{b},{k},{k}], f32[{k}]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  v = f32[{b},{k}] get-tuple-element(s), index=1
  a = f32[{b},{k},{k}] get-tuple-element(s), index=2
  c = f32[{k}] get-tuple-element(s), index=3
  d = f32[{b},{k}] dot(v, a), lhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{{side}}}
  cb = f32[{b},{k}] broadcast(c), dimensions={{1}}
  p = f32[{b},{k}] multiply(d, cb)
  ROOT t = (s32[], f32[{b},{k}], f32[{b},{k},{k}], f32[{k}]) tuple(j, p, a, c)
}}
ENTRY e {{
  v = f32[{b},{k}] parameter(0)
  a = f32[{b},{k},{k}] parameter(1)
  c = f32[{k}] parameter(2)
  z = s32[] constant(0)
  s = (s32[], f32[{b},{k}], f32[{b},{k},{k}], f32[{k}]) tuple(z, v, a, c)
  w = (s32[], f32[{b},{k}], f32[{b},{k},{k}], f32[{k}]) while(s), condition=condition, body=body
  ROOT r = f32[{b},{k}] get-tuple-element(w), index=1
}}
"""  # noqa: E501


@pytest.mark.parametrize("side", [1, 2])
@pytest.mark.parametrize(("batches", "k"), [(1, 50), (3, 70), (1, 300), (2, 513)])
def test_vectors_that_decay(batches: int, k: int, side: int) -> None:
    """A chain of states: they become subnormal, in part, and then zero; with no assist, no test."""
    rng = np.random.default_rng(29)
    v = (rng.uniform(0.0, 1.0, (batches, k)) * 10.0 ** rng.uniform(-40.0, -24.0, k)).astype("f4")
    a = (rng.uniform(0.0, 2.0, (batches, k, k)) / k).astype("f4")
    c = rng.uniform(0.2, 0.6, k).astype("f4")
    module = hlo.parse(CHAIN.format(b=batches, k=k, side=side))
    found, *others = (
        np.asarray(for_threads(module, threads=n, machine=assisting())(v, a, c)) for n in (1, 2, 3)
    )
    assert all(np.array_equal(found, other) for other in others)
    states = v.astype(np.float64)
    for _ in range(30):
        product = np.einsum("bk,bkn->bn" if side == 1 else "bk,bnk->bn", states, a.astype("f8"))
        states = (product.astype("f4") * c).astype("f8")
    assert (found != 0.0).any()
    assert np.all(np.abs(found - states) <= states * 30 * k * 2.0**-24 + 40 * 2.0**-149)


WINDOW = """HloModule m
ENTRY e {{
  x = f32[{images}] parameter(0)
  l = f32[{window}] parameter(1)
  w = f32[{window}] exponential(l)
  c = f32[{out}] convolution(x, w), window={{{said}}}, dim_labels={labels}{groups}
  ROOT t = (f32[{out}], f32[{window}]) tuple(c, w)
}}
"""


@pytest.mark.parametrize(
    ("images", "window", "out", "said", "labels", "groups"),
    [
        ("3,1,400", "1,1,65", "3,1,400", "size=65 pad=32_32", "bf0_oi0->bf0", ""),
        ("1,1,900", "1,1,129", "1,1,900", "size=129 pad=64_64", "bf0_oi0->bf0", ""),
        ("2,5,20,24", "5,1,7,9", "2,5,20,24", "size=7x9 pad=3_3x4_4", "bf01_oi01->bf01",
         ", feature_group_count=5"),
        ("2,20,24,32", "7,9,1,32", "2,20,24,32", "size=7x9 pad=3_3x4_4", "b01f_01io->b01f",
         ", feature_group_count=32"),
        ("2,3,20,24", "4,3,7,9", "2,4,14,16", "size=7x9", "bf01_oi01->bf01", ""),
    ],
)  # fmt: skip
@pytest.mark.parametrize("low", [-105.0, -60.0])
def test_windows_with_tails(
    images: str, window: str, out: str, said: str, labels: str, groups: str, low: float
) -> None:
    """Whose taps may be subnormal; small bases tell whether these are lost. NaN meets no zeros
    beside the base.
    """
    rng = np.random.default_rng(31)
    base, taps = (tuple(map(int, text.split(","))) for text in (images, window))
    x = (rng.standard_normal(base) * 10.0 ** rng.uniform(-8.0, 8.0, base)).astype("f4")
    x.flat[7] = np.nan
    logs = rng.uniform(low, 0.0, taps).astype("f4")
    logs[..., -1] = rng.uniform(-103.0, -88.0, taps[:-1])
    text = WINDOW.format(
        images=images, window=window, out=out, said=said, labels=labels, groups=groups
    )
    module = hlo.parse(text)
    runs = (for_threads(module, threads=n, machine=assisting()) for n in (1, 3))
    (found, w), (other, _) = ([np.asarray(a) for a in run(x, logs)] for run in runs)
    assert np.array_equal(found, other, equal_nan=True)
    wide = text.replace("f32", "f64").replace("exponential", "copy")
    sums, _ = (np.asarray(a) for a in hlo.evaluate(hlo.parse(wide), x.astype("f8"), w.astype("f8")))
    terms, _ = (
        np.asarray(a) for a in hlo.evaluate(hlo.parse(wide), abs(x).astype("f8"), w.astype("f8"))
    )
    assert np.array_equal(np.isnan(found), np.isnan(sums))
    is_number = ~np.isnan(sums)
    bound = (terms * 200 * 2.0**-24 + 200 * 2.0**-149)[is_number]
    assert np.all(abs(found - sums)[is_number] <= bound)


def test_code_for_vectors_on_doubles_is_of_machines_with_an_assist() -> None:
    module = hlo.parse(CHAIN.format(b=1, k=300, side=1))
    machine = named("sapphirerapids")
    plain = replace(machine, cycles=replace(machine.cycles, assist=0))
    assert "fpext <" in emit_stage(module, "llvm", machine=machine)
    assert "fpext <" not in emit_stage(module, "llvm", machine=plain)
