"""What a loop's products make of factors that the loop leaves alone is made before it, once."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver, evaluate
from hlo.backend.compilation import Compilation
from hlo.backend.planning.program import BranchStep, KernelStep, LoopStep, Step
from hlo.machine import NAMED
from hlo.parser.parse import parse
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.covering import covering

# A recurrence of 32 rows, whose weights are packed: kept by the loop, or changed by it.
LOOP = """HloModule m
c {{ s = (s32[], {t}[32,128], {t}[128,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT p = pred[] compare(i, n), direction=LT }}
b {{ s = (s32[], {t}[32,128], {t}[128,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = {t}[32,128] get-tuple-element(s), index=1
  w = {t}[128,128] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  g = {t}[32,128] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  k = {t}[32,128] tanh(g)
  v = {t}[128,128] {after}(w)
  ROOT t = (s32[], {t}[32,128], {t}[128,128]) tuple(j, k, {v}) }}
"""
ONCE = """ENTRY e {{
  zero = s32[] constant(0)
  h = {t}[32,128] parameter(0)
  w = {t}[128,128] parameter(1)
  t = (s32[], {t}[32,128], {t}[128,128]) tuple(zero, h, w)
  l = (s32[], {t}[32,128], {t}[128,128]) while(t), condition=c, body=b
  ROOT r = {t}[32,128] get-tuple-element(l), index=1
}}"""
# The same in a loop around, which hands the weights on too.
TWICE = """d {{ s = (s32[], {t}[32,128], {t}[128,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = {t}[32,128] get-tuple-element(s), index=1
  w = {t}[128,128] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  zero = s32[] constant(0)
  t = (s32[], {t}[32,128], {t}[128,128]) tuple(zero, h, w)
  l = (s32[], {t}[32,128], {t}[128,128]) while(t), condition=c, body=b
  k = {t}[32,128] get-tuple-element(l), index=1
  ROOT u = (s32[], {t}[32,128], {t}[128,128]) tuple(j, k, w) }}
f {{ s = (s32[], {t}[32,128], {t}[128,128]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(2)
  ROOT p = pred[] compare(i, n), direction=LT }}
""" + ONCE.replace("condition=c, body=b", "condition=f, body=d")
# The product within a branch of each step, which the loop takes in turn.
BRANCHES = """HloModule m
multiplied {{ p = ({t}[32,128], {t}[128,128]) parameter(0)
  x = {t}[32,128] get-tuple-element(p), index=0
  m = {t}[128,128] get-tuple-element(p), index=1
  ROOT q = {t}[32,128] dot(x, m), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}} }}
turned {{ x = {t}[32,128] parameter(0)
  ROOT y = {t}[32,128] reverse(x), dimensions={{1}} }}
"""
BRANCHED = LOOP.replace("HloModule m\n", BRANCHES).replace(
    "g = {t}[32,128] dot(h, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}",
    """odd = s32[] and(i, one)
  both = ({t}[32,128], {t}[128,128]) tuple(h, w)
  g = {t}[32,128] conditional(odd, both, h), branch_computations={{multiplied, turned}}""",
)


def compiled(text: str, *, is_kept: bool = True, dtype: str = "f32") -> Compilation:
    source = text.format(t=dtype, after="negate", v="w" if is_kept else "v")
    module = driver.optimize(parse(source), "dce")
    return Compilation(module, threads=2, passes="", machine=NAMED["znver4"])


def products(steps: tuple[Step, ...]) -> int:
    """How many kernels a list of steps calls for products."""
    return sum(isinstance(s, KernelStep) and s.instruction.opcode == "dot" for s in steps)


def only_loop(steps: tuple[Step, ...]) -> LoopStep:
    (loop,) = [s for s in steps if isinstance(s, LoopStep)]
    return loop


@pytest.mark.parametrize(("is_kept", "counts"), [(True, (1, 1)), (False, (0, 1))])
def test_what_a_loop_keeps_is_packed_before_it(*, is_kept: bool, counts: tuple[int, int]) -> None:
    program = compiled(LOOP + ONCE, is_kept=is_kept).program
    loop = only_loop(program.steps)
    assert (products(program.steps), products(loop.body)) == counts


def test_packing_goes_out_of_all_loops_that_keep_the_factor() -> None:
    program = compiled(LOOP + TWICE).program
    outer = only_loop(program.steps)
    inner = only_loop(outer.body)
    assert (products(program.steps), products(outer.body), products(inner.body)) == (1, 0, 1)


@pytest.mark.parametrize(("is_kept", "count"), [(True, 1), (False, 0)])
def test_packing_for_a_branch_goes_out_of_the_loop_around(*, is_kept: bool, count: int) -> None:
    program = compiled(BRANCHED + ONCE, is_kept=is_kept).program
    loop = only_loop(program.steps)
    (branch,) = [s for s in loop.body if isinstance(s, BranchStep)]
    assert products(program.steps) == count
    assert max(products(steps) for steps in branch.branches) == 1
    assert products(compiled(BRANCHED + TWICE).program.steps) == 1


def test_words_of_weights_are_made_and_looked_at_before_the_loop() -> None:
    """In the loop: the look at the rows, the product, and the one that takes its place."""
    program = compiled(LOOP + ONCE, dtype="bf16").program
    loop = only_loop(program.steps)
    before = [program.kernels[s.kernel] for s in program.steps if isinstance(s, KernelStep)]
    inside = [program.kernels[s.kernel] for s in loop.body if isinstance(s, KernelStep)]
    assert products(program.steps) == len(before)
    assert not {k.text for k in before} & {k.text for k in inside}


@pytest.mark.parametrize(("rows", "count"), [(16, 1), (2, 1), (1, 0)])
def test_few_rows_meet_columns_that_are_converted_before_the_loop(rows: int, count: int) -> None:
    """One row reads what is half as long where it lies."""
    text = (LOOP + ONCE).replace("[32,128]", f"[{rows},128]")
    program = compiled(text, dtype="f16").program
    assert products(program.steps) == count
    assert products(only_loop(program.steps).body) == 1
    assert products(compiled(text, dtype="f16", is_kept=False).program.steps) == 0


@pytest.mark.parametrize(
    ("dtype", "loop", "text", "is_kept"),
    covering(["f32", "bf16", "f64", "s8"], [LOOP, BRANCHED], [ONCE, TWICE], [True, False]),
)
def test_steps_compute_what_the_reference_does(
    loop: str, text: str, dtype: str, *, is_kept: bool
) -> None:
    source = (loop + text).replace("tanh", "negate") if dtype == "s8" else loop + text
    kept = "w" if is_kept or text is TWICE else "v"
    module = parse(source.format(t=dtype, after="negate", v=kept))
    values = made_up_inputs(module)
    if dtype != "s8":
        values = [np.asarray(v) * np.asarray(0.1, v.dtype) for v in values]
    wanted = evaluate(module, *values)
    for threads in (1, 2):
        found = Compilation(module, threads=threads).executable(*values)
        assert isinstance(found, np.ndarray)
        assert isinstance(wanted, np.ndarray)
        close = {"f32": 1e-5, "f64": 1e-12, "bf16": 0.05, "s8": 0}[dtype]
        np.testing.assert_allclose(
            found.astype(np.float64), wanted.astype(np.float64), rtol=close, atol=close
        )


@pytest.mark.parametrize("rows", [1, 3, 7, 16])
@pytest.mark.parametrize("loop", [LOOP, BRANCHED], ids=["plain", "branched"])
def test_few_rows_of_narrow_weights_have_the_same_bits_for_all_threads(
    loop: str, rows: int
) -> None:
    text = (loop + ONCE).replace("[32,128]", f"[{rows},128]").format(t="f16", after="negate", v="w")
    module = parse(text)
    values = [np.asarray(v) * np.float16(0.1) for v in made_up_inputs(module)]
    wanted = np.asarray(evaluate(module, *values)).astype(np.float64)
    found = [
        np.asarray(Compilation(module, threads=n).executable(*values)).astype(np.float64)
        for n in (1, 2, 3, 7)
    ]
    np.testing.assert_allclose(found[0], wanted, rtol=5e-3, atol=5e-3)
    assert all(np.array_equal(found[0], other) for other in found)
