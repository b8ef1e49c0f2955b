"""Products that leave out what a mask hides and what zeros meet; symmetric ones."""

from collections.abc import Sequence

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.analysis.bands import ALL, FAR, Band
from hlo.analysis.blocks.cutting import cut_computation
from hlo.analysis.blocks.size import block_of
from hlo.analysis.decisions import decisions_of, with_zeros_of
from hlo.backend.compilation import Compilation
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import Bands, dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.products.band_limits import share_of
from hlo.backend.kernels.contraction.products.planning import planned
from hlo.backend.kernels.contraction.products.symmetric_product import UPPER, upper_half
from hlo.backend.kernels.contraction.products.zero_check import bands_of_zeros
from hlo.ir.instruction import Instruction
from hlo.machine import NAMED

ZEN4 = NAMED["znver4"]


def triangular(said: str, dtype: str = "f32", sizes: tuple[int, int, int] = (150, 90, 150)) -> str:
    """A product whose text says where its left factor is zero."""
    m, n, k = sizes
    return f"""HloModule m
    ENTRY e {{ x = {dtype}[{m},{k}] parameter(0)
      y = {dtype}[{k},{n}] parameter(1)
      ROOT r = {dtype}[{m},{n}] dot(x, y), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}},
        backend_config={{"hlo":{{"zeros":{said}}}}} }}"""


def outcomes(text: str, *arguments: np.ndarray) -> list[np.ndarray]:
    """By several numbers of threads."""
    module = hlo.parse(text)
    return [hlo.compile(module, cache=False, threads=n)(*arguments) for n in (1, 2, 3, 7)]


def random(*dims: int, dtype: str = "f4") -> np.ndarray:
    return np.random.default_rng(0).standard_normal(dims).astype(dtype)


def product(text: str) -> Instruction:
    return hlo.parse(text).entry.root


LOWER = "[[0,0,1,-149,0]]"


def test_triangular_factor_is_told_from_one_that_only_the_text_calls_so() -> None:
    """What is said need not be true: the run looks."""
    x, y = random(150, 150), random(150, 90)
    for factor in (np.tril(x), x, np.tril(x, 1), np.triu(x)):
        found = outcomes(triangular(LOWER), factor, y)
        wanted = factor.astype("f8") @ y.astype("f8")
        assert all(np.array_equal(one, found[0]) for one in found)
        np.testing.assert_allclose(found[0], wanted, rtol=0, atol=1e-4)


@pytest.mark.parametrize("number", [np.inf, -np.inf, np.nan])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_zeros_that_meet_what_is_not_finite_give_nan(number: float, dtype: str) -> None:
    x, y = np.tril(random(150, 150, dtype=dtype)), random(150, 90, dtype=dtype)
    y[149, 3] = number
    text = triangular(LOWER, {"f4": "f32", "f8": "f64"}[dtype])
    (first, *others) = outcomes(text, x, y)
    assert np.isnan(first[:149, 3]).all()
    assert np.isfinite(np.delete(first, 3, axis=1)).all()
    assert all(first.tobytes() == other.tobytes() for other in others)


def test_what_is_not_finite_in_the_triangle_goes_where_it_belongs() -> None:
    x, y = np.tril(random(150, 150)), random(150, 90)
    x[100, 20] = np.inf
    (first, *_) = outcomes(triangular(LOWER), x, y)
    assert np.isinf(first[100]).all()
    assert np.isfinite(np.delete(first, 100, axis=0)).all()


def test_negative_zeros_and_subnormal_numbers_are_what_they_are() -> None:
    x, y = np.tril(random(150, 150)), random(150, 90)
    x[np.triu_indices(150, 1)] = -0.0
    kept = outcomes(triangular(LOWER), x, y)[0]
    np.testing.assert_allclose(kept, x.astype("f8") @ y.astype("f8"), rtol=0, atol=1e-4)
    x[0, 149] = 1e-42  # above the diagonal, and no zero
    y[149] = 1e38
    found = outcomes(triangular(LOWER), x, y)[0]
    np.testing.assert_allclose(found[0], x[0].astype("f8") @ y.astype("f8"), rtol=2e-5)


