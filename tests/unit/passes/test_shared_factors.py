"""Products with keys of distances that a batch shares: the same numbers, each batch by itself."""

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.ir.dtype import F32
from hlo.ir.module import Module
from hlo.ops.contraction import DotAttributes
from hlo.passes.scores.shared_factors import keep_batches_apart

# q[b,t,h,d], r[s,h,d], w[h,d,e]; places[b,h,t,u] in the table of products [.., s].
TEXT = """HloModule m
ENTRY e {{
  q = {type}[3,512,2,4] parameter(0)
  r = {type}[720,2,4] parameter(1)
  places = s32[3,2,512,704] parameter(2)
  product = {type}[2,3,512,720] dot(q, r), lhs_batch_dims={{2}}, lhs_contracting_dims={{3}},
    rhs_batch_dims={{1}}, rhs_contracting_dims={{2}}
  {read}
  y = {type}[3,2,512,704] negate(x)
  v = {type}[704,2,5] parameter(3)
  made = {type}[2,3,512,5] dot(y, v), lhs_batch_dims={{1}}, lhs_contracting_dims={{3}},
    rhs_batch_dims={{1}}, rhs_contracting_dims={{0}}
  summed = {type}[2,4,704] dot(q, y), lhs_batch_dims={{2}}, lhs_contracting_dims={{1,0}},
    rhs_batch_dims={{1}}, rhs_contracting_dims={{2,0}}
  ROOT out = ({type}[2,3,512,5], {type}[2,4,704]{more}) tuple(made, summed{extra})
}}
"""
PLAIN = (
    "x = {type}[3,2,512,704] gather(product, places), offset_dims={{}}, "
    "collapsed_slice_dims={{3}}, start_index_map={{3}}, operand_batching_dims={{0,1,2}}, "
    "start_indices_batching_dims={{1,0,2}}, index_vector_dim=4, slice_sizes={{1,1,1,1}}"
)
TURNED = (
    "turned = {type}[3,720,2,512] transpose(product), dimensions={{1,3,0,2}}\n"
    "  x = {type}[3,2,512,704] gather(turned, places), offset_dims={{}}, "
    "collapsed_slice_dims={{1}}, start_index_map={{1}}, operand_batching_dims={{0,2,3}}, "
    "start_indices_batching_dims={{0,1,2}}, index_vector_dim=4, slice_sizes={{1,1,1,1}}"
)


def _module(read: str, dtype: str = "f32", more: str = "", extra: str = "") -> Module:
    text = TEXT.replace("{read}", read).format(type=dtype, more=more, extra=extra)
    return hlo.parse(text)


def _batches(module: Module) -> list[int]:
    """How many dimensions the batch of each product has."""
    dots = [i for i in module.entry.instructions if i.opcode == "dot"]
    return [len(DotAttributes.of(dot.attributes).dims.lhs_batch) for dot in dots]


@pytest.mark.parametrize("read", [PLAIN, TURNED])
@pytest.mark.parametrize("dtype", ["f32", "s32", "bf16"])
def test_each_of_a_batch_has_products_of_its_own(read: str, dtype: str) -> None:
    rng = np.random.default_rng(1)
    module = _module(read, dtype)
    types = [p.shape.dtype.numpy for p in module.entry.parameters]
    small = [rng.integers(-2, 3, p.shape.dims) for p in module.entry.parameters]
    small[2] = rng.integers(0, 720, small[2].shape)
    inputs = [a.astype(t) for a, t in zip(small, types, strict=True)]
    expected = hlo.evaluate(module, *inputs)
    assert keep_batches_apart(module, module.entry)
    assert _batches(module) == [2, 2, 2]
    sums = [i for i in module.entry.instructions if i.opcode == "reduce"]
    assert all(s.shape.dtype is F32 for s in sums) == (dtype != "s32")
    for got, right in zip(hlo.evaluate(module, *inputs), expected, strict=True):
        np.testing.assert_array_equal(got, right)


def test_a_product_that_others_read_stays() -> None:
    others = {"more": ", f32[2,3,512,720]", "extra": ", product"}
    module = _module(PLAIN, **others)
    keep_batches_apart(module, module.entry)
    assert sorted(_batches(module)) == [1, 2, 2]


def test_products_of_what_was_not_looked_up_stay() -> None:
    module = _module("x = f32[3,2,512,704] convert(places)")
    module = driver.optimize(module, "dce")
    assert not keep_batches_apart(module, module.entry)
