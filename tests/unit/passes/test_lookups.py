"""Lookups of scores: biases read from tables, and sums in tables, block by block."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.analysis.blocks.block import Block
from hlo.analysis.blocks.blocked import is_blocked
from hlo.analysis.blocks.cutting import cut_computation
from hlo.analysis.blocks.size import block_of
from hlo.analysis.blocks.sums import is_summed
from hlo.analysis.lookups import is_sum_from_zero, lookup_of
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.passes.large_values import score_order
from tests.support.attention_programs import REDUCERS, gradients, softmax
from tests.support.by_threads import for_threads

DISTANCES = """n = s32[N] iota(), iota_dimension=0
  row = s32[N,N] broadcast(n), dimensions={0}
  column = s32[N,N] broadcast(n), dimensions={1}
  apart = s32[N,N] subtract(column, row)
  low_ = s32[] constant(-5)
  high_ = s32[] constant(4)
  near = s32[N,N] clamp(low_, apart, high_)
  five = s32[] constant(5)
  fives = s32[N,N] broadcast(five), dimensions={}
  places = s32[N,N] add(near, fives)"""
READ = "offset_dims={2}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=2"
PER_ROW = """collapsed_slice_dims={2}, start_index_map={2}, operand_batching_dims={0,1},
    start_indices_batching_dims={0,1}, index_vector_dim=3, slice_sizes={1,1,1}"""


def biased(heads: int, length: int) -> str:
    """Attention with a bias by distance from a table in which heads come last, with gradients."""
    text = gradients(heads, length)
    wide = f"{heads},{length},{length}"
    bias = f"""{DISTANCES.replace("N", str(length))}
  table = f32[10,{heads}] parameter(4)
  read = f32[{length},{length},{heads}] gather(table, places), {READ}, slice_sizes={{1,{heads}}}
  bias = f32[{wide}] transpose(read), dimensions={{2,0,1}}
  s = f32[{wide}] add(raw, bias)"""
    text = text.replace(f"  s = f32[{wide}] dot", f"  raw = f32[{wide}] dot")
    text = text.replace("  low = f32[] constant(-inf)", f"{bias}\n  low = f32[] constant(-inf)")
    added = f"""none = f32[10,{heads}] broadcast(zero), dimensions={{}}
  back = f32[{length},{length},{heads}] transpose(ds), dimensions={{1,2,0}}
  dt = f32[10,{heads}] scatter(none, places, back), update_window_dims={{2}},
    inserted_window_dims={{0}}, scatter_dims_to_operand_dims={{0}}, index_vector_dim=2,
    to_apply=sum_of
  ROOT r = ("""
    text = text.replace("ROOT r = (", added).replace(") tuple(o,", f", f32[10,{heads}]) tuple(o,")
    return text.replace("dq, dk, dv)", "dq, dk, dv, dt)")


def disentangled(heads: int, length: int) -> str:
    """Products of queries with all distances, read along rows; of keys, along columns."""
    wide, inputs = f"{heads},{length},{length}", f"{heads},{length},16"
    batch = "lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={0}"
    return f"""HloModule disentangled
{REDUCERS}
ENTRY e {{
  q = f32[{inputs}] parameter(0)
  k = f32[{inputs}] parameter(1)
  v = f32[{inputs}] parameter(2)
  rk = f32[{heads},10,16] parameter(3)
  {DISTANCES.replace("N", str(length))}
  back = s32[{length},{length}] negate(apart)
  near2 = s32[{length},{length}] clamp(low_, back, high_)
  places2 = s32[{length},{length}] add(near2, fives)
  at = s32[{wide}] broadcast(places), dimensions={{1,2}}
  at2 = s32[{wide}] broadcast(places2), dimensions={{1,2}}
  raw = f32[{wide}] dot(q, k), {batch}, rhs_contracting_dims={{2}}
  qr = f32[{heads},{length},10] dot(q, rk), {batch}, rhs_contracting_dims={{2}}
  kr = f32[{heads},{length},10] dot(k, rk), {batch}, rhs_contracting_dims={{2}}
  c2p = f32[{wide}] gather(qr, at), offset_dims={{}}, {PER_ROW}
  p2c = f32[{wide}] gather(kr, at2), offset_dims={{}}, {PER_ROW}
  turned = f32[{wide}] transpose(p2c), dimensions={{0,2,1}}
  both = f32[{wide}] add(c2p, turned)
  s = f32[{wide}] add(raw, both)
  {softmax(wide, f"{heads},{length}", 2)}
  ROOT o = f32[{inputs}] dot(p, v), lhs_batch_dims={{0}}, lhs_contracting_dims={{2}},
    rhs_batch_dims={{0}}, rhs_contracting_dims={{1}} }}"""


def decayed(heads: int, length: int) -> str:
    """Scores with heads last, rows of keys before those of queries: no softmax, but decays."""
    wide, inputs = f"{length},{length},{heads}", f"{length},{heads},16"
    return f"""HloModule decayed
ENTRY e {{
  q = f32[{inputs}] parameter(0)
  k = f32[{inputs}] parameter(1)
  v = f32[{inputs}] parameter(2)
  c = f32[{length},{heads}] parameter(3)
  raw = f32[{heads},{length},{length}] dot(k, q), lhs_batch_dims={{1}},
    lhs_contracting_dims={{2}}, rhs_batch_dims={{1}}, rhs_contracting_dims={{2}}
  moved = f32[{wide}] transpose(raw), dimensions={{2,1,0}}
  cq = f32[{wide}] broadcast(c), dimensions={{0,2}}
  ck = f32[{wide}] broadcast(c), dimensions={{1,2}}
  d = f32[{wide}] subtract(cq, ck)
  l = f32[{wide}] logistic(d)
  s = f32[{wide}] multiply(moved, l)
  ROOT o = f32[{heads},{length},16] dot(s, v), lhs_batch_dims={{2}}, lhs_contracting_dims={{1}},
    rhs_batch_dims={{1}}, rhs_contracting_dims={{0}} }}"""


def blocked(module: Module) -> list[Instruction]:
    every = (i for c in module.computations for i in c.instructions if i.opcode == "fusion")
    return [fusion for fusion in every if is_blocked(fusion)]


def roots(fusion: Instruction) -> tuple[Instruction, ...]:
    (callee,) = fusion.called_computations()
    return callee.root.operands


def largest(module: Module) -> int:
    """The most elements of a value outside of fusions."""
    return max(leaf.size for i in module.entry.instructions for leaf in i.shape.leaves())


def found(text: str, name: str) -> Instruction:
    return next(i for i in driver.parse(text).entry.instructions if i.name == name)


def test_a_bias_from_a_table_is_read_in_blocks_and_its_gradient_summed_up_there() -> None:
    module = driver.optimize(driver.parse(biased(8, 512)))
    (fusion,) = blocked(module)
    assert largest(module) == 512 * 512  # the places, without heads
    assert "broadcast" not in [i.opcode for i in module.entry.instructions]
    block = block_of(fusion)
    assert block is not None
    assert block.lead == (8, 512)
    (callee,) = fusion.called_computations()
    (scatter,) = (root for root in callee.root.operands if root.opcode == "scatter")
    assert is_summed(scatter, block)
    assert scatter.shape.dims == (8, 10)
    body = cut_computation(callee, Block((8, 512), (1, 176)))
    assert body.in_order
    rows = {i.opcode: i.shape.dims for i in body.turns if i.opcode == "slice"}
    assert rows["slice"][-1] in (16, 512)
    gathers = [
        i.operands[0].shape.dims
        for one in body.computation.instructions
        for called in one.called_computations()
        for i in called.instructions
        if i.opcode == "gather"
    ]
    assert gathers == [(1, 10)]


def test_narrow_sums_in_tables_are_made_in_blocks_too() -> None:
    module = driver.optimize(driver.parse(biased(8, 1024).replace("f32[", "bf16[")))
    assert largest(module) == 1024 * 1024
    types = {r.shape.dtype.name for f in blocked(module) for r in roots(f) if r.opcode == "scatter"}
    assert types == {"bf16"}


def test_products_with_distances_are_read_along_rows_and_columns() -> None:
    module = driver.optimize(driver.parse(disentangled(8, 512)))
    (fusion,) = blocked(module)
    (callee,) = fusion.called_computations()
    assert callee.root.opcode == "dot"
    assert largest(module) == 512 * 512
    inside = (i for c in module.computations for i in c.instructions)
    assert not [i for i in inside if i.opcode == "transpose" and i.shape.size > 512 * 512]


def test_scores_with_heads_last_are_made_with_heads_first() -> None:
    module = driver.optimize(driver.parse(decayed(8, 512)), "simplify")
    assert score_order(module)
    driver.verify(module)
    products = [i for i in module.entry.instructions if i.opcode == "dot"]
    assert [i.shape.dims for i in products] == [(8, 512, 512), (8, 512, 16)]
    assert largest(driver.optimize(driver.parse(decayed(8, 512)))) == 8 * 512 * 16
    assert not score_order(module)


def test_scores_of_which_a_dimension_is_two_stay() -> None:
    """Those of heads a and b are added to those of heads b and a: no order is both."""
    inputs, wide = "2,2,512,16", "2,2,512,512"
    text = f"""HloModule crossed
ENTRY e {{
  q = f32[{inputs}] parameter(0)
  k = f32[{inputs}] parameter(1)
  v = f32[{inputs}] parameter(2)
  s = f32[{wide}] dot(q, k), lhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}},
    rhs_batch_dims={{0,1}}, rhs_contracting_dims={{3}}
  t = f32[{wide}] transpose(s), dimensions={{1,0,2,3}}
  a = f32[{wide}] add(s, t)
  ROOT o = f32[{inputs}] dot(a, v), lhs_batch_dims={{0,1}}, lhs_contracting_dims={{3}},
    rhs_batch_dims={{0,1}}, rhs_contracting_dims={{2}} }}"""
    assert not score_order(driver.optimize(driver.parse(text), "simplify"))


def test_a_lookup_has_one_index_and_takes_all_else_as_a_whole() -> None:
    lookup = lookup_of(found(biased(8, 64), "read"))
    assert lookup is not None
    assert (lookup.of_indices, lookup.of_table) == ((0, 1, None), (None, None, 1))
    per_row = lookup_of(found(disentangled(8, 64), "p2c"))
    assert per_row is not None
    assert (per_row.of_indices, per_row.of_table) == ((0, 1, 2), (0, 1, None))
    part = biased(8, 64).replace("slice_sizes={1,8}", "slice_sizes={1,4}")
    part = part.replace("[64,64,8]", "[64,64,4]")
    text = part[: part.index("  bias =")].replace("parameter(4)", "parameter(3)") + "}"
    assert lookup_of(found(text, "read")) is None


def test_a_sum_that_starts_elsewhere_is_none_of_blocks() -> None:
    text = biased(8, 64)
    assert is_sum_from_zero(found(text, "dt"))
    assert not is_sum_from_zero(found(text.replace("broadcast(zero)", "broadcast(low)"), "dt"))
    other = text.replace(
        "index_vector_dim=2,\n    to_apply=sum_of", "index_vector_dim=2, to_apply=max_of"
    )
    assert not is_sum_from_zero(found(other, "dt"))
    assert is_sum_from_zero(found(text.replace("f32[", "bf16["), "dt"))
    assert not is_sum_from_zero(
        found(
            text.replace(
                "none = f32[10,8] broadcast(zero)",
                "zz = f32[] constant(-0.0)\n  none = f32[10,8] broadcast(zz)",
            ),
            "dt",
        )
    )


@pytest.mark.parametrize(
    "text",
    [biased(4, 1031), biased(8, 512), disentangled(5, 509), decayed(6, 448), biased(1, 1024)],
)
def test_numbers_and_bits(text: str) -> None:
    module = driver.parse(text)
    rng = np.random.default_rng(5)
    given = [
        rng.standard_normal(p.shape.dims).astype(p.shape.dtype.numpy)
        for p in module.entry.parameters
    ]
    wanted = hlo.evaluate(module, *given)
    made = [for_threads(module, threads=n)(*given) for n in (1, 2, 3)]
    as_tuple = [r if isinstance(r, tuple) else (r,) for r in (wanted, *made)]
    for want, *got in zip(*as_tuple, strict=True):
        scale = np.abs(want).max()
        assert np.abs(got[0] - want).max() <= 2e-5 * scale
        assert all(np.array_equal(got[0], other) for other in got[1:])
