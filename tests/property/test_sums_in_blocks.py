"""Loops that add up over the rows of a batch, in blocks of rows and behind the loop: beside the
interpreter, for 1 to 7 threads.
"""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.blocks import while_loop_blocking
from tests.property.test_loops_in_blocks import counted, in_blocks
from tests.support.by_threads import for_threads
from tests.support.covering import covering

# What a trip adds to the element `sum` of a state that has h[rows,12], and x[rows,7] of the trip.
SUMS = {
    "a product": (
        "12,7",
        """
  new = {t}[12,7] dot(h, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}""",
    ),
    "a product turned": (
        "7,12",
        """
  p = {t}[12,7] dot(h, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  new = {t}[7,12] transpose(p), dimensions={{1,0}}""",
    ),
    "two products": (
        "12,7",
        """
  p = {t}[12,7] dot(h, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  q = {t}[12,7] dot(next, x), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
  new = {t}[12,7] add(p, q)""",
    ),
    "products with two matrices": (
        "{r},12",
        """
  p = {t}[{r},12] dot(next, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  q = {t}[{r},12] dot(next, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  n = {t}[{r},12] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  both = {t}[{r},12] add(p, q)
  new = {t}[{r},12] add(both, n)""",
    ),
    "rows": (
        "12",
        """
  new = {t}[12] reduce(h, nought), dimensions={{0}}, to_apply=sum_of""",
    ),
    "a mean": (
        "",
        """
  p = {t}[] reduce(h, nought), dimensions={{0,1}}, to_apply=sum_of
  many = {t}[] constant(96)
  new = {t}[] divide(p, many)""",
    ),
    "a row of one": (
        "1,12",
        """
  p = {t}[12] reduce(h, nought), dimensions={{0}}, to_apply=sum_of
  new = {t}[1,12] reshape(p)""",
    ),
}


def program(rows: int, dtype: str, kind: str, *, starts: str = "given") -> str:
    """for i in 6: sum = sum + f(h, xs[5 - i]); h = tanh(h w). The sum begins with a parameter, or
    with zero.
    """
    sizes, added = (text.format(r=rows, t=dtype) for text in SUMS[kind])
    r, t, total = rows, dtype, f"{dtype}[{sizes}]"
    state = f"(s32[], {t}[{r},12], {total}, {t}[6,{r},7], {t}[12,12])"
    zero = f"broadcast(nought), dimensions={{}}" if sizes else "copy(nought)"  # noqa: F541
    begins = "given" if starts == "given" else "zeros"
    return f"""HloModule m
sum_of {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] add(a, b)
}}
{counted(state, 6)}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = {t}[{r},12] get-tuple-element(s), index=1
  sum = {total} get-tuple-element(s), index=2
  xs = {t}[6,{r},7] get-tuple-element(s), index=3
  w = {t}[12,12] get-tuple-element(s), index=4
  zero = s32[] constant(0)
  one = s32[] constant(1)
  last = s32[] constant(5)
  nought = {t}[] constant(0)
  j = s32[] add(i, one)
  k = s32[] subtract(last, i)
  row = {t}[1,{r},7] dynamic-slice(xs, k, zero, zero), dynamic_slice_sizes={{1,{r},7}}
  x = {t}[{r},7] reshape(row)
  product = {t}[{r},12] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  next = {t}[{r},12] tanh(product){added}
  more = {total} add(new, sum)
  ROOT r = {state} tuple(j, next, more, xs, w)
}}
ENTRY e {{
  h = {t}[{r},12] parameter(0)
  given = {total} parameter(1)
  xs = {t}[6,{r},7] parameter(2)
  w = {t}[12,12] parameter(3)
  zero = s32[] constant(0)
  nought = {t}[] constant(0)
  zeros = {total} {zero}
  start = {state} tuple(zero, h, {begins}, xs, w)
  loop = {state} while(start), condition=condition, body=body
  last = {t}[{r},12] get-tuple-element(loop), index=1
  sum = {total} get-tuple-element(loop), index=2
  ROOT result = ({t}[{r},12], {total}) tuple(last, sum)
}}
"""


def arguments(rows: int, dtype: str, kind: str) -> list[np.ndarray]:
    random = np.random.default_rng(rows)
    sizes = [int(n) for n in SUMS[kind][0].format(r=rows).split(",") if n]
    shapes = [[rows, 12], sizes, [6, rows, 7], [12, 12]]
    given = [random.standard_normal(shape) / 2 for shape in shapes]
    return [np.asarray(a, {"f32": np.float32, "f64": np.float64}[dtype]) for a in given]


