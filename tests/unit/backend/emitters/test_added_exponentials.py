"""Powers of e that are only added to numbers which hide small ones: the sums' bits stay."""

import numpy as np
import pytest

import hlo
from hlo.driver import emit_stage
from hlo.ir import dtype as dt
from hlo.ir.module import Module

SUM = """HloModule m
ENTRY e {{
  x = {t}[{n}] parameter(0)
  c = {t}[] constant({c})
  b = {t}[{n}] broadcast(c), dimensions={{}}
  n = {t}[{n}] negate(x)
  e = {t}[{n}] exponential(n)
  s = {t}[{n}] {sum}
  {root}
}}
"""
QUOTIENT = "ROOT q = {t}[{n}] divide(b, s)"
HANDED_ON = "ROOT q = ({t}[{n}], {t}[{n}]) tuple(s, e)"
USED_TWICE = """q = {t}[{n}] divide(b, s)
  ROOT p = {t}[{n}] multiply(q, e)"""
BESIDE_OTHERS = "ROOT q = {t}[{n}] subtract(s, x)"


def program(
    kind: str, constant: str, root: str = QUOTIENT, of: str = "add(e, b)", n: int = 4096
) -> Module:
    text = SUM.format(t=kind, n=n, c=constant, sum=of, root=root.format(t=kind, n=n))
    return hlo.parse(text)


def swept(kind: str, n: int) -> np.ndarray:
    """All magnitudes, those at which powers are subnormal, zero and infinite above all."""
    rng = np.random.default_rng(3)
    edge = 745.0 if kind == "f64" else 104.0
    x = np.concatenate([
        rng.uniform(-1.1 * edge, 1.1 * edge, n // 2),
        rng.uniform(0.8 * edge, edge, n // 4),
        rng.standard_normal(n - n // 2 - n // 4 - 6),
        [np.inf, -np.inf, np.nan, 0.0, -0.0, 1e-30],
    ])  # fmt: skip
    return x.astype(dt.DTYPES[kind].numpy)


@pytest.mark.parametrize("machine", [None, "x86-64-v3", "x86-64"])
@pytest.mark.parametrize("kind", ["f32", "f64", "bf16"])
@pytest.mark.parametrize("of", ["add(e, b)", "subtract(b, e)", "subtract(e, b)"])
@pytest.mark.parametrize("constant", ["1", "-1", "1e-12", "1e-30"])
def test_sums_have_the_bits_of_each_op_alone(
    machine: str | None, kind: str, constant: str, of: str
) -> None:
    module = program(kind, constant, of=of)
    x = swept(kind, 4096)
    found = hlo.compile(module, cache=False, machine=machine)(x)
    alone = hlo.compile(module, passes="", cache=False, machine=machine)(x)
    nan = np.isnan(alone)
    code = f"u{alone.itemsize}"
    assert np.array_equal(np.isnan(found), nan)
    assert np.array_equal(found.view(code)[~nan], alone.view(code)[~nan])


def lines(module: Module) -> int:
    """Of the kernels' code."""
    return len(emit_stage(hlo.optimize(module), "llvm").splitlines())


def test_only_what_is_hidden_is_left_out() -> None:
    for of in ("add(e, b)", "subtract(b, e)"):
        assert lines(program("f32", "1", of=of)) < lines(program("f32", "1e-30", of=of))
    for root in (HANDED_ON, USED_TWICE):
        assert lines(program("f32", "1", root)) == lines(program("f32", "1e-30", root))
    assert lines(program("f32", "1", BESIDE_OTHERS)) < lines(program("f32", "0", BESIDE_OTHERS))
