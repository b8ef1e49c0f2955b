"""What runs once, for little, has little code; what a loop or a block runs again has fast code."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.planning.families import kernel_makers
from hlo.backend.planning.implementations import HostCall, implementations
from hlo.backend.planning.schedule import schedule
from hlo.ir.module import Module
from hlo.machine import NAMED

TARGET = Target(NAMED["x86-64-v4"])
ADD = "add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }"
ONCE = f"""HloModule m
{ADD}
ENTRY e {{
  x = f32[10,200] parameter(0)
  z = f32[] constant(0)
  ROOT r = f32[10] reduce(x, z), dimensions={{1}}, to_apply=add
}}"""
IN_A_LOOP = f"""HloModule m
{ADD}
body {{
  s = (f32[10,200], f32[10], pred[]) parameter(0)
  x = f32[10,200] get-tuple-element(s), index=0
  z = f32[] constant(0)
  r = f32[10] reduce(x, z), dimensions={{1}}, to_apply=add
  p = pred[] get-tuple-element(s), index=2
  ROOT t = (f32[10,200], f32[10], pred[]) tuple(x, r, p)
}}
test {{
  s = (f32[10,200], f32[10], pred[]) parameter(0)
  ROOT p = pred[] get-tuple-element(s), index=2
}}
ENTRY e {{
  s = (f32[10,200], f32[10], pred[]) parameter(0)
  ROOT w = (f32[10,200], f32[10], pred[]) while(s), condition=test, body=body
}}"""


def sums(module: Module, *, is_repeated: bool = False) -> Iterator[int]:
    """Additions of whole vectors in the code of each reduction."""
    order = schedule(module)
    for instruction, made in implementations(
        order, TARGET, kernel_makers, is_repeated=is_repeated
    ).items():
        if instruction.opcode == "reduce" and not isinstance(made, HostCall):
            yield sum(c.kernel.text.count("fadd <16 x float>") for c in made.calls)


@pytest.mark.parametrize(
    ("text", "is_repeated", "is_little"),
    [(ONCE, False, True), (ONCE, True, False), (IN_A_LOOP, False, False)],
)
def test_code_by_how_often_it_runs(text: str, *, is_repeated: bool, is_little: bool) -> None:
    (found,) = sums(hlo.parse(text), is_repeated=is_repeated)
    assert found == 2 if is_little else found > 4, "one accumulator, and its tail"
