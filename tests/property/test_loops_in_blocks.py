"""Loops that each block of rows runs by itself: beside the interpreter, for 1 to 3 threads."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pytest

from hlo import driver
from hlo.analysis.blocks.blocked import is_blocked
from hlo.errors import HloError
from hlo.ir.instruction import Instruction
from hlo.passes.blocks import while_loop_blocking
from tests.support.by_threads import for_threads
from tests.support.covering import covering

REPEATED = 20  # Runs of several threads at once, one of which may meet another.

# What a trip does to h[rows, width] beside adding what it takes; r: the rows, t: the type.
STEPS = {
    "a shared matrix": """
  p = {t}[{r},12] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  out = {t}[{r},12] tanh(p)""",
    "a matrix for each row": """
  p = {t}[{r},12] dot(h, own), lhs_batch_dims={{0}}, lhs_contracting_dims={{1}}, """
    """rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}
  out = {t}[{r},12] tanh(p)""",
    "a row of each trip": """
  p = {t}[1,{r},12] dynamic-slice(xs, i, zero, zero), dynamic_slice_sizes={{1,{r},12}}
  q = {t}[{r},12] reshape(p)
  n = {t}[{r},12] reverse(h), dimensions={{1}}
  out = {t}[{r},12] multiply(n, q)""",
    "a place in each row": """
  p = {t}[{r},1,12] dynamic-slice(turned, zero, i, zero), dynamic_slice_sizes={{{r},1,12}}
  q = {t}[{r},12] reshape(p)
  out = {t}[{r},12] multiply(h, q)""",
    "its own number": """
  p = s32[{r},12] iota(), iota_dimension=0
  q = {t}[{r},12] convert(p)
  out = {t}[{r},12] subtract(h, q)""",
    "halves that change places": """
  p = {t}[{r},6] slice(h), slice={{[0:{r}], [0:6]}}
  q = {t}[{r},6] slice(h), slice={{[0:{r}], [6:12]}}
  n = {t}[{r},6] negate(q)
  out = {t}[{r},12] concatenate(n, p), dimensions={{1}}""",
    "neighbours": """
  c = {t}[] constant(0.5)
  p = {t}[{r},12] pad(h, c), padding=0_0x1_-1
  q = {t}[{r},12] reverse(p), dimensions={{1}}
  out = {t}[{r},12] add(h, q)""",
    "a sum of the row": """
  c = {t}[] constant(0)
  p = {t}[{r}] reduce(h, c), dimensions={{1}}, to_apply=sum_of
  q = {t}[{r},12] broadcast(p), dimensions={{0}}
  n = {t}[{r},12] tanh(q)
  out = {t}[{r},12] subtract(h, n)""",
    "a place in what is made": """
  p = {t}[{r},24] concatenate(h, x), dimensions={{1}}
  q = {t}[{r},12] dynamic-slice(p, zero, i), dynamic_slice_sizes={{{r},12}}
  n = {t}[{r},24] dynamic-update-slice(p, q, zero, three)
  out = {t}[{r},12] slice(n), slice={{[0:{r}], [1:13]}}""",
}


def counted(state: str, trips: int) -> str:
    """The condition of a loop whose state begins with what it counts."""
    return f"""condition {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant({trips})
  ROOT c = pred[] compare(i, n), direction=LT
}}"""


def program(rows: int, dtype: str, step: str) -> str:
    """for i in 5: h = step(h) + x / 2; ys[i] = h; k = k + 3, of which h takes a part."""
    r, t = rows, dtype
    elements = [
        f"{t}[{r},12]", f"{t}[5,{r},12]", f"{t}[5,{r},12]", "s32[]", f"{t}[12,12]",
        f"{t}[{r},12,12]", f"{t}[{r},5,12]", f"{t}[{r},12]",
    ]  # fmt: skip
    state = f"(s32[], {', '.join(elements)})"
    names = ("h", "ys", "xs", "k", "w", "own", "turned", "x")
    taken = "\n  ".join(
        f"{name} = {shape} get-tuple-element(s), index={n}"
        for n, (name, shape) in enumerate(zip(names, elements, strict=True), 1)
    )
    given = [("h", 0), ("xs", 2), ("w", 4), ("own", 5), ("turned", 6), ("x", 7)]
    parameters = "\n  ".join(
        f"{name} = {elements[place]} parameter({n})" for n, (name, place) in enumerate(given)
    )
    return f"""HloModule m
