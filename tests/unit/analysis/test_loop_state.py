"""Loop state: what is found of it, and in which order."""

from __future__ import annotations

import hlo
from hlo.analysis.while_loops.loop_state import element_index, unchanged_elements

COUNT = 40
ELEMENTS = ", ".join(["s32[]", *["f32[2]"] * COUNT])
READ = "\n".join(
    f"  e{n} = f32[2] get-tuple-element(p), index={n}" for n in range(COUNT, 0, -1)
)  # fmt: skip
LOOP = f"""HloModule m
cond {{
  p = ({ELEMENTS}) parameter(0)
  i = s32[] get-tuple-element(p), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}}
body {{
  p = ({ELEMENTS}) parameter(0)
{READ}
  i = s32[] get-tuple-element(p), index=0
  one = s32[] constant(1)
  j = s32[] add(i, one)
  ROOT t = ({ELEMENTS}) tuple(j, {", ".join(f"e{n}" for n in range(1, COUNT + 1))})
}}
ENTRY e {{
  x = ({ELEMENTS}) parameter(0)
  ROOT w = ({ELEMENTS}) while(x), condition=cond, body=body
}}"""


def test_elements_that_stay_have_the_order_of_the_text() -> None:
    (loop,) = (i for i in hlo.parse(LOOP).entry.instructions if i.opcode == "while")
    found = unchanged_elements(loop.called_computations()[0])
    assert [element_index(e) for e in found] == list(range(COUNT, 0, -1))
