"""Gathers at counted places: runs of their table, with what is clamped read at its ends."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.machine import NAMED

ROWS, COLUMNS, TABLE = 7, 37, 50
BATCHED = """offset_dims={}, collapsed_slice_dims={1}, start_index_map={1},
    operand_batching_dims={0}, start_indices_batching_dims={0}, index_vector_dim=2,
    slice_sizes={1,1}"""


# How lanes are looked up one by one: in memory, or in registers that hold a row.
LOOKED_UP = ("llvm.masked.gather", "vpermi2var.ps", "permvar.sf.512")


def program(places: str, kind: str = "s32", element: str = "f32") -> str:
    """x[i, place(i, j)] * 2"""
    shape = f"{kind}[{ROWS},{COLUMNS}]"
    return f"""HloModule counted
ENTRY e {{
  x = {element}[{ROWS},{TABLE}] parameter(0)
  start = {kind}[] parameter(1)
  i = {shape} iota(), iota_dimension=0
  j = {shape} iota(), iota_dimension=1
  apart = {shape} subtract(j, i)
{places.replace("SHAPE", shape).replace("KIND", kind)}
  read = {element}[{ROWS},{COLUMNS}] gather(x, at), {BATCHED}
  ROOT twice = {element}[{ROWS},{COLUMNS}] add(read, read)
}}"""


MOVED = """  n = KIND[] constant({n})
  ns = SHAPE broadcast(n), dimensions={{}}
  at = SHAPE add(apart, ns)"""
CLIPPED = """  l = KIND[] constant(-3)
  h = KIND[] constant(9)
  near = SHAPE clamp(l, apart, h)
  n = KIND[] constant({n})
  ns = SHAPE broadcast(n), dimensions={{}}
  at = SHAPE add(near, ns)"""
BACKWARDS = """  away = SHAPE negate(apart)
  n = KIND[] constant({n})
  ns = SHAPE broadcast(n), dimensions={{}}
  at = SHAPE add(ns, away)"""
WRAPPED = """  zero = KIND[] constant(0)
  zeros = SHAPE broadcast(zero), dimensions={{}}
  n = KIND[] constant({n})
  ns = SHAPE broadcast(n), dimensions={{}}
  moved = SHAPE add(apart, ns)
  below = pred[7,37] compare(moved, zeros), direction=LT
  over = SHAPE add(moved, ns)
  at = SHAPE select(below, over, moved)"""
STRIDED = """  n = KIND[] constant({n})
  ns = SHAPE broadcast(n), dimensions={{}}
  far = SHAPE multiply(j, ns)
  at = SHAPE add(i, far)"""
STARTED = """  l = KIND[] constant(0)
  h = KIND[] constant(11)
  begin = KIND[] clamp(l, start, h)
  n = SHAPE broadcast(begin), dimensions={{}}
  at = SHAPE add(apart, n)"""
UNKNOWN = """  n = SHAPE broadcast(start), dimensions={{}}
  at = SHAPE add(apart, n)"""


def checked(text: str, start: int) -> bool:
    """Compiled as the reference says, bit by bit; whether lanes are looked up one by one."""
    module = hlo.parse(text)
    x = np.random.default_rng(0).standard_normal((ROWS, TABLE))
    inputs = (
        x.astype(module.entry.parameters[0].shape.dtype.numpy),
        np.array(start, module.entry.parameters[1].shape.dtype.numpy),
    )
    want = hlo.evaluate(hlo.parse(text), *inputs)
    for machine in (None, NAMED["x86-64-v3"]):
        given = hlo.compile(hlo.parse(text), machine=machine)(*inputs)
        assert np.asarray(given).tobytes() == np.asarray(want).tobytes()
    code = driver.emit_stage(driver.optimize(module), "llvm")
    return any(name in code for name in LOOKED_UP)


@pytest.mark.parametrize("places", [MOVED, CLIPPED, BACKWARDS], ids=["moved", "clipped", "turned"])
@pytest.mark.parametrize("n", [-60, -2, 0, 6, 13, 40, 70])
def test_neighbours_are_read_as_a_run(places: str, n: int) -> None:
    """Wherever the run begins and ends, also beside the table."""
    is_one_end = places is CLIPPED and abs(n) > TABLE
    assert checked(program(places.format(n=n)), 0) is is_one_end


@pytest.mark.parametrize("n", [-2, -1, 1, 2, 3, 7])
def test_elements_equally_far_apart(n: int) -> None:
    """Places beyond the table's ends are clamped: three steps of 36 are."""
    checked(program(STRIDED.format(n=n)), 0)


