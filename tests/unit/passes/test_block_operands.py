"""Operands of fusions in the order of blocks: moved before them, and back where no block is."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.analysis.blocks.blocked import is_blocked
from hlo.ir.module import Module
from hlo.passes.large_values import block_fusion
from tests.support.attention_programs import REDUCERS
from tests.support.by_threads import for_threads

DOT = "lhs_contracting_dims={2}, rhs_batch_dims={1}, rhs_contracting_dims={2}"


def program(length: int, body: str, operand: str) -> str:
    """Scores of queries and keys whose rows lie before heads, made and finished by a fusion; then a
    product with values."""
    wide = f"f32[4,{length},{length}]"
    return f"""HloModule ordered
{REDUCERS}
finished {{ q = f32[{length},4,16] parameter(0)
  k = f32[{length},4,16] parameter(1)
  x = {operand} parameter(2)
  raw = {wide} dot(q, k), lhs_batch_dims={{1}}, {DOT}
  {body}
  t = {wide} add(raw, xb)
  ROOT e = {wide} tanh(t) }}
ENTRY e {{ q = f32[{length},4,16] parameter(0)
  k = f32[{length},4,16] parameter(1)
  x = {operand} parameter(2)
  v = f32[4,{length},16] parameter(3)
  e = {wide} fusion(q, k, x), kind=kOutput, calls=finished
  ROOT o = f32[4,{length},16] dot(e, v), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{1}} }}"""


def of_rows(length: int) -> str:
    """A value of rows is kept with heads last."""
    wide = f"f32[4,{length},{length}]"
    body = f"""xt = f32[4,{length}] transpose(x), dimensions={{1,0}}
  xb = {wide} broadcast(xt), dimensions={{0,1}}"""
    return program(length, body, f"f32[{length},4]")


def of_groups(length: int) -> str:
    """A bias has heads in one dimension, or in two."""
    body = f"xb = f32[4,{length},{length}] reshape(x)"
    return program(length, body, f"f32[2,2,{length},{length}]")


def blocked(module: Module) -> int:
    return sum(i.opcode == "fusion" and is_blocked(i) for i in module.entry.instructions)


@pytest.mark.parametrize("text", [of_rows(512), of_groups(512)], ids=["rows", "groups"])
@pytest.mark.parametrize("unusual", [False, True], ids=["finite", "infinity, NaN"])
def test_moves_stand_before_blocks(text: str, *, unusual: bool) -> None:
    module = driver.parse(text)
    rng = np.random.default_rng(5)
    arrays = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry.parameters]
    if unusual:
        arrays[0][7, 1, 3], arrays[1][5, 2, 1] = np.inf, np.nan
    expected = driver.compile(driver.parse(text), passes="")(*arrays)
    assert block_fusion(module)
    driver.verify(module)
    assert blocked(module) == 1
    assert max(i.shape.size for i in module.entry.instructions[4:]) <= 4 * 512 * 512
    first = None
    for threads in (1, 2, 3, 7):
        found = for_threads(module, "", threads=threads)(*arrays)
        first = found if first is None else first
        assert found.tobytes() == first.tobytes()
    np.testing.assert_allclose(first, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("text", [of_rows(64), of_groups(64)], ids=["rows", "groups"])
def test_what_no_block_takes_stays(text: str) -> None:
    module = driver.parse(text)
    before = driver.to_text(module)
    assert not block_fusion(module)
    assert driver.to_text(module) == before


def test_fusions_get_their_own_computations_back() -> None:
    """The product reads scores in another order, so no block pays: all is as it was."""
    text = of_rows(512)
    text = text.replace("dot(e, v)", "dot(back, v)").replace(
        "  ROOT o", "  back = f32[4,512,512] reverse(e), dimensions={1}\n  ROOT o"
    )
    module = driver.parse(text)
    before = driver.to_text(module)
    assert not block_fusion(module)
    assert driver.to_text(module) == before


def test_a_count_of_all_elements_is_cut() -> None:
    """Random numbers count all elements: a block counts from where it starts."""
    wide = "f32[4,512,512]"
    text = f"""HloModule counted
ENTRY e {{ q = f32[4,512,16] parameter(0)
  v = f32[4,512,16] parameter(1)
  s = {wide} dot(q, v), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{2}}
  n = u8[1048576] iota(), iota_dimension=0
  all = u8[4,512,512] reshape(n)
  three = u8[] constant(3)
  threes = u8[4,512,512] broadcast(three), dimensions={{}}
  some = u8[4,512,512] and(all, threes)
  zero = u8[] constant(0)
  zeros = u8[4,512,512] broadcast(zero), dimensions={{}}
  kept = pred[4,512,512] compare(some, zeros), direction=NE
  no = f32[] constant(0)
  nos = {wide} broadcast(no), dimensions={{}}
  p = {wide} select(kept, s, nos)
  ROOT o = f32[4,512,16] dot(p, v), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{1}} }}"""
    module = driver.optimize(driver.parse(text))
    assert blocked(module) == 1
    rng = np.random.default_rng(6)
    q, v = (rng.standard_normal((4, 512, 16), np.float32) for _ in range(2))
    found = driver.compile(driver.parse(text))(q, v)
    kept = np.arange(4 * 512 * 512, dtype=np.uint8).reshape(4, 512, 512) % 4 != 0
    expected = np.where(kept, q @ v.transpose(0, 2, 1), 0) @ v
    np.testing.assert_allclose(found, expected, rtol=1e-3, atol=1e-3)
