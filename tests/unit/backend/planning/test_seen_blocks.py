"""Blocks of scores of which rows see some: all kernels keep to the bounds, and no bit changes."""

from __future__ import annotations

import re

import numpy as np
import pytest

from hlo import driver
from hlo.backend.kernels.contraction import contraction
from hlo.machine import NAMED, Machine
from tests.support.attention_programs import REDUCERS, causal, softmax
from tests.unit.passes.test_mask_skipping import causal_gradients, inputs, windowed

SPANS = re.compile(r'"spans":\[\[.*?\]\]')


def optimized(text: str) -> str:
    return driver.to_text(driver.optimize(driver.parse(text), "default"))


def results(text: str, arrays: list[np.ndarray], threads: int) -> list[np.ndarray]:
    found = driver.compile(driver.parse(text), passes="", threads=threads)(*arrays)
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def loops_of(text: str, machine: Machine | None = None) -> str:
    module = driver.optimize(driver.parse(text), "default")
    return driver.emit_stage(module, "loops", machine=machine)


@pytest.mark.parametrize("length", [1024, 1100, 1152])
@pytest.mark.parametrize("form", ["forward", "gradients"])
def test_what_is_left_out_changes_no_bit(form: str, length: int) -> None:
    """What rows do not see comes to exact zeros, at the ends of sums."""
    text = causal(3, length) if form == "forward" else causal_gradients(3, length)
    said = optimized(text)
    assert len(SPANS.findall(said)) == 2
    all_seen = SPANS.sub(f'"spans":[[0,{length},0,{length}]]', said)
    arrays = inputs(text)
    want = results(all_seen, arrays, 1)
    for threads in (1, 2, 5):
        got = results(said, arrays, threads)
        assert [x.tobytes() for x in got] == [x.tobytes() for x in want]


@pytest.mark.parametrize("machine", ["x86-64-v3", "znver4", "sapphirerapids", "neoverse-v1"])
@pytest.mark.parametrize(
    "text",
    [causal(3, 1024), causal_gradients(3, 1024), windowed(causal(1, 1100), 140)],
    ids=["forward", "gradients", "window"],
)
def test_sums_keep_to_the_bounds(text: str, machine: str) -> None:
    """Each sum over columns in a block, and each product of scores, on every kind of machine."""
    blocks = loops_of(text, NAMED[machine]).split("each through all functions")[1:]
    assert blocks
    for block in blocks:
        (block, *_) = block.split("\n\n")
        assert "what a mask leaves of" in block
        for line in block.splitlines():
            if re.search(r" over r in (1024|1100)\b", line):
                pytest.fail(f"all columns are added up: {line}")


def test_a_block_of_other_kernels_computes_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a member's kernel keeps to no bounds, none does."""
    text = causal(3, 1024)
    arrays = inputs(text)
    want = results(optimized(text), arrays, 1)
    monkeypatch.setattr(contraction, "bounded_in", lambda _: None)
    assert "what a mask leaves of" not in loops_of(text)
    got = results(optimized(text) + "\n", arrays, 2)
    assert [x.tobytes() for x in got] == [x.tobytes() for x in want]


def test_columns_that_no_row_sees() -> None:
    """More keys than queries: the last ones are in no block's bounds."""
    wide = "f32[3,1024,1536]"
    batch = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}"
    text = f"""HloModule wide
{REDUCERS}
ENTRY e {{
  q = f32[3,1024,16] parameter(0)
  k = f32[3,1536,16] parameter(1)
  v = f32[3,1536,16] parameter(2)
  raw = {wide} dot(q, k), {batch}, rhs_contracting_dims={{2}}
  row = s32[3,1024,1536] iota(), iota_dimension=1
  column = s32[3,1024,1536] iota(), iota_dimension=2
  h = pred[3,1024,1536] compare(row, column), direction=GE
  out = f32[] constant(-1e30)
  outs = {wide} broadcast(out), dimensions={{}}
  s = {wide} select(h, raw, outs)
  {softmax("3,1024,1536", "3,1024", 2)}
  ROOT o = f32[3,1024,16] dot(p, v), {batch}, rhs_contracting_dims={{1}}
}}
"""
    said = optimized(text)
    all_seen = SPANS.sub('"spans":[[0,1024,0,1536]]', said)
    arrays = inputs(text)
    assert "what a mask leaves of 1536" in loops_of(text)
    got, want = results(said, arrays, 2), results(all_seen, arrays, 1)
    assert [x.tobytes() for x in got] == [x.tobytes() for x in want]


@pytest.mark.parametrize(
    "spans",
    ["[]", "[[0,1024,0,4096]]", "[[0,1024,-64,1024]]", "[[0,512,0,512]]", "[[0,1024,512,512]]",
     "[[512,1024,0,1024],[0,512,0,512]]", "[[0,1024,0,1000]]", "[[0,1024,3,1024]]"],
)  # fmt: skip
def test_what_cannot_be_is_not_believed(spans: str) -> None:
    """A text that somebody wrote may name columns that there are not: all are computed."""
    said = optimized(causal(3, 1024))
    other = SPANS.sub(f'"spans":{spans}', said)
    arrays = inputs(causal(3, 1024))
    got, want = results(other, arrays, 2), results(said, arrays, 1)
    np.testing.assert_allclose(got[0], want[0], rtol=1e-5, atol=5e-6)
