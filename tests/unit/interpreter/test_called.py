"""Called computations: recognised as elementwise, and then the same on arrays as on scalars."""

import numpy as np
import pytest

from hlo.interpreter.device import Device, Surroundings
from hlo.interpreter.evaluate import evaluate
from hlo.interpreter.run import Called, Run
from hlo.parser.parse import parse

SCALAR = """
HloModule m

half {
  v = f32[] parameter(0)
  h = f32[] constant(0.5)
  ROOT r = f32[] multiply(v, h)
}

mixed {
  x = f32[] parameter(0)
  n = s32[] parameter(1)
  y = f32[] call(x), to_apply=half
  whole = s32[] convert(y)
  same = pred[] compare(whole, n), direction=EQ
  low = f32[] constant(-1)
  high = f32[] constant(1)
  kept = f32[] clamp(low, y, high)
  chosen = f32[] select(same, kept, x)
  root = f32[] sqrt(chosen)
  ROOT t = (f32[], s32[], f32[]) tuple(root, whole, high)
}

chosen_by_branch {
  x = f32[] parameter(0)
  zero = f32[] constant(0)
  up = pred[] compare(x, zero), direction=GT
  ROOT r = f32[] conditional(up, x, x), true_computation=half, false_computation=half
}

counted {
  x = f32[] parameter(0)
  w = f32[1] reshape(x)
  ROOT r = f32[] reshape(w)
}

ENTRY e { ROOT x = f32[] parameter(0) }
"""


def called(name: str) -> Called:
    module = parse(SCALAR)
    (computation,) = (c for c in module.computations if c.name == name)
    return Called(computation, Run(Device(Surroundings())))


def test_elementwise_computation_takes_arrays() -> None:
    mixed = called("mixed")
    assert mixed.is_elementwise
    x = np.array([-3.0, -0.0, 0.5, 2.0, np.nan, 8.0], np.float32)
    n = np.array([-1, 0, 0, 1, 0, 4], np.int32)
    whole = mixed(x, n)
    each = [mixed(np.asarray(a), np.asarray(b)) for a, b in zip(x, n, strict=True)]
    for part in range(3):
        expected = np.array([row[part] for row in each])  # type: ignore[index]  # a tuple
        found = np.broadcast_to(whole[part], x.shape)  # type: ignore[index]  # a constant stays one
        assert np.array_equal(found, expected, equal_nan=True)


@pytest.mark.parametrize("name", ["chosen_by_branch", "counted"])
def test_other_computations_do_not(name: str) -> None:
    assert not called(name).is_elementwise


@pytest.mark.parametrize("dims", [(0,), (2, 0, 3), (1,) * 30])
def test_empty_arrays_and_many_dimensions(dims: tuple[int, ...]) -> None:
    shape = f"f32[{','.join(map(str, dims))}]"
    turned = f"f32[{','.join(map(str, dims[::-1]))}]"
    order = ",".join(map(str, range(len(dims) - 1, -1, -1)))
    text = f"""HloModule m
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }}
ENTRY e {{
  x = {shape} parameter(0)
  y = {shape} exponential(x)
  t = {turned} transpose(y), dimensions={{{order}}}
  zero = f32[] constant(7)
  s = f32[] reduce(t, zero), dimensions={{{order}}}, to_apply=add
  ROOT r = ({turned}, f32[]) tuple(t, s)
}}"""
    moved, total = evaluate(parse(text), np.zeros(dims, np.float32))  # type: ignore[misc]  # a tuple
    assert moved.shape == dims[::-1]
    assert total == 7 + np.prod(dims)


def test_invariant_steps_run_once_per_run() -> None:
    text = """HloModule m
below { i = s32[] parameter(0) n = s32[] constant(50) ROOT r = pred[] compare(i, n), direction=LT }
next {
  i = s32[] parameter(0)
  a = f32[] constant(0)
  b = f32[] constant(1)
  x = f32[2000000] iota(), iota_dimension=0
  y = f32[2000000] sine(x)
  z = f32[1] slice(y), slice={[0:1]}
  w = s32[1] convert(z)
  v = s32[] reshape(w)
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT k = s32[] add(j, v)
}
ENTRY e { i = s32[] parameter(0) ROOT w = s32[] while(i), condition=below, body=next }"""
    module = parse(text)
    run = Run(Device(Surroundings()))
    assert run.call(module.entry, (np.asarray(0, np.int32),)) == 50
    (body,) = (c for c in module.computations if c.name == "next")
    plan = run._sequences[body]
    assert [step.instruction.name for step in plan.steps] == ["j", "k"]
    assert plan.closed == []
