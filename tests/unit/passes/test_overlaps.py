"""Scatters of frames become sums of shifted arrays, which add up in the scatter's order."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver

HEAD = """HloModule frames
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
"""
# A signal's frames: 12 of 20 samples, 8 apart, for each of three channels.
SIGNAL = (
    HEAD
    + """ENTRY e { x = f32[3,120] parameter(0)
  u = f32[3,12,20] parameter(1)
  i = s32[12,20] iota(), iota_dimension=0
  j = s32[12,20] iota(), iota_dimension=1
  hop = s32[] constant(8)
  hops = s32[12,20] broadcast(hop), dimensions={}
  first = s32[12,20] multiply(i, hops)
  at = s32[12,20] add(first, j)
  ROOT r = f32[3,120] scatter(x, at, u), update_window_dims={0}, inserted_window_dims={1},
    scatter_dims_to_operand_dims={1}, index_vector_dim=2, to_apply=add }"""
)
# Patches of a picture, where they stand and what is in them in either order.
PICTURE = (
    HEAD
    + """ENTRY e { x = f32[20,21] parameter(0)
  u = f32[DIMS] parameter(1)
  a = s32[DIMS,1] iota(), iota_dimension=P
  b = s32[DIMS,1] iota(), iota_dimension=Q
  c = s32[DIMS,1] iota(), iota_dimension=R
  d = s32[DIMS,1] iota(), iota_dimension=S
  rows = s32[DIMS,1] add(a, c)
  columns = s32[DIMS,1] add(b, d)
  at = s32[DIMS,2] concatenate(rows, columns), dimensions={4}
  ROOT r = f32[20,21] scatter(x, at, u), update_window_dims={}, inserted_window_dims={0,1},
    scatter_dims_to_operand_dims={0,1}, index_vector_dim=4, to_apply=add }"""
)
SIZES = (18, 18, 3, 4)  # rows and columns of patches, rows and columns of one


def picture(order: tuple[int, ...]) -> str:
    """The program with its dimensions (P, Q, R, S) in an order."""
    text = PICTURE.replace("DIMS", ",".join(str(SIZES[k]) for k in order))
    for k, name in enumerate("PQRS"):
        text = text.replace(f"iota_dimension={name}", f"iota_dimension={order.index(k)}")
    return text


@pytest.mark.parametrize(
    "text",
    [SIGNAL, picture((0, 1, 2, 3)), picture((2, 3, 0, 1)), picture((0, 3, 2, 1))],
    ids=["signal", "picture", "places of patches", "mixed"],
)
def test_terms_are_added_in_the_order_of_the_scatter(text: str) -> None:
    rng = np.random.default_rng(0)
    module = hlo.parse(text)
    inputs = [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry.parameters]
    shifted = driver.optimize(hlo.parse(text), "algsimp{only=scatter-frames}")
    assert not any(i.opcode == "scatter" for i in shifted.entry.instructions)
    want = hlo.compile(module, passes="")(*inputs)
    given = hlo.compile(shifted, passes="")(*inputs)
    assert np.asarray(given).tobytes() == np.asarray(want).tobytes()
    np.testing.assert_allclose(want, hlo.evaluate(hlo.parse(text), *inputs), rtol=1e-5, atol=1e-5)


def test_what_meets_in_many_places_stays() -> None:
    """Frames of 40 that are one apart would be 40 shifted arrays."""
    text = SIGNAL.replace("constant(8)", "constant(1)").replace("12,20", "80,40")
    module = driver.optimize(hlo.parse(text), "algsimp{only=scatter-frames}")
    assert any(i.opcode == "scatter" for i in module.entry.instructions)
