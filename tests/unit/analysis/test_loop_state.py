"""Loop state: what is found of it, and in which order."""

from __future__ import annotations

import hlo
from hlo.analysis.while_loops.loop_state import element_index, extend, unchanged_elements

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


WHOLE = """HloModule m
cond { p = (s32[], s32[2]) parameter(0) ROOT r = pred[] constant(false) }
own { ROOT p = (s32[], s32[2]) parameter(0) }
body {
  p = (s32[], s32[2]) parameter(0)
  c = (s32[], s32[2]) call(p), to_apply=own
  i = s32[] get-tuple-element(c), index=0
  v = s32[2] get-tuple-element(p), index=1
  ROOT t = (s32[], s32[2]) tuple(i, v)
}
ENTRY e {
  x = (s32[], s32[2]) parameter(0)
  y = s32[] parameter(1)
  ROOT w = (s32[], s32[2]) while(x), condition=cond, body=body
}"""


def test_who_reads_the_whole_state_gets_it_as_it_was() -> None:
    module = hlo.parse(WHOLE)
    (loop,) = (i for i in module.entry.instructions if i.opcode == "while")
    extend(loop, [module.entry.parameters[1]])
    hlo.verify(module)
    body = loop.called_computations()[0]
    (call,) = (i for i in body.instructions if i.opcode == "call")
    assert len(body.parameters[0].shape.elements) == 3
    assert len(call.operands[0].shape.elements) == 2
