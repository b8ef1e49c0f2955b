"""Few rows by dot products whose words are made in registers, or lie along depth."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlo
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.vectors.word_plan import dots_of_words, words_streamed
from hlo.backend.linking.toolchain import host_machine
from hlo.ir import dtype as dt
from hlo.machine import NAMED
from tests.support.contraction_harness import Compiled, target_of
from tests.support.covering import covering
from tests.support.machines_here import runs_here
from tests.unit.backend.kernels.contraction.test_words import extremes, text

BF16 = ml_dtypes.bfloat16
LEVELS = [
    level for level in ("sse", "avx2", "avx512", "host")
    if runs_here(target_of(level).machine)
]  # fmt: skip
KINDS = [("s8", "s8", "s32"), ("u8", "s8", "s32"), ("s8", "u8", "s32"), ("u8", "u8", "u32"),
         ("s8", "s8", "s8"), ("s16", "s8", "s32"), ("s16", "s16", "s16")]  # fmt: skip
# Rows, depths, columns: parts of words, of steps and of vectors are left.
SIZES = [(2, 16, 64), (3, 19, 129), (5, 277, 200), (9, 40, 331), (16, 264, 96)]


def found(program: str, level: str = "host") -> tuple[bool, bool]:
    """Whether it is a stream of words, whether dots of words."""
    root = hlo.parse(program).entry.root
    ring = ring_of(root.shape.dtype, target_of(level))
    c = normal(dot_contraction(root), ring.lanes)
    return words_streamed(c, ring) is not None, dots_of_words(c, ring) is not None


@pytest.mark.parametrize(
    ("level", "types", "number", "rhs"), covering(LEVELS, KINDS, range(len(SIZES)), range(2))
)
def test_integers_wrap(types: tuple[str, str, str], level: str, number: int, rhs: int) -> None:
    module = hlo.parse(text(types, SIZES[number], number % 2, rhs))
    root, values = module.entry.root, extremes(module)
    result = np.zeros(root.shape.dims, root.shape.dtype.numpy)
    Compiled(contraction_kernels(root, target_of(level)), level)(values, result, 3)
    np.testing.assert_array_equal(result, hlo.evaluate(module, *values))


@pytest.mark.parametrize("level", LEVELS)
def test_which_products_are_words(level: str) -> None:
    assert found(text(("s8", "s8", "s32"), (4, 64, 256), 1, 0), level)[0]
    assert not found(text(("f32", "f32", "f32"), (4, 64, 256), 1, 0), level)[0]
    assert not found(text(("s8", "s8", "s32"), (17, 64, 256), 1, 0), level)[0]  # rows
    assert not found(text(("s8", "s8", "s32"), (4, 8, 256), 1, 0), level)[0]  # depths
    assert not found(text(("s8", "s8", "s32"), (4, 64, 12), 1, 0), level)[0]  # columns


HAS_BF16 = target_of().isa.dot_product(dt.BF16, dt.BF16) is not None
HAS_QUADS = host_machine().has("avx512vnni")


@pytest.mark.skipif(not HAS_BF16, reason="bf16 is multiplied as f32")
def test_one_and_two_rows_of_bf16_are_not_words() -> None:
    assert [found(text(("bf16", "bf16", "f32"), (m, 64, 256), 1, 0))[0] for m in (1, 2, 3)] == [
        False, False, True,
    ]  # fmt: skip


@pytest.mark.skipif(not HAS_QUADS, reason="there are no quads")
def test_dots_of_words_where_quads_lie_along_depth() -> None:
    assert found(text(("s8", "s8", "s32"), (4, 256, 64), 1, 1)) == (False, True)
    assert found(text(("s8", "s8", "s32"), (4, 258, 64), 1, 1)) == (False, False)
    assert found(text(("s8", "s8", "s32"), (9, 256, 64), 1, 1)) == (False, False)


FEW = {
    # Few columns of results, which are the rows of the product of words: it is exchanged again.
    "results along few columns": """
  x = s8[200,64] parameter(0)
  y = s8[3,64] parameter(1)
  ROOT r = s32[200,3] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={1}
""",
    "depth of two runs": """
  x = s8[2,3,64] parameter(0)
  y = s8[2,100,64] parameter(1)
  ROOT r = s32[3,100] dot(x, y), lhs_contracting_dims={0,2}, rhs_contracting_dims={0,2}
""",
    "windows for few features": """
  x = s8[2,7,30,24] parameter(0)
  y = s8[2,3,2,24] parameter(1)
  ROOT r = s32[2,6,28,2] convolution(x, y), window={size=2x3}, dim_labels=b01f_01oi->b01f
