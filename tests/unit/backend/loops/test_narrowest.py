"""Which element is kept in place of one of which it is computed."""

from __future__ import annotations

import pytest

from hlo.backend.loops.post_dominators import PostDominators
from hlo.ir.module import Module
from hlo.parser.parse import parse

HEAD = """HloModule m
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b) }
"""


def module_of(*lines: str) -> Module:
    text = "\n".join(("x = f32[3,4] parameter(0)", "e = f32[3,4] exponential(x)", *lines))
    return parse(f"{HEAD}ENTRY main {{\n{text}\n}}\n")


SUM = "z = f32[] constant(0)\n ROOT s = f32[3] reduce(w, z), dimensions={1}, to_apply=add"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (("d = f32[3,4] divide(x, e)", "w = f32[3,4] multiply(d, x)", SUM), "w"),
        # two paths that meet again
        (("d = f32[3,4] negate(e)", "f = f32[3,4] tanh(e)", "w = f32[3,4] add(d, f)", SUM), "w"),
        # the element itself is read beside what is computed of it
        (
            (
                "d = f32[3,4] negate(e)", "z = f32[] constant(0)",
                "t = f32[3] reduce(e, z), dimensions={1}, to_apply=add",
                "s = f32[3] reduce(d, z), dimensions={1}, to_apply=add",
                "ROOT r = f32[3] add(s, t)",
            ),
            "e",
        ),
        # other elements than its own
        (("d = f32[4,3] transpose(e), dimensions={1,0}", "ROOT r = f32[4,3] negate(d)"), "e"),
        # the root is read where it is stored
        (("d = f32[3,4] negate(e)", "ROOT r = f32[3,4] tanh(d)"), "d"),
        # wider, or of another kind
        (("d = f64[3,4] convert(e)", "ROOT r = f64[3,4] negate(d)"), "e"),
        (("d = pred[3,4] compare(e, x), direction=LT", "ROOT r = pred[3,4] not(d)"), "e"),
    ],
)  # fmt: skip
def test_the_last_element_that_all_readers_go_through(
    lines: tuple[str, ...], expected: str
) -> None:
    instructions = {i.name: i for i in module_of(*lines).entry.instructions}
    assert PostDominators().of(instructions["e"]).name == expected
