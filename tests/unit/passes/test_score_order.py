"""Score order: grouped heads get one order of dimensions, so that blocks can be cut of them."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.analysis.blocks.block import Block
from hlo.analysis.blocks.blocked import is_blocked
from hlo.analysis.blocks.size import block_of
from hlo.analysis.scores.region import Met, Roles, region_around
from hlo.ir.module import Module
from hlo.passes.large_values import score_order
from tests.support.attention_programs import REDUCERS, softmax
from tests.support.by_threads import for_threads

HEADS, GROUP = 2, 3


def grouped(length: int, *, masked: bool = False, trained: bool = False, batch: int = 1) -> str:
    """Attention of which some heads share keys and values, in the layout that vmap gives."""
    given = f"{batch},{length},{HEADS}"
    scores, turned = (
        f"{batch},{HEADS},{length},{GROUP},{length}",
        f"{GROUP},{batch},{HEADS},{length},{length}",
    )
    mask = f"s = f32[{turned}] copy(moved)"
    extra = ""
    if masked:
        extra = f"  mask = f32[{batch},{length},{length}] parameter(4)\n"
        mask = f"""wide = f32[{turned}] broadcast(mask), dimensions={{1,3,4}}
  s = f32[{turned}] add(moved, wide)"""
    end = f"ROOT o = f32[{batch},{HEADS},16,{GROUP},{length}]"
    if trained:
        end = end.removeprefix("ROOT ")
    text = f"""HloModule grouped
{REDUCERS}
ENTRY e {{
  q = f32[{given},{GROUP},16] parameter(0)
  k = f32[{given},16] parameter(1)
  v = f32[{given},16] parameter(2)
  g = f32[{batch},{HEADS},16,{GROUP},{length}] parameter(3)
{extra}  raw = f32[{scores}] dot(q, k), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{4}},
    rhs_batch_dims={{0,2}}, rhs_contracting_dims={{3}}
  moved = f32[{turned}] transpose(raw), dimensions={{3,0,1,2,4}}
  {mask}
  {softmax(turned, f"{GROUP},{batch},{HEADS},{length}", 4)}
  {end} dot(v, p), lhs_batch_dims={{0,2}}, lhs_contracting_dims={{1}},
    rhs_batch_dims={{1,2}}, rhs_contracting_dims={{4}}"""
    if not trained:
        return text + " }"
    return f"""{text}
  dv = f32[{batch},{HEADS},{length},16] dot(p, g), lhs_batch_dims={{1,2}},
    lhs_contracting_dims={{0,3}}, rhs_batch_dims={{0,1}}, rhs_contracting_dims={{3,4}}
  ROOT r = (f32[{batch},{HEADS},16,{GROUP},{length}], f32[{batch},{HEADS},{length},16])
    tuple(o, dv) }}"""


def ordered(text: str) -> Module:
    module = driver.optimize(driver.parse(text), "simplify")
    assert score_order(module)
    driver.verify(module)
    return module


def blocks(text: str) -> list[Block | None]:
    module = driver.optimize(driver.parse(text))
    every = (i for c in module.computations for i in c.instructions if i.opcode == "fusion")
    return [block_of(fusion) for fusion in every if is_blocked(fusion)]


def test_rows_and_columns_come_last() -> None:
    shapes = {
        i.shape.dims
        for i in ordered(grouped(512)).entry.instructions
        if i.shape.is_array and i.shape.size >= HEADS * GROUP * 512 * 512 and i.users
    }
    assert shapes == {(HEADS, GROUP, 512, 512)}


def test_groups_stay_apart_in_sums_until_they_are_made() -> None:
    module = ordered(grouped(512, trained=True))
    sums = [i for i in module.entry.instructions if i.opcode == "reduce" and i.shape.rank == 3]
    assert (HEADS, 512, 16) in [i.shape.dims for i in sums]
    assert (HEADS, GROUP, 512, 16) in [i.operands[0].shape.dims for i in sums]


@pytest.mark.parametrize("trained", [False, True])
def test_blocks_are_rows_of_groups(*, trained: bool) -> None:
    (block,) = blocks(grouped(512, trained=trained))
    assert block is not None
    assert block.lead == (HEADS, GROUP, 512)
    assert block.sizes[:2] == (1, 1)


def test_a_mask_of_each_batch_is_cut_by_batch_and_row() -> None:
    (block,) = blocks(grouped(512, masked=True, batch=2))
    assert block is not None
    assert block.lead == (2, HEADS, GROUP, 512)


@pytest.mark.parametrize(
    "text",
    [
        grouped(128),  # few scores
        grouped(512).replace("exponential(d)", "copy(d)").replace(
            "ROOT o", "other = f32[3,1,2,512,512] reverse(p), dimensions={3}\n"
            "  ROOT o").replace("dot(v, p)", "dot(v, other)"),
    ],
    ids=["few", "rows that are moved"],
)  # fmt: skip
def test_what_has_no_order_stays(text: str) -> None:
    module = driver.optimize(driver.parse(text), "simplify")
    before = driver.to_text(module)
    assert not score_order(module)
    assert driver.to_text(module) == before


@pytest.mark.parametrize("masked", [False, True], ids=["all", "masked"])
@pytest.mark.parametrize("trained", [False, True], ids=["forward", "gradients"])
@pytest.mark.parametrize(("length", "batch"), [(512, 1), (431, 2)])
def test_results(length: int, batch: int, *, masked: bool, trained: bool) -> None:
    text = grouped(length, masked=masked, trained=trained, batch=batch)
    rng = np.random.default_rng(5)
    arrays = [
        rng.standard_normal(p.shape.dims).astype(np.float32)
        for p in driver.parse(text).entry.parameters
    ]
    module = driver.parse(text)
    whole = driver.compile(driver.optimize(module, "simplify,fusion"), passes="")
    runs = [whole, *(for_threads(module, threads=n) for n in (1, 2, 3, 7))]
    found = [run(*arrays) for run in runs]
    listed = [[np.asarray(x) for x in (r if isinstance(r, tuple) else (r,))] for r in found]
    for other in listed[2:]:
        assert [a.tobytes() for a in other] == [a.tobytes() for a in listed[1]]
    for a, b in zip(listed[1], listed[0], strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=2e-5)


WIDE = """HloModule wide
ENTRY e {
  x = f32[8,60,128] parameter(0)
  w = f32[128,128] parameter(1)
  a = f32[8,60,128] dot(x, w), lhs_contracting_dims={2}, rhs_contracting_dims={0}
  t = f32[8,60,128] tanh(a)
  half = f32[8,60,64] slice(t), slice={[0:8], [0:60], [0:64]}
  ROOT r = f32[8,60,64] negate(half) }"""


def test_what_hangs_together_without_being_scores_is_gone_through_once() -> None:
    entry = driver.parse(WIDE).entry
    _, _, product, after, *_ = entry.instructions
    in_none: Met = {}
    assert region_around(product, Roles(1, 2), in_none) is None
    assert in_none == {product: Roles(1, 2), after: Roles(1, 2)}
    assert region_around(after, Roles(1, 2), in_none) is None
    assert region_around(after, Roles(0, 2), in_none) is None  # not met in this way
    assert in_none[after] == Roles(0, 2)