@pytest.mark.parametrize(
    "said",
    [
        "[[0,0,1,0,-1]]",  # nowhere
        "[[0,1,0,-149,0]]",
        "[[1,0,1,-149,0]]",
        "[[0,0,7,-149,0]]",
        "[[5,0,1,-149,0]]",
        "[[0,0,1,-99999999999999999,99999999999999999]]",
        "[[0,0,0,0,0]]",
        "[[0,0,1,9223372036854775807,0]]",
        "[[0,0,1,0,-9223372036854775808]]",
        "[[0,0,1,9223372036854775000,9223372036854775807]]",
        "[[0,0,1,500,900]]",
    ],
)
def test_whatever_the_text_says_the_product_is_right(said: str) -> None:
    x, y = np.tril(random(150, 150)), random(150, 90)
    found = outcomes(triangular(said), x, y)[0]
    np.testing.assert_allclose(found, x.astype("f8") @ y.astype("f8"), rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("said", "bands"),
    [
        (LOWER, Bands(ALL, Band(-FAR, 0))),
        ("[[0,1,0,0,149]]", Bands(ALL, Band(-FAR, 0))),
        ("[[1,0,1,-3,9]]", Bands(ALL, ALL, Band(-9, 3))),
        ("[[0,0,1,-149,149]]", Bands()),
        ("[[0,0,2,-9,0]]", Bands()),
    ],
)
def test_bands_are_by_free_indices_and_depth(said: str, bands: Bands) -> None:
    assert bands_of_zeros(product(triangular(said))) == bands


CHUNKS = """HloModule chunks
ENTRY e {{ q = f32[{b},{t},32] parameter(0)
  k = f32[{b},{t},32] parameter(1)
  v = f32[{b},{t},64] parameter(2)
  s = f32[{b},{t},{t}] dot(q, k), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{2}}
  i = s32[{b},{t},{t}] iota(), iota_dimension=1
  j = s32[{b},{t},{t}] iota(), iota_dimension=2
  p = pred[{b},{t},{t}] compare(i, j), direction=GE
  z = f32[] constant(0)
  zeros = f32[{b},{t},{t}] broadcast(z), dimensions={{}}
  m = f32[{b},{t},{t}] select(p, s, zeros)
  ROOT o = f32[{b},{t},64] dot(m, v), lhs_batch_dims={{0}}, rhs_batch_dims={{0}},
    lhs_contracting_dims={{2}}, rhs_contracting_dims={{1}} }}
"""


@pytest.mark.parametrize(
    ("b", "t", "is_said"),
    [(32, 256, True), (2, 600, False)],  # blocks of whole heads, of a head's rows
)
def test_blocks_know_of_zeros_in_whole_factors(b: int, t: int, *, is_said: bool) -> None:
    module = hlo.optimize(hlo.parse(CHUNKS.format(b=b, t=t)))
    (blocked,) = [i for i in module.entry.instructions if decisions_of(i).block]
    (callee,) = blocked.called_computations()
    block = block_of(blocked)
    assert block is not None
    cut = cut_computation(callee, block).computation
    products = [i for i in cut.instructions if i.opcode == "dot"]
    assert [bool(decisions_of(i).zeros) for i in products] == [is_said]
    given = [random(*p.shape.dims) for p in module.entry.parameters]
    found = outcomes(CHUNKS.format(b=b, t=t), *given)
    q, k, v = (one.astype("f8") for one in given)
    wanted = np.tril(q @ np.swapaxes(k, 1, 2)) @ v
    np.testing.assert_allclose(found[0], wanted, rtol=0, atol=2e-3)
    assert all(np.array_equal(found[0], other) for other in found)


@pytest.mark.parametrize("said", [(7, 0, 1, 0, 0), (0, 5, 1, 0, 0), (1, 0, -4, 0, 0)])
def test_what_nobody_can_mean_is_left_out_of_parts(said: tuple[int, ...]) -> None:
    dot = product(triangular(f"[[{','.join(map(str, said))}]]"))
    kept = with_zeros_of(dot, [o.shape for o in dot.operands])
    assert "backend_config" not in kept


def test_exchanged_factors_are_nobodys_triangles() -> None:
    text = (
        triangular(LOWER)
        .replace("ROOT r =", "d =")
        .replace("}} }", "}}\n ROOT t = f32[90,150] transpose(d), dimensions={1,0} }")
    )
    root = hlo.optimize(hlo.parse(text), "algsimp").entry.root
    assert (root.opcode, root.operands[0].name) == ("dot", "y")
    assert not decisions_of(root).zeros


def gram(dtype: str, dims: Sequence[int], depth: int, *, batch: bool = False) -> str:
    """x x^T or x^T x, by which dimension is depth."""
    shape, rows = ",".join(map(str, dims)), dims[-1] if depth == len(dims) - 2 else dims[-2]
    lead = f"{dims[0]}," if batch else ""
    along = "lhs_batch_dims={0}, rhs_batch_dims={0}, " if batch else ""
    return f"""HloModule m
    ENTRY e {{ x = {dtype}[{shape}] parameter(0)
      ROOT r = {dtype}[{lead}{rows},{rows}] dot(x, x), {along}lhs_contracting_dims={{{depth}}},
        rhs_contracting_dims={{{depth}}} }}"""