sum_of {{
  a = {t}[] parameter(0)
  b = {t}[] parameter(1)
  ROOT r = {t}[] add(a, b)
}}
{counted(state, 5)}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  {taken}
  zero = s32[] constant(0)
  one = s32[] constant(1)
  three = s32[] constant(3)
  j = s32[] add(i, one)
  l = s32[] add(k, three)
  kt = {t}[] convert(k)
  kb = {t}[{r},12] broadcast(kt), dimensions={{}}
  half = {t}[] constant(0.5)
  halves = {t}[{r},12] broadcast(half), dimensions={{}}
  xh = {t}[{r},12] multiply(x, halves)
  xk = {t}[{r},12] add(xh, kb){STEPS[step].format(r=rows, t=dtype)}
  next = {t}[{r},12] add(out, xk)
  row = {t}[1,{r},12] reshape(next)
  written = {t}[5,{r},12] dynamic-update-slice(ys, row, i, zero, zero)
  ROOT r = {state} tuple(j, next, written, xs, l, w, own, turned, x)
}}
ENTRY e {{
  {parameters}
  zero = s32[] constant(0)
  seven = s32[] constant(7)
  none = {t}[] constant(0)
  ys = {t}[5,{r},12] broadcast(none), dimensions={{}}
  start = {state} tuple(zero, h, ys, xs, seven, w, own, turned, x)
  loop = {state} while(start), condition=condition, body=body
  last = {t}[{r},12] get-tuple-element(loop), index=1
  all = {t}[5,{r},12] get-tuple-element(loop), index=2
  k = s32[] get-tuple-element(loop), index=4
  ROOT result = ({t}[{r},12], {t}[5,{r},12], s32[]) tuple(last, all, k)
}}
"""


def arguments(rows: int, dtype: str) -> list[np.ndarray]:
    random = np.random.default_rng(rows)
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    shapes = [(rows, 12), (5, rows, 12), (12, 12), (rows, 12, 12), (rows, 5, 12), (rows, 12)]
    return [random.standard_normal(shape).astype(kind) / 4 for shape in shapes]


@pytest.fixture
def any_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Loops are run in blocks however short they are."""
    monkeypatch.setattr(while_loop_blocking, "LEAST_US", 0.0)
    monkeypatch.setattr(while_loop_blocking, "LEAST_TRIP_US", 0.0)


@pytest.mark.usefixtures("any_loop")
@pytest.mark.parametrize(("rows", "dtype", "step"), covering([8, 33, 64], ["f32", "f64"], STEPS))
def test_blocks_compute_what_the_loop_does(step: str, dtype: str, rows: int) -> None:
    module = driver.parse(program(rows, dtype, step))
    optimized = driver.optimize(module)
    assert any(in_blocks(c.instructions) for c in optimized.computations)
    given = arguments(rows, dtype)
    expected = driver.evaluate(module, *given)
    for threads in (1, 2, 3):
        run = for_threads(module, threads=threads)
        found = run(*given)
        for one, other in zip(found, expected, strict=True):
            tolerance = 1e-4 if dtype == "f32" else 1e-12
            np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
        if threads == 1:
            first = [np.asarray(one).tobytes() for one in found]
        for _ in range(REPEATED):
            assert [np.asarray(one).tobytes() for one in run(*given)] == first


def in_blocks(instructions: Iterable[Instruction]) -> bool:
    """Whether a loop stands in what a fusion runs block by block."""
    return any(
        i.opcode == "while"
        for fusion in instructions
        if fusion.opcode == "fusion" and is_blocked(fusion)
        for i in fusion.called_computations()[0].instructions
    )


@pytest.mark.usefixtures("any_loop")
def test_a_text_with_its_block_is_compiled_as_it_says() -> None:
    """Of other rows too, of which the last block's overlap those before."""
    module = driver.parse(program(64, "f32", "a shared matrix"))
    text = driver.to_text(driver.optimize(module))
    assert '"block":[16]' in text
    given = arguments(64, "f32")
    expected = driver.compile(module)(*given)
    for rows in (8, 24, 32, 50, 7000):  # what does not fit is one block of all rows
        said = driver.parse(text.replace('"block":[16]', f'"block":[{rows}]'))
        found = driver.compile(said, passes="", threads=2)(*given)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


# A row that stands in one place of the batch: of no block but the first.
ROWS_ALONE = {
    "padded": """
  one.row = f32[1,12] slice(w), slice={[0:1], [0:12]}
  none = f32[] constant(0)
  p = f32[64,12] pad(one.row, none), padding=0_63x0_0
  out = f32[64,12] add(h, p)""",
    "beside others": """
  one.row = f32[1,12] slice(w), slice={[0:1], [0:12]}
  none = f32[] constant(0)
  others = f32[63,12] broadcast(none), dimensions={}
  p = f32[64,12] concatenate(one.row, others), dimensions={0}
  out = f32[64,12] add(h, p)""",
}


@pytest.mark.usefixtures("any_loop")
@pytest.mark.parametrize("step", ROWS_ALONE)
def test_a_row_among_others_is_not_every_blocks(step: str) -> None:
    """As gradients of h[0] add one."""
    whole = program(64, "f32", "a row of each trip")
    before = STEPS["a row of each trip"].format(r=64, t="f32")
    assert before in whole
    module = driver.parse(whole.replace(before, ROWS_ALONE[step]))
    given = arguments(64, "f32")
    expected = driver.evaluate(module, *given)
    for one, other in zip(driver.compile(module, threads=2)(*given), expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("any_loop")
def test_a_long_loop_in_blocks_can_be_stopped() -> None:
    state = "(s32[], f32[64,12], f32[12,12])"
    module = driver.parse(f"""HloModule m
{counted(state, 2000000000)}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[64,12] get-tuple-element(s), index=1
  w = f32[12,12] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  p = f32[64,12] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  ROOT r = {state} tuple(j, p, w)
}}
ENTRY e {{
  h = f32[64,12] parameter(0)
  w = f32[12,12] parameter(1)
  zero = s32[] constant(0)
  start = {state} tuple(zero, h, w)
  loop = {state} while(start), condition=condition, body=body
  ROOT r = f32[64,12] get-tuple-element(loop), index=1
}}
""")
    assert any(in_blocks(c.instructions) for c in driver.optimize(module).computations)
    run = driver.compile(module, threads=2)
    with pytest.raises(HloError, match="stopped after"):
        run(np.zeros((64, 12), np.float32), np.zeros((12, 12), np.float32), timeout=0.3)
