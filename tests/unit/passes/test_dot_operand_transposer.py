"""dot-operand-transposer: the numbers of a product whose batches lie innermost stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo

TEXT = """HloModule m
ENTRY e {{
  x = f32[{m},{k},{b}] parameter(0)
  y = f32[{y}] parameter(1)
  p = f32[{b},{m},{k}] transpose(x), dimensions={{2,0,1}}
  ROOT r = f32[{b},{m},{n}] dot({x}, y), lhs_batch_dims={{{batch}}},
    lhs_contracting_dims={{{along}}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}
}}
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize(("b", "m", "n", "k"), [(30, 20, 17, 33), (7, 5, 4, 6), (100, 1, 8, 16)])
def test_sums_are_exact(b: int, m: int, n: int, k: int, threads: int, *, is_written: bool) -> None:
    """Of integers; where the program writes the transpose itself, too."""
    numbers = np.random.default_rng(0)
    x, y = (numbers.integers(-4, 5, s).astype(np.float32) for s in ((m, k, b), (b, k, n)))
    places = (
        {"x": "p", "batch": 0, "along": 2} if is_written else {"x": "x", "batch": 2, "along": 1}
    )
    text = TEXT.format(b=b, m=m, n=n, k=k, y=f"{b},{k},{n}", **places)
    exe = hlo.compile(hlo.parse(text), threads=threads, cache=False)
    np.testing.assert_array_equal(exe.run_guarded(x, y), x.transpose(2, 0, 1) @ y)


def test_a_transpose_that_is_written_stays_where_it_pays() -> None:
    """Each element of a matrix that a vector meets is read once: it is read where it lies."""
    places = {"x": "p", "batch": 0, "along": 2}
    for n, stays in ((17, True), (1, False)):
        text = TEXT.format(b=30, m=20, n=n, k=33, y=f"30,33,{n}", **places)
        (dot,) = [
            i
            for i in hlo.optimize(hlo.parse(text)).entry.instructions
            if i.opcode in ("dot", "fusion")
        ]
        assert any(o.opcode == "transpose" for o in dot.operands) is stays


LOOP = """HloModule m
body {
  s = (s32[], f32[24,20,16], f32[16,16,24]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[24,20,16] get-tuple-element(s), index=1
  w = f32[16,16,24] get-tuple-element(s), index=2
  d = f32[24,20,16] dot(h, w), lhs_batch_dims={0}, lhs_contracting_dims={2}, rhs_batch_dims={2},
    rhs_contracting_dims={0}
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], f32[24,20,16], f32[16,16,24]) tuple(j, d, w)
}
cond {
  s = (s32[], f32[24,20,16], f32[16,16,24]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(500)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  h = f32[24,20,16] parameter(0)
  w = f32[16,16,24] parameter(1)
  z = s32[] constant(0)
  s = (s32[], f32[24,20,16], f32[16,16,24]) tuple(z, h, w)
  l = (s32[], f32[24,20,16], f32[16,16,24]) while(s), condition=cond, body=body
  ROOT r = f32[24,20,16] get-tuple-element(l), index=1
}
"""


def test_what_a_loop_keeps_is_turned_before_it() -> None:
    """Not in each of its trips."""
    module = hlo.optimize(hlo.parse(LOOP))
    turned = [
        i
        for c in module.computations
        for i in c.instructions
        if i.opcode == "transpose" and i.shape.dims == (24, 16, 16)
    ]
    assert [i.computation for i in turned] == [module.entry]
