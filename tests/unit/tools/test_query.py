"""query: what a condition says, and what it may not say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import hlo
from hlo.errors import HloError
from hlo.tools.inspection.query import FUNCTIONS, PROPERTIES, Query
from tests.support.command import call

TEXT = """HloModule m
body {
  s = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = f32[4,4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  y = f32[4,4] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="f/dot" source_file="f.py" source_line=7}
  ROOT r = (s32[], f32[4,4]) tuple(j, y)
}
condition {
  s = (s32[], f32[4,4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(-24)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  p = f32[4,4] parameter(0)
  zero = s32[] constant(0)
  start = (s32[], f32[4,4]) tuple(zero, p)
  w = (s32[], f32[4,4]) while(start), condition=condition, body=body
  z = f32[4,4] get-tuple-element(w), index=1
  h = bf16[4,4] convert(z)
  c = s32[4] custom-call(zero), custom_call_target="mine"
  t = bf16[4,4] transpose(h), dimensions={1,0}
  ROOT k = bf16[4,4] tanh(t)
}
"""  # noqa: E501  # metadata as XLA writes it


def found(asked: str) -> set[str]:
    return {match.instruction for match in hlo.query(hlo.parse(TEXT, "m.hlo"), asked)}


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("dot", {"y"}),
        ("dot,tanh", {"y", "k"}),
        ("t*", {"r", "start", "t", "k"}),
        ("where flops > 100", {"y"}),
        ("any where depth == 1 and opcode == add", {"j"}),
        ("constant where value < 0", {"n"}),
        ("constant where value >= 0 and not entry", {"one"}),
        ("where users == 0 and not root", {"c"}),
        ("where operand(0).dtype == bf16", {"t", "k"}),
        ("where operand(0).operand(0).opcode == get-tuple-element", {"r", "t"}),
        ("where user(*).opcode == tuple and entry", {"zero", "p"}),
        ("where operand(*).name =~ ^on", {"j"}),
        ("where rank == 2 and dim(1) == 4 and dtype != f32", {"h", "t", "k"}),
        ("where dim(7) == 4", set()),
        ("where attr(dimensions) == {1,0}", {"t"}),
        ("where attr(direction) == LT", {"less"}),
        ("where target == 'mine'", {"c"}),
        ("where op_name =~ dot$ and file == f.py and line == 7", {"y"}),
        ("where source == f.py:7", {"y"}),
        ("where shape == .operand(0).shape and entry", {"w", "t", "k"}),
        ("where dtype == bf16 and (opcode == tanh or opcode == convert)", {"h", "k"}),
        ("where not not root and not (dtype == tuple or dtype == pred)", {"k"}),
        ("where opcode == tanh or opcode == dot and depth == 0", {"k"}),
        ("where computation == body and bytes > 4 and elements == 16", {"x", "y"}),
        ("where transcendentals > 0", {"k"}),
        ("tanh where moved == 64", {"k"}),
    ],
)
def test_what_is_found(asked: str, names: set[str]) -> None:
    assert found(asked) == names


@pytest.mark.parametrize(
    ("asked", "message", "at"),
    [
        ("dto", "dto is no opcode", 0),
        ("dot where flop > 1", "flop is no property", 10),
        ("dot where (flops > 1", "never closed", 10),
        ("dot where flops > 1)", "closes nothing", 19),
        ("dot where flops >", "a value is expected", 16),
        ("dot where flops > lots", "is no number", 18),
        ("dot where", "a property is expected", 4),
        ("dot where flops and", "a property is expected", 16),
        ("dot where flops 3", "and, or", 16),
        ("where name =~ [", "no regular expression", 14),
        ("where operand(x).name == a", "is no instruction", 6),
        ("where dim == 3", "dim of what", 6),
        ("where dim(x) == 3", "is no dimension", 6),
        ("where rank(2)", "is no property", 6),
        ("where $", "is no property|begins nothing", 6),
        ("dot = 3", "is no opcode", 4),
    ],
)
def test_what_is_no_query(asked: str, message: str, at: int) -> None:
    with pytest.raises(HloError, match=message) as raised:
        Query(asked)
    assert raised.value.code == "query"
    assert raised.value.span is not None
    assert raised.value.span.start == at


@pytest.mark.parametrize("name", [*PROPERTIES, *(f"{f}(0)" for f in FUNCTIONS)])
def test_every_property_of_every_instruction(name: str) -> None:
    text = Path("examples/transformer_block.hlo").read_text()
    for module in (hlo.parse(TEXT), hlo.parse(text)):
        both = hlo.query(module, f"where {name}"), hlo.query(module, f"where not {name}")
        assert sum(map(len, both)) == sum(len(c) for c in module.computations)


def test_depth_and_length_have_no_bad_end() -> None:
    deep = "where " + "(" * 2000 + "root" + ")" * 2000
    assert found(deep) == found("where root")
    assert found("where " + "not " * 2000 + "root") == found("where root")
    with pytest.raises(HloError, match="expected at most"):
        Query("x" * 100_000)


def test_the_command(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(TEXT)
    done = call("hlo-opt", "query", "dot where flops > 1", str(file))
    line = (
        "body: %y = f32[4,4]{1,0} dot(%x, %x), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    )
    assert (done.code, done.out) == (0, f"{file}:8:3: {line}\n")
    assert call("hlo-opt", "query", "dot where flops > 1e9", str(file)).code == 1
    assert call("hlo-opt", "query", "dot", "--count", str(file)).out == "1\n"
    (row,) = json.loads(call("hlo-opt", "query", "dot", "--json", str(file)).out)
    assert (row["file"], row["computation"], row["source"]) == (str(file), "body", "f.py:7")
    assert "custom call" in call("hlo-opt", "query", "--list-properties").out
    assert call("hlo-opt", "query", "dot").code == 2
    wrong = call("hlo-opt", "query", "dto", str(file))
    assert (wrong.code, "did you mean dot?" in wrong.err) == (1, True)
