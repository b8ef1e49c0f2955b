"""Which chains of ops are looked up, and in what: decided before any code is written."""

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.loops.chains import chain_to, table_of
from hlo.backend.loops.expression import Expression, Leaf
from hlo.backend.loops.schedule import Table
from hlo.ir.instruction import Instruction
from hlo.machine import NAMED

CHAIN = """HloModule m
ENTRY e {{
  w = {t}[{n}] parameter(0)
  x = {t}[{n}] parameter(1)
  y = {t}[{n}] add(w, x)
  wide = f32[{n}] convert(y)
  e = f32[{n}] logistic(wide)
  half = {t}[{n}] convert(e)
  ROOT r = {t}[{n}] {op}(half)
}}
"""


def parsed(text: str, machine: str = "sapphirerapids") -> tuple[Expression, Instruction]:
    """An expression whose parameters are in memory."""
    entry = hlo.parse(text).entry
    expression = Expression(Target(NAMED[machine]))
    for k, p in enumerate(entry.parameters):
        expression.leaves[p, ()] = Leaf(p.shape.dtype, p.shape.size, k)
    return expression, entry.root


def table(text: str, machine: str = "sapphirerapids") -> Table | None:
    expression, root = parsed(text, machine)
    chain = chain_to(expression, root)
    return None if chain is None else table_of(expression, chain)


def test_a_table_has_an_entry_for_every_code_of_the_source() -> None:
    text = CHAIN.format(t="bf16", n=5000, op="tanh")
    assert table(text) == Table("r", "y", 65536, "bf16")
    text = CHAIN.format(t="f8e5m2", n=5000, op="tanh")
    assert table(text) == Table("r", "y", 256, "f8e5m2")


def test_a_source_in_memory_is_called_by_its_place() -> None:
    text = CHAIN.format(t="bf16", n=5000, op="tanh").replace("add(w, x)", "negate(x)")
    assert table(text) == Table("r", "p1", 65536, "bf16")


def test_few_elements_wide_ones_and_machines_without_gathers_have_no_table() -> None:
    assert table(CHAIN.format(t="bf16", n=4000, op="tanh")) is None
    assert table(CHAIN.format(t="f32", n=5000, op="tanh")) is None
    assert table(CHAIN.format(t="bf16", n=5000, op="tanh"), "x86-64-v3") is None


def test_members_are_what_stands_between() -> None:
    expression, root = parsed(CHAIN.format(t="bf16", n=5000, op="tanh"))
    chain = chain_to(expression, root)
    assert chain is not None
    assert [m.name for m in chain.members] == ["wide", "e", "half", "r"]


def test_where_gathers_take_long_short_functions_are_computed() -> None:
    text = "HloModule m\nENTRY e {{ x = bf16[5000] parameter(0)\n ROOT r = bf16[5000] {op}(x) }}"
    exponential, tanh = (text.format(op=op) for op in ("exponential", "tanh"))
    assert table(exponential) is not None
    assert table(exponential, "znver4") is None
    assert table(tanh, "znver4") is not None