@pytest.mark.parametrize(
    ("text", "dims", "dtype"),
    [
        (gram("f32", (145, 210), 1), (145, 210), "f4"),
        (gram("f32", (210, 145), 0), (210, 145), "f4"),
        (gram("f64", (2, 101, 150), 2, batch=True), (2, 101, 150), "f8"),
        (gram("f32", (72, 9000), 1), (72, 9000), "f4"),
        (gram("f32", (130, 2200), 1), (130, 2200), "f4"),
    ],
)
def test_symmetric_products_are_symmetric_bit_by_bit(
    text: str, dims: tuple[int, ...], dtype: str
) -> None:
    root = product(text)
    ring = ring_of(root.shape.dtype, Target(ZEN4))
    c = normal(dot_contraction(root), ring.lanes)
    assert upper_half(replace(c, rhs=c.lhs), ring, None).bands == UPPER
    assert upper_half(c, ring, None).bands == Bands()  # of two arrays
    x = random(*dims, dtype=dtype)
    (first, *others) = outcomes(text, x)
    wanted = hlo.evaluate(hlo.parse(text), x)
    assert np.array_equal(first, np.swapaxes(first, -1, -2))
    np.testing.assert_allclose(first, wanted, rtol=0, atol=2e-3 if dtype == "f4" else 1e-11)
    assert all(np.array_equal(first, other) for other in others)


@pytest.mark.parametrize(
    ("after", "is_half"),
    [
        ("s = f32[] parameter(1)\n b = f32[145,145] broadcast(s), dimensions={}\n"
         "m = f32[145,145] multiply(d, b)\n ROOT r = f32[145,145] exponential(m)", True),
        ("m = f32[145,145] tanh(d)\n ROOT r = bf16[145,145] convert(m)", False),
        ("y = f32[145,145] parameter(1)\n ROOT r = f32[145,145] add(d, y)", False),
        ("i = f32[145,145] iota(), iota_dimension=0\n ROOT r = f32[145,145] add(d, i)", False),
        ("y = f32[145] parameter(1)\n b = f32[145,145] broadcast(y), dimensions={1}\n"
         "ROOT r = f32[145,145] add(d, b)", False),
    ],
)  # fmt: skip
def test_what_is_done_to_equal_sums_alike_leaves_them_symmetric(
    after: str, *, is_half: bool
) -> None:
    text = f"""HloModule m
    ENTRY e {{ x = f32[145,210] parameter(0)
      d = f32[145,145] dot(x, x), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
      {after} }}"""
    module = hlo.parse(text)
    given = [random(*p.shape.dims) / 20 for p in module.entry.parameters]
    wanted = np.asarray(hlo.evaluate(module, *given)).astype("f4")
    found = outcomes(text, *given)
    np.testing.assert_allclose(found[0].astype("f4"), wanted, rtol=1e-2, atol=1e-4)
    assert all(one.tobytes() == found[0].tobytes() for one in found)
    program = Compilation(hlo.optimize(module), passes="", machine=ZEN4).program
    assert len(program.kernels) == 1 + is_half


def test_symmetric_products_keep_infinities_where_they_are() -> None:
    text = gram("f32", (145, 210), 1)
    x = random(145, 210)
    x[17, 5], x[90, 8] = np.inf, np.nan
    found, wanted = outcomes(text, x)[0], np.asarray(hlo.evaluate(hlo.parse(text), x))
    assert np.array_equal(np.isnan(found), np.isnan(wanted))
    assert np.array_equal(np.isinf(found), np.isinf(wanted))


@pytest.mark.parametrize(
    ("bands", "low", "high"),
    [
        (Bands(), 1, 1),
        (UPPER, 0.5, 0.6),
        (Bands(ALL, Band(-FAR, 0)), 0.5, 0.6),
        (Bands(ALL, Band(-FAR, 0), Band(-FAR, 0)), 0.3, 0.4),
        (Bands(Band(-20, 20)), 0.0, 0.2),
    ],
)
def test_share_of_products_follows_from_bands(bands: Bands, low: float, high: float) -> None:
    text = triangular("[]", sizes=(512, 512, 512))
    ring = ring_of(product(text).shape.dtype, Target(ZEN4))
    c = normal(dot_contraction(product(text)), ring.lanes)
    assert low <= share_of(planned(replace(c, bands=bands), ring)) <= high
