"""What fusions hold, put together in one."""

import hlo
from hlo.passes.fusion.copying import Joint

TWO = """HloModule m
one {
  p = f32[8] parameter(0)
  c = f32[8] constant({1, 2, 3, 4, 5, 6, 7, 8})
  ROOT r = f32[8] add(p, c)
}
two {
  p = f32[8] parameter(0)
  c = f32[8] constant({8, 7, 6, 5, 4, 3, 2, 1})
  ROOT r = f32[8] multiply(p, c)
}
ENTRY e {
  x = f32[8] parameter(0)
  first = f32[8] fusion(x), kind=kLoop, calls=one
  ROOT second = f32[8] fusion(first), kind=kLoop, calls=two
}
"""


def test_members_of_the_same_name_get_names_of_their_own() -> None:
    entry = hlo.parse(TWO).entry
    first, second = (i for i in entry.instructions if i.opcode == "fusion")
    joint = Joint(entry)
    joint.made.root = joint.put(second, {first: joint.put(first)})
    names = [member.name for member in joint.made.instructions]
    assert len(names) == 5
    assert len(set(names)) == len(names)
