"""Concatenate parting: softmax of scores with a few columns beside them."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.ir.module import Module
from hlo.passes.large_values import concatenate_parting
from tests.support.attention_programs import REDUCERS
from tests.support.by_threads import for_threads

HEADS, LENGTH = 3, 700


def sink(columns: int = 1, *, low: str = "-inf", kept: int = LENGTH, root: str = "o") -> str:
    """Attention whose scores stand beside those of a sink, which takes weight and gives nothing."""
    inputs, rows = f"f32[{HEADS},{LENGTH},16]", f"f32[{HEADS},{LENGTH}]"
    wide, more = f"f32[{HEADS},{LENGTH},{LENGTH}]", f"f32[{HEADS},{LENGTH},{LENGTH + columns}]"
    dims = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}"
    seen = f"{{[0:{HEADS}], [0:{LENGTH}], [0:{kept}]}}"
    behind = f"0_0x0_{kept - LENGTH}x0_0"
    return f"""HloModule sink
{REDUCERS}
ENTRY e {{
  q = {inputs} parameter(0)
  k = {inputs} parameter(1)
  v = {inputs} parameter(2)
  z = f32[{HEADS},{columns}] parameter(3)
  s = {wide} dot(q, k), {dims}, rhs_contracting_dims={{2}}
  zb = f32[{HEADS},{LENGTH},{columns}] broadcast(z), dimensions={{0,2}}
  c = {more} concatenate(s, zb), dimensions={{2}}
  low = f32[] constant({low})
  zero = f32[] constant(0)
  m = {rows} reduce(c, low), dimensions={{2}}, to_apply=max_of
  mb = {more} broadcast(m), dimensions={{0,1}}
  d = {more} subtract(c, mb)
  e = {more} exponential(d)
  t = {rows} reduce(e, zero), dimensions={{2}}, to_apply=sum_of
  tb = {more} broadcast(t), dimensions={{0,1}}
  w = {more} divide(e, tb)
  p = f32[{HEADS},{LENGTH},{kept}] slice(w), slice={seen}
  vs = f32[{HEADS},{kept},16] pad(v, zero), padding={behind}
  o = {inputs} dot(p, vs), {dims}, rhs_contracting_dims={{1}}
  ROOT r = ({inputs}, {inputs if root == "o" else more}) tuple(o, {root}) }}"""


def parted(text: str) -> Module:
    module = driver.parse(text)
    concatenate_parting(module)
    driver.verify(module)
    return module


def inputs(text: str) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [
        rng.standard_normal(p.shape.dims).astype(np.float32)
        for p in driver.parse(text).entry.parameters
    ]


@pytest.mark.parametrize("columns", [1, 3])
@pytest.mark.parametrize("unusual", [False, True], ids=["finite", "infinities, NaN, -0"])
def test_scores_and_a_sink_are_two_arrays(columns: int, *, unusual: bool) -> None:
    text = sink(columns)
    module = parted(text)
    assert not any(i.shape.dims[-1:] == (LENGTH + columns,) for i in module.entry.instructions)
    arrays = inputs(text)
    if unusual:
        arrays[3][0], arrays[3][1] = -np.inf, np.inf
        arrays[0][2, 5], arrays[0][2, 6] = np.nan, -0.0
    expected = np.asarray(driver.compile(driver.parse(text), passes="")(*arrays)[0])
    first = None
    for threads in (1, 2, 3, 7):
        found = np.asarray(for_threads(module, threads=threads)(*arrays)[0])
        first = found if first is None else first
        assert found.tobytes() == first.tobytes()
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-5)


def test_scores_with_a_sink_are_run_in_blocks() -> None:
    module = driver.optimize(driver.parse(sink()))
    largest = max(leaf.size for i in module.entry.instructions for leaf in i.shape.leaves())
    assert largest == HEADS * LENGTH * 16


def causal_sink() -> str:
    """The program whose rows see no later column."""
    wide, flat = f"f32[{HEADS},{LENGTH},{LENGTH}]", f"[{LENGTH},{LENGTH}]"
    return (
        sink()
        .replace(f"s = {wide} dot", f"raw = {wide} dot")
        .replace(
            "  zb = ",
            f"""  n = s32[{LENGTH}] iota(), iota_dimension=0
  row = s32{flat} broadcast(n), dimensions={{0}}
  column = s32{flat} broadcast(n), dimensions={{1}}
  sees = pred{flat} compare(row, column), direction=GE
  seen = pred[{HEADS},{LENGTH},{LENGTH}] broadcast(sees), dimensions={{1,2}}
  far = f32[] constant(-1e30)
  fars = {wide} broadcast(far), dimensions={{}}
  s = {wide} select(seen, raw, fars)
  zb = """,
        )
        .replace(str(LENGTH), "1300")
        .replace(str(LENGTH + 1), "1301")
    )


def test_bands_of_masked_scores_with_a_sink_are_run_in_blocks() -> None:
    """What a sink makes of a band's rows is spread out for these alone, and is in their block."""
    module = driver.optimize(driver.parse(causal_sink()))
    entry = module.entry.instructions
    assert any(i.opcode == "conditional" for i in entry)
    assert max(leaf.size for i in entry for leaf in i.shape.leaves()) == HEADS * 1300 * 16


def test_gradients_pad_with_the_few_columns_zeros() -> None:
    text = (
        sink()
        .replace(
            "  o = ",
            f"""  g = f32[{HEADS},{LENGTH},{LENGTH + 1}] pad(s, zero), padding=0_0x0_0x0_1
  gm = f32[{HEADS},{LENGTH},{LENGTH + 1}] multiply(g, e)
  gt = f32[{HEADS},{LENGTH}] reduce(gm, zero), dimensions={{2}}, to_apply=sum_of
  gb = f32[{HEADS},{LENGTH},16] broadcast(gt), dimensions={{0,1}}
  o = """,
        )
        .replace("(o, o)", "(o, gb)")
    )
    module = parted(text)
    assert not any(i.shape.dims[-1:] == (LENGTH + 1,) for i in module.entry.instructions)
    arrays = inputs(text)
    expected = driver.compile(driver.parse(text), passes="")(*arrays)
    for a, b in zip(driver.compile(module)(*arrays), expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-3)


@pytest.mark.parametrize(
    "text",
    [
        sink(root="w"),
        sink(low="-1"),
        sink(columns=60),
        sink().replace("exponential(d)", "reverse(d), dimensions={2}"),
        sink(2, kept=LENGTH + 1),
    ],
    ids=["given back", "another beginning", "many columns", "moved columns", "across the seam"],
)
def test_what_has_no_parts_stays(text: str) -> None:
    module = driver.parse(text)
    before = driver.to_text(module)
    assert not concatenate_parting(module)
    assert driver.to_text(module) == before
