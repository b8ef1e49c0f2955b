"""Reductions of one kernel that become one: which, and that the numbers are the reference's."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.ir.module import Module

_KINDS = {"f32": np.float32, "f64": np.float64, "s32": np.int32}


def statistics(dims: str, kind: str, along: str, opcodes: str) -> str:
    """Reductions of powers of x by some ops, along dimensions."""
    whole = f"{kind}[{dims}]"
    numbers = set(map(int, along.split(",")))
    rows = ",".join(n for d, n in enumerate(dims.split(",")) if d not in numbers)
    result, names = f"{kind}[{rows}]", opcodes.split()
    reducers = "\n".join(
        f"r{k} {{ a = {kind}[] parameter(0)\n  b = {kind}[] parameter(1)\n"
        f"  ROOT c = {kind}[] {opcode}(a, b) }}"
        for k, opcode in enumerate(names)
    )
    powers, reductions = [f"  y0 = {whole} parameter(0)"], []
    for k in range(len(names)):
        powers.append(f"  y{k + 1} = {whole} multiply(y{k}, y0)")
        reductions.append(
            f"  total{k} = {result} reduce(y{k}, z), dimensions={{{along}}}, to_apply=r{k}"
        )
    shapes = ", ".join([result] * len(names))
    results = ", ".join(f"total{k}" for k in range(len(names)))
    lines = "\n".join([*powers, f"  z = {kind}[] constant(3)", *reductions])
    return (
        f"HloModule m\n{reducers}\nENTRY e {{\n{lines}\n  ROOT t = ({shapes}) tuple({results}) }}"
    )


def joined(module: Module) -> list[int]:
    """How many arrays each reduction takes that stands for several."""
    return [
        len(i.operands) // 2
        for c in module.computations
        for i in c.instructions
        if i.opcode == "reduce" and i.shape.is_tuple
    ]


@pytest.mark.parametrize(
    ("dims", "along", "opcodes", "groups"),
    [
        ("5,37", "1", "add add", [2]),
        ("5,1000", "1", "add maximum minimum", [3]),
        ("3,4,70", "1,2", "maximum add", [2]),
        ("2,5000", "1", "add add add add", [4]),
        ("3,64", "1", "add add add add add", [4]),
        ("70000", "0", "add add", [2]),
        ("40,200", "0", "add add", []),  # columns are made in one pass as they stand
        ("50,16", "1", "add add", []),  # short rows are written out
        ("5,64", "1", "add multiply", []),
    ],
)
@pytest.mark.parametrize("kind", _KINDS)
def test_joined_reductions_give_what_the_reference_gives(
    dims: str, along: str, opcodes: str, groups: list[int], kind: str
) -> None:
    module = hlo.parse(statistics(dims, kind, along, opcodes))
    assert joined(hlo.optimize(module)) == groups
    shape = tuple(map(int, dims.split(",")))
    rng = np.random.default_rng(3)
    x = rng.integers(-2, 3, shape).astype(_KINDS[kind])  # of which all sums are exact
    expected = hlo.evaluate(module, x)
    for threads in (1, 2, 3):
        for result, wanted in zip(hlo.compile(module, threads=threads)(x), expected, strict=True):
            np.testing.assert_array_equal(result, wanted)


def test_a_chain_of_reductions_is_joined_only_where_none_waits() -> None:
    """Two pairs of which each holds what the other one rests on: one of them becomes one."""
    module = hlo.parse("""HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
f { x = f32[4,64] parameter(0)
  y = f32[4,100] parameter(1)
  z = f32[] constant(0)
  a = f32[4] reduce(x, z), dimensions={1}, to_apply=add
  d = f32[4] reduce(y, z), dimensions={1}, to_apply=add
  wide_a = f32[4,100] broadcast(a), dimensions={0}
  wide_d = f32[4,64] broadcast(d), dimensions={0}
  y2 = f32[4,100] multiply(y, wide_a)
  x2 = f32[4,64] multiply(x, wide_d)
  c = f32[4] reduce(y2, z), dimensions={1}, to_apply=add
  b = f32[4] reduce(x2, z), dimensions={1}, to_apply=add
  ROOT t = (f32[4], f32[4]) tuple(b, c) }
ENTRY e { x = f32[4,64] parameter(0)
  y = f32[4,100] parameter(1)
  ROOT r = (f32[4], f32[4]) fusion(x, y), kind=kInput, calls=f }""")
    optimised = hlo.optimize(module, "reduction-joining")
    assert joined(optimised) == [2]
    rng = np.random.default_rng(5)
    arguments = [rng.integers(-2, 3, s).astype(np.float32) for s in ((4, 64), (4, 100))]
    for result, wanted in zip(
        hlo.compile(module)(*arguments), hlo.evaluate(module, *arguments), strict=True
    ):
        np.testing.assert_array_equal(result, wanted)


def test_a_reduction_that_another_instruction_waits_for_stays_itself() -> None:
    module = hlo.parse("""HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
f { x = f32[9,64] parameter(0)
  zero = f32[] constant(0)
  square = f32[9,64] multiply(x, x)
  a = f32[9] reduce(x, zero), dimensions={1}, to_apply=add
  b = f32[9] reduce(square, zero), dimensions={1}, to_apply=add
  n = f32[9] negate(b), control-predecessors={a}
  ROOT t = (f32[9], f32[9]) tuple(a, n) }
ENTRY e { x = f32[9,64] parameter(0)
  ROOT r = (f32[9], f32[9]) fusion(x), kind=kInput, calls=f }""")
    optimised = hlo.optimize(module, "reduction-joining")
    assert joined(optimised) == []
    hlo.verify(optimised)
