"""Instructions that are alike are looked at once; each that is wrong is told of."""

from __future__ import annotations

import pytest

import hlo
from hlo.ops.movement import DimensionsAttributes
from hlo.ops.table import OPS

ALIKE = """HloModule m
ENTRY e {
  x = f32[2,3] parameter(0)
  a = f32[3,2] transpose(x), dimensions={1,0}
  b = f32[3,2] transpose(x), dimensions={1,0}, metadata={op_name="second"}
  c = f32[2,3] transpose(x), dimensions={0,1}
  ROOT t = (f32[3,2], f32[3,2], f32[2,3]) tuple(a, b, c)
}"""


def test_alike_instructions_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[object] = []
    row = OPS["transpose"]
    infer = row.infer

    def counted(*shapes: object, attrs: DimensionsAttributes) -> object:
        asked.append(attrs.dimensions)
        return infer(*shapes, attrs=attrs)

    module = hlo.parse(ALIKE)
    monkeypatch.setattr(row, "infer", counted)
    hlo.verify(module)
    assert asked == [(1, 0), (0, 1)]


def test_each_wrong_one_is_an_error() -> None:
    wrong = ALIKE.replace("= f32[3,2] transpose", "= f32[4,2] transpose")
    with pytest.raises(hlo.HloErrors) as raised:
        hlo.verify(hlo.parse(wrong))
    assert [e.line for e in raised.value.errors if "transpose" in e.message] == [4, 5]


def test_a_list_in_an_attribute_is_looked_at_by_itself() -> None:
    module = hlo.parse(ALIKE)
    a, b = (i for i in module.entry.instructions if i.name in "ab")
    b.attributes = {**b.attributes, "dimensions": [1, 0]}
    hlo.verify(module)
    assert a.attributes["dimensions"] == (1, 0)
