"""Products that are made with zeros for subnormal numbers leave their results in memory."""

import pytest

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.planning.epilogues_apart import with_epilogues_apart
from hlo.machine import named

TEXT = """HloModule m
fused {{
  e = f32[96,130] parameter(0)
  v = f32[130,80] parameter(1)
  c = f32[80] parameter(2)
{factor}
  d = f32[96,80] dot(e, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  b = f32[96,80] broadcast(c), dimensions={{1}}
  ROOT s = f32[96,80] add(d, b)
}}
ENTRY main {{
  x = f32[96,130] parameter(0)
  v = f32[130,80] parameter(1)
  c = f32[80] parameter(2)
  e = f32[96,130] {op}(x)
  ROOT f = f32[96,80] fusion(e, v, c), kind=kOutput, calls=fused
}}
"""
PLAIN = "  w = f32[130,80] copy(v)"


@pytest.mark.parametrize(
    ("op", "factor", "made"),
    [
        ("exponential", PLAIN.replace("copy", "negate"), ["exponential", "fusion", "fusion"]),
        ("exponential", "", ["exponential", "dot", "fusion"]),
        ("tanh", "", ["tanh", "fusion"]),  # no tails
    ],
)
def test_a_fusion_in_two(op: str, factor: str, made: list[str]) -> None:
    text = TEXT.format(op=op, factor=factor)
    module = hlo.parse(text if factor else text.replace("dot(e, w)", "dot(e, v)"))
    before = str(module)
    target = Target(named("sapphirerapids"))
    apart = with_epilogues_apart(module, target)
    assert [i.opcode for i in apart.entry.instructions if i.opcode != "parameter"] == made
    hlo.verify(apart)
    assert str(module) == before
    if len(made) > 2:
        *_, last = apart.entry.instructions
        assert last["kind"] == "kLoop"
        assert "dot" not in {i.opcode for i in last.called_computations()[0].instructions}
