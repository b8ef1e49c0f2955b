"""A module and its copy have the same text, whatever order edits left behind."""

import hlo
from hlo.ir.graph import clone_module
from hlo.ir.shape import Shape

TEXT = """HloModule m
first { p = f32[] parameter(0) ROOT c = f32[] negate(p) }
ENTRY e { x = f32[] parameter(0) ROOT y = f32[] call(x), to_apply=first }
"""


def test_names_that_two_computations_share_are_numbered_as_they_are_printed() -> None:
    module = hlo.parse(TEXT)
    entry = module.entry
    (y,) = (i for i in entry.instructions if i.opcode == "call")
    scalar = Shape.array("f32")
    late = entry.new("negate", scalar, (y,), name="c")  # `c` of the other computation as well
    early = entry.new("negate", scalar, (y.operands[0],), name="c")
    entry.root = entry.new("add", scalar, (early, late), name="sum")
    entry.set_operand(y, 0, early)
    assert str(module) == str(clone_module(module))
    assert str(hlo.parse(str(module))) == str(module)
