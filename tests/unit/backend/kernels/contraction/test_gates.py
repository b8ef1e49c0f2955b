"""Products of which equal parts of the columns are finished together."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import evaluate
from hlo.analysis.fusibility import contraction_of, gates_of
from hlo.backend.compilation import Compilation
from hlo.backend.planning.program import KernelStep
from hlo.ir.module import Module
from hlo.machine import NAMED
from hlo.parser.parse import parse
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

MACHINES = that_run_here("x86-64-v2", "x86-64-v3", "znver4")


def gated(
    m: int, k: int, width: int, gates: int, dtype: str = "f32", *, columns: int = 0, along: int = 0
) -> Module:
    """A fusion of a product, a bias on all of it, and two results of its parts."""
    n, part = gates * width, f"{dtype}[{m},{width}]"
    whole, bias = f"{dtype}[{m},{columns or n}]", f"{dtype}[{columns or n}]"
    factor = f"{dtype}[{k},{columns or n}]" if not along else f"{dtype}[{columns or n},{k}]"
    parts = "\n".join(
        f"  p{g} = {part} slice(a), slice={{[0:{m}], [{g * width}:{(g + 1) * width}]}}"
        for g in range(gates)
    )
    sums = "\n".join(
        f"  m{g + 1} = {part} multiply(t{g}, c)\n  t{g + 1} = {part} add(m{g + 1}, p{g + 1})"
        for g in range(gates - 1)
    )
    return parse(f"""HloModule m
f {{
  h = {dtype}[{m},{k}] parameter(0)
  u = {factor} parameter(1)
  b = {bias} parameter(2)
  c = {part} parameter(3)
  d = {whole} dot(h, u), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{along}}}
  bb = {whole} broadcast(b), dimensions={{1}}
  a = {whole} add(d, bb)
{parts}
  t0 = {part} add(p0, c)
{sums}
  y = {part} tanh(t{gates - 1})
  z = {part} subtract(y, c)
  ROOT t = ({part}, {part}) tuple(y, z)
}}
ENTRY e {{
  h = {dtype}[{m},{k}] parameter(0)
  u = {factor} parameter(1)
  b = {bias} parameter(2)
  c = {part} parameter(3)
  ROOT r = ({part}, {part}) fusion(h, u, b, c), kind=kOutput, calls=f
}}""")


def check(module: Module, machine: str, dtype: str = "f32") -> None:
    """The reference's results, with the same bits on any number of threads."""
    values = [np.asarray(v) * np.asarray(0.2, v.dtype) for v in made_up_inputs(module)]
    found = []
    for threads in (1, 2, 3):
        made = Compilation(module, threads=threads, passes="", machine=NAMED[machine])
        assert all(isinstance(s, KernelStep) for s in made.program.steps)
        found.append(made.executable(*values))
    close = 1e-5 if dtype == "f32" else 1e-12
    for one, other, third, wanted in zip(*found, evaluate(module, *values), strict=True):
        assert one.tobytes() == other.tobytes() == third.tobytes()
        np.testing.assert_allclose(one, wanted, rtol=close, atol=close)


@pytest.mark.parametrize(("machine", "gates", "m"), covering(MACHINES, [2, 3, 4], [1, 5, 8, 33]))
def test_gates_of_products(m: int, gates: int, machine: str) -> None:
    check(gated(m, 40, 48, gates), machine)


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(("k", "width", "along"), [(16, 16, 0), (129, 64, 1), (513, 32, 0)])
def test_gates_of_other_depths(k: int, width: int, along: int, machine: str) -> None:
    check(gated(8, k, width, 4, along=along), machine)
    check(gated(3, k, width, 3, "f64", along=along), machine, "f64")


def gates_found(module: Module) -> int:
    (fusion,) = [i for i in module.entry.instructions if i.opcode == "fusion"]
    (body,) = fusion.called_computations()
    (dot,) = [i for i in body.instructions if i.opcode == "dot"]
    assert (contraction_of(fusion) is dot) == (gates_of(body, dot) > 1)
    return gates_of(body, dot)


def test_which_parts_are_gates() -> None:
    assert gates_found(gated(8, 32, 16, 4)) == 4
    assert gates_found(gated(8, 32, 16, 4, columns=96)) == 0  # six parts
    assert gates_found(gated(8, 32, 16, 3, columns=64)) == 4  # one of which nobody reads
    assert gates_found(gated(8, 32, 24, 4)) == 0  # no whole vectors
    assert gates_found(gated(8, 8, 16, 4)) == 0  # depth is next to nothing
    assert gates_found(gated(8, 32, 16, 4, "bf16")) == 0  # has words instead
