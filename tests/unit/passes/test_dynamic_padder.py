"""dynamic_padder is a pass like any other: what runs it, what is left where nothing does."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.interpreted import InterpretedExecutable
from hlo.backend.padded import PaddedExecutable
from hlo.backend.stages.printing import stage_text
from hlo.ir.graph import clone_module
from hlo.passes.padding.dynamic_padder import dynamic_padder

SUM = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
ENTRY e { t = (f32[<=6,4], f32[2]) parameter(0)
  y = f32[<=6,4] parameter(1)
  x = f32[<=6,4] get-tuple-element(t), index=0
  z = f32[<=6,4] add(x, y)
  zero = f32[] constant(0)
  s = f32[4] reduce(z, zero), dimensions={0}, to_apply=sum
  ROOT r = (f32[<=6,4], (f32[4], f32[<=6,4])) tuple(z, s, y) }"""
SUM = SUM.replace("tuple(z, s, y)", "tuple(z, u)").replace(
    "  ROOT r = (", "  u = (f32[4], f32[<=6,4]) tuple(s, y)\n  ROOT r = ("
)
BOUNDARY = """HloModule m
ENTRY e { x = f32[<=6,4] parameter(0)
  p = (f32[6,4], s32[], s32[]) custom-call(x), custom_call_target="PadToStatic"
  a = f32[6,4] get-tuple-element(p), index=0
  n = s32[] get-tuple-element(p), index=1
  k = s32[] get-tuple-element(p), index=2
  two = s32[] constant(2)
  less = s32[] subtract(n, two)
  z = f32[6,4] add(a, a)
  ROOT r = f32[<=6,4] custom-call(z, less, k), custom_call_target="SliceToDynamic" }"""
TRANSFORM = """HloModule m
ENTRY e { x = c64[<=6] parameter(0)
  ROOT z = c64[<=6] fft(x), fft_type=FFT, fft_length={6} }"""


def values(rows: int, more: int = 0) -> tuple[object, ...]:
    x = np.random.default_rng(rows).standard_normal((6, 4)).astype(np.float32)
    return (x[:rows], x[0, :2].copy()), x[: rows + more] * 2


def assert_same(actual: object, expected: object) -> None:
    if isinstance(expected, tuple):
        for a, b in zip(actual, expected, strict=True):  # type: ignore[call-overload]  # a tuple
            assert_same(a, b)
        return
    assert np.shape(actual) == np.shape(expected)
    np.testing.assert_allclose(actual, expected, rtol=1e-5)  # type: ignore[call-overload]  # arrays


@pytest.mark.parametrize("passes", ["dynamic_padder", "default", "default,default", "fast"])
def test_the_program_means_the_same(passes: str) -> None:
    module = hlo.parse(SUM)
    optimised = hlo.optimize(module, passes)
    assert optimised.entry.program_shape == module.entry.program_shape
    run = hlo.compile(module, passes=passes, cache=False)
    assert isinstance(run, PaddedExecutable)
    for given in (values(0), values(3), values(6), values(2, more=3)):
        expected = hlo.evaluate(module, *given)
        assert_same(hlo.evaluate(optimised, *given), expected)
        assert_same(run(*given), expected)


def test_nothing_is_padded_that_no_pass_pads() -> None:
    module = hlo.parse(SUM)
    run = hlo.compile(module, passes="", cache=False)
    assert isinstance(run, InterpretedExecutable)
    assert "dynamic_padder" in run.memory_report()
    assert_same(run(*values(3)), hlo.evaluate(module, *values(3)))
    for passes in ("", "simplify"):
        with pytest.raises(hlo.HloError, match="a size that changes at run time") as caught:
            stage_text(Compilation(module, passes=passes), "program")
        assert caught.value.code == "unsupported"
        assert "the pass dynamic_padder" in str(caught.value)


def test_sizes_at_the_boundary_alone_need_no_pass() -> None:
    module = hlo.parse(BOUNDARY)
    run = hlo.compile(module, passes="", cache=False)
    assert isinstance(run, PaddedExecutable)
    x = np.arange(24, dtype=np.float32).reshape(6, 4)
    for rows in (1, 2, 5, 6):  # of one row, none is left
        assert_same(run(x[:rows]), hlo.evaluate(module, x[:rows]))
    copy = clone_module(module)
    assert not dynamic_padder(copy)
    assert str(copy) == str(module)


@pytest.mark.parametrize("text", [SUM, TRANSFORM])
def test_the_pass_says_whether_it_changed_anything(text: str) -> None:
    module = hlo.parse(text)
    for _ in range(2):
        before = str(module)
        assert dynamic_padder(module) == (str(module) != before)
    assert not dynamic_padder(module)


def test_what_has_no_padded_form_runs_on_the_reference() -> None:
    module = hlo.parse(TRANSFORM)
    run = hlo.compile(module, cache=False)
    assert isinstance(run, InterpretedExecutable)
    x = np.arange(6).astype(np.complex64)
    assert_same(run(x), hlo.evaluate(module, x))


def test_a_result_that_is_cut_under_a_static_shape_is_the_references() -> None:
    module = hlo.parse(
        "HloModule m\nENTRY e { x = f32[<=4,3] parameter(0)\n  ROOT r = f32[4,3] negate(x) }"
    )
    run = hlo.compile(module, cache=False)
    for rows in (2, 4):
        x = np.ones((rows, 3), np.float32)
        assert_same(run(x), hlo.evaluate(module, x))


def test_a_program_changed_after_it_was_compiled_runs_as_it_was() -> None:
    module = hlo.parse(SUM)
    run, given = hlo.compile(module, cache=False), values(2, more=3)
    expected = hlo.evaluate(module, *given)  # sizes that differ are the reference's to judge
    module.entry.root = module.entry.root.operands[0]
    assert_same(run(*given), expected)


def test_steps_buffers_and_stages_are_those_of_the_padded_program() -> None:
    module = hlo.parse(SUM)
    table = str(driver.profile(module, *values(3), threads=1))
    assert "add" in table
    assert driver.memory(module).argument_bytes > 2 * 4 * 6 * 4
    assert "f32[6,4]" in driver.emit_stage(driver.optimize(module), "schedule")