""",
}


@pytest.mark.parametrize("form", FEW)
def test_few_rows_or_columns_of_quads(form: str) -> None:
    module = hlo.parse(f"HloModule m\nENTRY e {{{FEW[form]}}}\n")
    values = extremes(module)
    result = hlo.compile(module, cache=False).run_guarded(*values)
    np.testing.assert_array_equal(result, hlo.evaluate(module, *values))


@pytest.mark.parametrize("out", ["f32", "bf16"])
def test_bf16_within_the_bound_of_its_sums(out: str) -> None:
    rng = np.random.default_rng(1)
    for dims in SIZES:
        module = hlo.parse(text(("bf16", "bf16", out), dims, 1, 0))
        values = [rng.standard_normal(p.shape.dims).astype(BF16) for p in module.entry.parameters]
        x, y = (value.astype(np.float64) for value in values)
        exact, weight = x @ y, np.abs(x) @ np.abs(y)
        result = hlo.compile(module, cache=False).run_guarded(*values).astype(np.float64)
        unit = 2.0**-8 if out == "bf16" else 0.0
        assert (np.abs(result - exact) <= 2.0**-20 * weight + unit * np.abs(exact)).all()


@pytest.mark.parametrize("place", [(0, 0), (-1, -1), (15, 70)])
def test_subnormal_factors_count(place: tuple[int, int]) -> None:
    module = hlo.parse(text(("bf16", "bf16", "f32"), (4, 21, 100), 1, 0))
    for side in range(2):
        values = [np.ones(p.shape.dims, BF16) for p in module.entry.parameters]
        values[1 - side][:] = 1e30
        values[side][:] = 0
        where = place if side else (place[0] % 4, place[1] % 21)
        values[side][where] = -1e-39
        np.testing.assert_allclose(
            hlo.compile(module, cache=False)(*values), hlo.evaluate(module, *values), rtol=1e-6
        )
        values[1 - side][2, 3], values[1 - side][3, 2] = np.inf, np.nan
        np.testing.assert_allclose(
            hlo.compile(module, cache=False)(*values), hlo.evaluate(module, *values), rtol=1e-6
        )


KEPT = """HloModule kept
body {
  s = (s32[], bf16[4,256], bf16[256,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = bf16[4,256] get-tuple-element(s), index=1
  u = bf16[256,256] get-tuple-element(s), index=2
  d = bf16[4,256] dot(h, u), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = bf16[4,256] tanh(d)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT r = (s32[], bf16[4,256], bf16[256,256]) tuple(j, t, u)
}
cond {
  s = (s32[], bf16[4,256], bf16[256,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY e {
  z = s32[] constant(0)
  h = bf16[4,256] parameter(0)
  u = bf16[256,256] parameter(1)
  t = (s32[], bf16[4,256], bf16[256,256]) tuple(z, h, u)
  ROOT w = (s32[], bf16[4,256], bf16[256,256]) while(t), condition=cond, body=body
}"""


def test_what_a_loop_keeps_becomes_words_before_it() -> None:
    machine = NAMED["znver4"]
    loops = hlo.driver.emit_stage(hlo.parse(KEPT), "loops", machine=machine)
    assert "words of rows" not in loops
    alone = text(("bf16", "bf16", "bf16"), (4, 256, 256), 1, 0)
    shown = hlo.driver.emit_stage(hlo.parse(alone), "asm", machine=machine)
    assert "vdpbf16ps" in shown
    assert "vpunpcklwd" in shown
    assert "vpunpcklwd" not in hlo.driver.emit_stage(hlo.parse(KEPT), "asm", machine=machine)


@pytest.mark.parametrize(("rows", "asked"), [(8192, True), (512, False)])
def test_rows_from_memory_are_asked_for_ahead(rows: int, asked: bool) -> None:  # noqa: FBT001
    program = text(("s8", "s8", "s32"), (4, rows, 2048), 1, 0)
    shown = hlo.driver.emit_stage(hlo.parse(program), "asm", machine=NAMED["znver4"])
    assert ("prefetcht1" in shown) == asked


@pytest.mark.parametrize(("rows", "instruction"), [(4, "vfmadd"), (16, "tdpbf16ps")])
def test_pairs_of_bf16_are_not_multiplied_where_multiply_adds_are_faster(
    rows: int, instruction: str
) -> None:
    """Intel's machines with tiles: few rows are multiplied as f32, more by tiles."""
    program = text(("bf16", "bf16", "f32"), (rows, 1024, 1024), 1, 0)
    shown = hlo.driver.emit_stage(hlo.parse(program), "asm", machine=NAMED["sapphirerapids"])
    assert "vdpbf16ps" not in shown
    assert instruction in shown