def test_elements_equally_far_apart_inside_of_the_table_are_no_lookup() -> None:
    text = program(STRIDED.format(n=2)).replace(f"[{ROWS},{TABLE}]", f"[{ROWS},90]")
    x = np.random.default_rng(0).standard_normal((ROWS, 90)).astype(np.float32)
    want = hlo.evaluate(hlo.parse(text), x, np.int32(0))
    for machine in (None, NAMED["x86-64-v3"]):
        given = hlo.compile(hlo.parse(text), machine=machine)(x, np.int32(0))
        assert np.asarray(given).tobytes() == np.asarray(want).tobytes()
    shown = driver.emit_stage(driver.optimize(hlo.parse(text)), "llvm")
    assert "mul <" not in shown  # no place is computed lane by lane


VECTORS = f"""HloModule vectors
ENTRY e {{
  x = f32[{ROWS},{TABLE}] parameter(0)
  a = s32[{ROWS},5,3,1] iota(), iota_dimension=0
  b = s32[{ROWS},5,3,1] iota(), iota_dimension=1
  c = s32[{ROWS},5,3,1] iota(), iota_dimension=2
  n = s32[] constant(8)
  ns = s32[{ROWS},5,3,1] broadcast(n), dimensions={{}}
  d = s32[{ROWS},5,3,1] multiply(b, ns)
  e = s32[{ROWS},5,3,1] add(c, d)
  FIRST
  at = s32[{ROWS},5,3,2] concatenate(f, e), dimensions={{3}}
  ROOT r = f32[{ROWS},5,3] gather(x, at), offset_dims={{}}, collapsed_slice_dims={{0,1}},
    start_index_map={{0,1}}, index_vector_dim=3, slice_sizes={{1,1}}
}}"""


@pytest.mark.parametrize("first", ["add(a, c)", "multiply(a, c)"])
def test_places_in_two_dimensions(first: str) -> None:
    """The first may be clamped, or is no place that is counted: then both are looked up."""
    module = hlo.parse(VECTORS.replace("FIRST", f"f = s32[{ROWS},5,3,1] {first}"))
    x = np.random.default_rng(0).standard_normal((ROWS, TABLE)).astype(np.float32)
    want = hlo.evaluate(module, x)
    assert np.asarray(hlo.compile(module)(x)).tobytes() == np.asarray(want).tobytes()


@pytest.mark.parametrize("start", [-5, 0, 4, 11, 2**31 - 1])
def test_a_bounded_start_is_part_of_a_place(start: int) -> None:
    assert not checked(program(STARTED.format()), start)


@pytest.mark.parametrize("start", [-5, 3, 2**31 - 1, -(2**31)])
def test_a_start_that_may_wrap_is_none(start: int) -> None:
    """The sum wraps as it did, before it is clamped."""
    assert checked(program(UNKNOWN.format()), start)


@pytest.mark.parametrize(("n", "is_run"), [(6, True), (3, False)])
def test_a_choice_that_is_always_the_same(n: int, *, is_run: bool) -> None:
    """Places below zero that count from the end, as indices of arrays do."""
    assert checked(program(WRAPPED.format(n=n)), 0) is not is_run


def test_places_that_leave_their_type_are_none() -> None:
    """s8: 100 + 36 wraps to a negative number, which is clamped to the first place."""
    assert checked(program(MOVED.format(n=100), "s8"), 0)


@pytest.mark.parametrize("element", ["s8", "bf16", "f64", "pred"])
def test_other_elements(element: str) -> None:
    text = program(MOVED.format(n=6), element=element).replace("add(read, read)", "or(read, read)")
    text = text if element == "pred" else text.replace("or(read, read)", "add(read, read)")
    assert not checked(text, 0)
