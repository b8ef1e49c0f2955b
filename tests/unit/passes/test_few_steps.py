"""What passes need not do: rules that cannot fire, orders for nothing; the answers are the same."""

from __future__ import annotations

from itertools import product

import hlo
from hlo.ir.graph import _post_order, post_order
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.passes.rewriting import Limits
from hlo.passes.simplify.algsimp import all_rules
from hlo.passes.simplify.tuple_simplifier import tuple_simplifier

NOTHING = """HloModule m
ENTRY e { p = (f32[2], f32[3]) parameter(0)
  a = f32[2] get-tuple-element(p), index=0
  b = f32[3] get-tuple-element(p), index=1
  ROOT r = (f32[3], f32[2]) tuple(b, a) }"""
SOMETHING = NOTHING.replace("(b, a)", "(a, b)").replace("(f32[3], f32[2])", "(f32[2], f32[3])")


def test_rules_among_are_those_whose_operand_is_there() -> None:
    """In the order of all rules, for pairs of opcodes of which rules ask, and one they do not."""
    limits = Limits(inexact=True)
    rules = all_rules().values()
    asked = sorted({r.operand for r in rules if r.operand} | {"parameter"})
    shape = Shape.array("f32", (2,))
    values = {opcode: Instruction(opcode, opcode, shape) for opcode in asked}
    for root in ("multiply", "slice", "reshape", "subtract", "negate", "parameter"):
        for pair in product(asked, asked):
            instruction = Instruction("i", root, shape, tuple(values[o] for o in pair))
            wanted = [r for r in rules if root in r.opcodes and r.operand in (None, *pair)]
            assert limits.rules.among(instruction) == wanted


def test_tuples_that_stay_need_no_order() -> None:
    module = hlo.parse(NOTHING)
    assert not tuple_simplifier(module)
    assert _post_order not in module.entry.facts


def test_tuples_that_go_are_found() -> None:
    module = hlo.parse(SOMETHING)
    assert tuple_simplifier(module)
    assert module.entry.root.opcode == "parameter"


def test_operands_stand_before_users_where_several_wait() -> None:
    """A value met again while it waits stands before the first that needs it or waits for it."""
    module = hlo.parse(
        """HloModule m
ENTRY e { x = f32[2] parameter(0)
  d = f32[2] abs(x)
  a = f32[2] negate(x)
  b = f32[2] add(a, x)
  c = f32[2] multiply(b, a), control-predecessors={d}
  ROOT r = f32[2] subtract(a, c) }""".replace(", control-predecessors={d}", "")
    )
    assert [i.name for i in post_order(module.entry)] == ["x", "d", "a", "b", "c", "r"]
