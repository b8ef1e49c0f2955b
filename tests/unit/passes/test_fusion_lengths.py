"""What a group of fusion counts while it grows is what its members say."""

from __future__ import annotations

import pytest

from hlo import driver
from hlo.analysis.fusibility import is_scalar_constant
from hlo.ir.instruction import Instruction
from hlo.passes.fusion.groups import plan

PROGRAMS = {
    "a softmax, with a number that is an array": """HloModule m
most { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] maximum(a, b) }
ENTRY e { x = f32[40,600] parameter(0)
  low = f32[] constant(-inf)
  half = f32[] constant(0.5)
  halves = f32[40,600] broadcast(half), dimensions={}
  y = f32[40,600] multiply(x, halves)
  m = f32[40] reduce(y, low), dimensions={1}, to_apply=most
  mb = f32[40,600] broadcast(m), dimensions={0}
  d = f32[40,600] subtract(y, mb)
  ROOT r = f32[40,600] exponential(d) }""",
    "integers, of which each is an instruction": """HloModule m
ENTRY e { x = s32[999] parameter(0)
  y = s32[999] parameter(1)
  a = s32[999] add(x, y)
  b = s32[999] xor(a, x)
  f = f32[999] convert(b)
  ROOT r = f32[999] tanh(f) }""",
    "a product whose tiles are finished": """HloModule m
ENTRY e { x = f32[70,80] parameter(0)
  w = f32[80,90] parameter(1)
  b = f32[90] parameter(2)
  p = f32[70,90] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  bb = f32[70,90] broadcast(b), dimensions={1}
  s = f32[70,90] add(p, bb)
  ROOT r = f32[70,90] tanh(s) }""",
}


def thirds(member: Instruction) -> int:
    """Nothing of a number, also as an array; one of an integer; else three."""
    number = member.operands[0] if member.opcode == "broadcast" else member
    if is_scalar_constant(number):
        return 0
    return 1 if not member.shape.dtype.is_float and member.opcode in ("add", "xor") else 3


@pytest.mark.parametrize("text", PROGRAMS.values(), ids=PROGRAMS)
def test_counts_are_those_of_the_members(text: str) -> None:
    groups = plan(driver.parse(text).entry, 64)
    assert any(len(g.members) > 2 for g in groups)
    for group in groups:
        outside = {o for m in group.members for o in m.operands if o not in group.members}
        assert set(group.outside) == outside
        assert group.length == sum(map(thirds, group.members))
