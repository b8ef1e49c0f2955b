"""Arrays padded with zeros: lanes that a load masks off are zeros, which nobody selects."""

import itertools
import re

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.ir.module import Module
from hlo.machine import named
from tests.support.machines_here import that_run_here

TYPES = {"f32": np.float32, "f64": np.float64, "s32": np.int32}
SIZE = 50  # Of each dimension: no multiple of a vector's lanes.


def module(dtype: str, pad: str = "0") -> Module:
    """Sums over a place's neighbours in three dimensions, which are too many for loops of their own
    at each face.
    """
    whole, n = f"{dtype}[{SIZE},{SIZE},{SIZE}]", SIZE + 2
    lines = [f"x = {whole} parameter(0)", f"z = {dtype}[] constant({pad})"]
    lines.append(f"p = {dtype}[{n},{n},{n}] pad(x, z), padding=1_1x1_1x1_1")
    last = "x"
    for number, place in enumerate(itertools.product(range(3), repeat=3)):
        part = ", ".join(f"[{i}:{i + SIZE}]" for i in place)
        lines.append(f"part.{number} = {whole} slice(p), slice={{{part}}}")
        opcode = "add" if number % 3 else "subtract"
        lines.append(f"sum.{number} = {whole} {opcode}({last}, part.{number})")
        last = f"sum.{number}"
    return hlo.parse("HloModule stencil\nENTRY e {\n" + "\n".join(lines) + "\n}")


@pytest.mark.parametrize("machine", that_run_here("x86-64", "x86-64-v3", "x86-64-v4"))
@pytest.mark.parametrize(
    ("dtype", "pad"), [("f32", "0"), ("f32", "-0.0"), ("f64", "0"), ("s32", "0")]
)
def test_values(dtype: str, pad: str, machine: str) -> None:
    given = module(dtype, pad)
    x = np.round(np.random.default_rng(0).standard_normal((SIZE,) * 3)).astype(TYPES[dtype])
    made, expected = hlo.compile(given, machine=machine)(x), hlo.evaluate(given, x)
    assert np.asarray(made).tobytes() == np.asarray(expected).tobytes()


def selected(machine: str, pad: str) -> list[str]:
    text = "".join(map(str, Compilation(module("f32", pad), machine=named(machine)).ir))
    return re.findall(r"select <\d+ x i1> %\w+, <\d+ x float>", text)


@pytest.mark.parametrize("machine", ["x86-64-v3", "x86-64-v4"])
def test_nobody_selects_the_zeros(machine: str) -> None:
    assert not selected(machine, "0")
    assert selected(machine, "-0.0")
