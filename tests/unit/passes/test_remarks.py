"""Remarks: what fusion says of instructions that it fused and of those that it left."""

from __future__ import annotations

from pathlib import Path

import hlo
from hlo.passes.remarks import FUSED, NOT_FUSED, heard_remarks
from tests.support.command import call

TEXT = """HloModule m
lt { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = f32[1000,64] parameter(0)
  w = f32[64,64] parameter(1)
  t = f32[1000,64] tanh(x)
  d = f32[1000,64] dot(t, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  s = f32[1000,64] sine(d)
  n = f32[1000,64] negate(s)
  v = f32[64,1000] transpose(t), dimensions={1,0}
  k = f32[64,1000] sort(v), dimensions={1}, to_apply=lt
  ROOT r = (f32[1000,64], f32[64,1000]) tuple(n, k)
}
"""


def remarks(text: str) -> dict[tuple[str, str], str]:
    with heard_remarks() as found:
        hlo.optimize(hlo.parse(text, "m.hlo"), "fusion")
    return {(r.code, r.instruction): r.message for r in found}


def test_what_is_fused_and_what_is_not() -> None:
    found = remarks(TEXT)
    assert found[FUSED, "n"] == "%d, %s, %n are one kernel"
    assert found[NOT_FUSED, "t"] == "%d (dot) takes arrays from memory"
    assert found[NOT_FUSED, "v"] == "%k (sort) takes arrays from memory"
    assert found[NOT_FUSED, "k"] == "sort has a kernel of its own, or none"
    assert (NOT_FUSED, "d") not in found


def test_a_costly_producer_of_two_kernels() -> None:
    text = """HloModule m
lt { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = pred[] compare(a, b), direction=LT }
ENTRY e {
  x = f32[1000] parameter(0)
  p = f32[1000] parameter(1)
  t = f32[1000] tanh(x)
  a = f32[1000] add(t, p)
  i = f32[1000] iota(), iota_dimension=0
  b = f32[1000] sort(a), dimensions={0}, to_apply=lt
  c = f32[1000] multiply(t, i)
  ROOT r = (f32[1000], f32[1000]) tuple(b, c)
}
"""
    message = "2 kernels use it, and to compute it in each costs more than memory"
    assert remarks(text)[NOT_FUSED, "t"] == message


def test_nobody_listens_nothing_is_kept_and_results_are_the_same() -> None:
    module = hlo.parse(TEXT)
    plain = str(hlo.optimize(module, "fusion"))
    with heard_remarks() as found:
        assert str(hlo.optimize(module, "fusion")) == plain
    count = len(found)
    hlo.optimize(module, "fusion")
    assert len(found) == count > 0


def test_the_flag(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    done = call("hlo-opt", str(file), "-p", "fusion", "--remarks=not-fused.*sort")
    assert done.code == 0
    assert done.err.splitlines() == [
        f"remark[not-fused] {file}:13: %k: sort has a kernel of its own, or none",
        f"remark[not-fused] {file}:12: %v: %k (sort) takes arrays from memory",
    ]
    assert "remark[fused]" in call("hlo-opt", str(file), "-p", "default", "--remarks").err
    assert not call("hlo-opt", str(file), "-p", "fusion").err
    assert call("hlo-opt", str(file), "--remarks=[").code == 2
