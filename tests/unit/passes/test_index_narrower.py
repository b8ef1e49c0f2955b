"""Arg-max whose indices are reduced in a narrower type: the same indices, of the same type."""

import numpy as np
import pytest

from hlo import driver
from tests.support.covering import covering


def arg_max(kind: str, indices: str, dims: tuple[int, int], axis: int, results: str) -> str:
    kept = dims[1 - axis]
    least = "-inf" if kind in ("f32", "f64", "bf16", "f16") else "-100"
    both = f"({kind}[{kept}], {indices}[{kept}])"
    shapes = {"place": f"{indices}[{kept}]", "both": both, "fold": both}[results]
    root = {
        "place": f"ROOT k = {indices}[{kept}] get-tuple-element(r), index=1",
        "both": f"""v = {kind}[{kept}] get-tuple-element(r), index=0
  k = {indices}[{kept}] get-tuple-element(r), index=1
  ROOT t = {shapes} tuple(v, k)""",
        "fold": "",
    }[results]
    first = "ROOT " if results == "fold" else ""
    return f"""HloModule m
best {{
  a = {kind}[] parameter(0)
  i = {indices}[] parameter(1)
  b = {kind}[] parameter(2)
  j = {indices}[] parameter(3)
  greater = pred[] compare(a, b), direction=GT
  same = pred[] compare(a, b), direction=EQ
  before = pred[] compare(i, j), direction=LT
  tie = pred[] and(same, before)
  d = pred[] or(greater, tie)
  v = {kind}[] select(greater, a, b)
  k = {indices}[] select(d, i, j)
  ROOT t = ({kind}[], {indices}[]) tuple(v, k)
}}
ENTRY e {{
  x = {kind}[{dims[0]},{dims[1]}] parameter(0)
  least = {kind}[] constant({least})
  zero = {indices}[] constant(0)
  row = {indices}[{dims[axis]}] iota(), iota_dimension=0
  wide = {indices}[{dims[0]},{dims[1]}] broadcast(row), dimensions={{{axis}}}
  {first}r = {both} reduce(x, wide, least, zero), dimensions={{{axis}}}, to_apply=best
  {root}
}}"""


@pytest.mark.parametrize(
    ("results", "axis", "kind", "indices", "dims"),
    covering(
        ["place", "both", "fold"],
        [0, 1],
        [
            ("f32", "s64", (40, 70)),
            ("s8", "s64", (300, 130)),
            ("s8", "s32", (100, 128)),
            ("bf16", "u64", (33, 300)),
            ("s16", "s64", (40, 40)),
            ("f64", "s64", (30, 20)),
            ("s32", "u64", (10, 2000)),
            ("f32", "s64", (500, 10)),
        ],
        several=(2,),
    ),
)
def test_indices_are_those_of_the_reference(
    kind: str, indices: str, dims: tuple[int, int], axis: int, results: str
) -> None:
    module = driver.parse(arg_max(kind, indices, dims, axis, results))
    x = np.random.default_rng(3).integers(-90, 90, dims)
    given = x.astype(module.entry.parameters[0].shape.dtype.numpy)
    wanted = driver.evaluate(module, given)
    found = driver.compile(module, cache=False)(given)
    if results == "place":
        wanted, found = (wanted,), (found,)
    for a, b in zip(found, wanted, strict=True):
        assert a.dtype == b.dtype
        assert np.array_equal(a, b)


def test_narrow_indices_are_reduced_in_full_vectors() -> None:
    module = driver.optimize(driver.parse(arg_max("s8", "s64", (7, 300), 1, "place")))
    (fusion,) = [i for i in module.entry.instructions if i.opcode == "fusion"]
    (body,) = fusion.called_computations()
    reduction = next(i for i in body.instructions if i.opcode == "reduce")
    assert [e.dtype.name for e in reduction.shape.elements] == ["s8", "s16"]
    assert body.root.opcode == "convert"