@pytest.fixture
def any_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are run in blocks however short they are."""
    monkeypatch.setattr(while_loop_blocking, "LEAST_US", 0.0)
    monkeypatch.setattr(while_loop_blocking, "LEAST_TRIP_US", 0.0)
    monkeypatch.setattr(while_loop_blocking, "MOST_ADDING", 1e9)


def assert_same(module: Module, given: list[np.ndarray], tolerance: float) -> None:
    """Beside the interpreter, with the same bits for any number of threads."""
    expected = driver.evaluate(module, *given)
    bits = set()
    for threads in (1, 2, 3, 7):
        run = for_threads(module, threads=threads)
        for _ in range(5):
            found = [np.asarray(one) for one in run(*given)]
            bits.add(tuple(one.tobytes() for one in found))
    assert len(bits) == 1
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)


@pytest.mark.usefixtures("any_loop")
@pytest.mark.parametrize(
    ("starts", "rows", "dtype", "kind"), covering(["given", "zero"], [24, 64], ["f32", "f64"], SUMS)
)
def test_blocks_add_up_what_the_loop_does(kind: str, dtype: str, rows: int, starts: str) -> None:
    module = driver.parse(program(rows, dtype, kind, starts=starts))
    assert any(in_blocks(c.instructions) for c in driver.optimize(module).computations)
    assert_same(module, arguments(rows, dtype, kind), 1e-4 if dtype == "f32" else 1e-12)


@pytest.mark.parametrize(("rows", "dtype", "kind"), covering([1, 3, 8], ["f32", "f64"], SUMS))
def test_products_of_few_rows_are_made_behind(kind: str, dtype: str, rows: int) -> None:
    module = driver.parse(program(rows, dtype, kind))
    if kind.startswith(("a product", "two")) and rows > 1:
        assert not any(map(_adds_products, loops(driver.optimize(module))))
    assert_same(module, arguments(rows, dtype, kind), 1e-4 if dtype == "f32" else 1e-12)


def loops(module: Module) -> list[Instruction]:
    return [i for c in module.computations for i in c.instructions if i.opcode == "while"]


def _adds_products(loop: Instruction) -> bool:
    """Whether the state has a sum of products, 12 x 7 or turned."""
    return any(e.dims in ((12, 7), (7, 12)) for e in loop.shape.elements)


@pytest.mark.usefixtures("any_loop")
def test_a_text_whose_blocks_would_count_rows_twice_is_compiled() -> None:
    """It is one block of all rows then."""
    module = driver.parse(program(64, "f32", "a product"))
    text = driver.to_text(driver.optimize(module))
    assert '"block":[16],"lead":[64]' in text
    given = arguments(64, "f32", "a product")
    expected = driver.evaluate(module, *given)
    for said in ('"block":[24],"lead":[64]', '"block":[32],"lead":[64]', '"block":[16]',
                 '"block":[16],"lead":[12]', '"block":[6],"lead":[12]'):  # fmt: skip
        other = driver.parse(text.replace('"block":[16],"lead":[64]', said))
        found = driver.compile(other, passes="", threads=2)(*given)
        for one, right in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, right, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("any_loop")
def test_a_sum_that_a_trip_reads_stays_a_loop() -> None:
    read = """both = f32[64,12] broadcast(sum), dimensions={1}
  mixed = f32[64,12] add(product, both)
  next = f32[64,12] tanh(mixed)"""
    text = program(64, "f32", "rows").replace("next = f32[64,12] tanh(product)", read)
    module = driver.parse(text)
    assert not any(in_blocks(c.instructions) for c in driver.optimize(module).computations)
    assert_same(module, arguments(64, "f32", "rows"), 1e-4)


DECAYING = """  tenth = {t}[] constant(0.9)
  tenths = {t}[12,7] broadcast(tenth), dimensions={{}}
  less = {t}[12,7] multiply(sum, tenths)
  more = {t}[12,7] add(new, less)"""
TURNED = """  turned = {t}[12,12] transpose(sum), dimensions={{1,0}}
  more = {t}[12,12] add(new, turned)"""


@pytest.mark.usefixtures("any_loop")
@pytest.mark.parametrize("starts", ["given", "zero"])
def test_a_sum_that_decays_stays_a_loop(starts: str) -> None:
    """Each block goes on from the sum of those before it, which must not decay once more."""
    text = program(64, "f32", "a product", starts=starts)
    grows = "  more = f32[12,7] add(new, sum)"
    assert grows in text
    module = driver.parse(text.replace(grows, DECAYING.format(t="f32")))
    assert not any(in_blocks(c.instructions) for c in driver.optimize(module).computations)
    assert_same(module, arguments(64, "f32", "a product"), 1e-4)


@pytest.mark.usefixtures("any_loop")
@pytest.mark.parametrize("starts", ["given", "zero"])
def test_a_sum_that_is_turned_in_each_trip_stays_a_loop(starts: str) -> None:
    text = program(64, "f32", "a product", starts=starts)
    text = text.replace("dot(h, x), lhs", "dot(h, next), lhs").replace("f32[12,7]", "f32[12,12]")
    grows = "  more = f32[12,12] add(new, sum)"
    assert grows in text
    module = driver.parse(text.replace(grows, TURNED.format(t="f32")))
    assert not any(in_blocks(c.instructions) for c in driver.optimize(module).computations)
    given = arguments(64, "f32", "a product")
    given[1] = np.random.default_rng(1).standard_normal((12, 12)).astype(np.float32)
    assert_same(module, given, 1e-4)


@pytest.mark.usefixtures("any_loop")
def test_a_mean_of_integers_is_cut_off_once() -> None:
    """A third of a sum is not the sum of the blocks' thirds."""
    counts = f"""  whole = s32[{64},12] convert(h)
  none = s32[] constant(0)
  p = s32[12] reduce(whole, none), dimensions={{0}}, to_apply=sum_of
  three = s32[] constant(3)
  threes = s32[12] broadcast(three), dimensions={{}}
  new = s32[12] divide(p, threes)"""
    text = program(64, "f32", "rows")
    text = text.replace("f32[12] ", "s32[12] ").replace("f32[12],", "s32[12],")
    text = text.replace(
        "  new = s32[12] reduce(h, nought), dimensions={0}, to_apply=sum_of", counts
    )
    text = text.replace("a = f32[]", "a = s32[]").replace("b = f32[]", "b = s32[]")
    text = text.replace("ROOT r = f32[] add", "ROOT r = s32[] add").replace("f32[12])", "s32[12])")
    module = driver.parse(text.replace("  zeros = s32[12] broadcast(nought), dimensions={}\n", ""))
    given = arguments(64, "f32", "rows")
    given[0] *= 40
    given[3] /= 1000  # A tanh next to 1 becomes 1 or 0, as its last bit is.
    given[1] = np.arange(12, dtype=np.int32)
    assert_same(module, given, 1e-3)
