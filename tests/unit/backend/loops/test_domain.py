"""Domains: what results need at an index is looked at as rarely as can be."""

from __future__ import annotations

import pytest

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.loops import domain
from hlo.backend.loops.trace import Trace

# each row of the operand meets the same numbers
ROWS = """HloModule rows
ENTRY e { x = f32[20,30] parameter(0)
  b = f32[30] parameter(1)
  each = f32[20,30] broadcast(b), dimensions={1}
  ROOT r = f32[20,30] add(x, each) }"""
JOINED = """HloModule joined
ENTRY e { x = f32[20,30] parameter(0)
  ROOT r = f32[20,30] exponential(x) }"""
SPLIT = """HloModule split
ENTRY e { x = f32[3,40,50] parameter(0)
  t = f32[40,3,50] transpose(x), dimensions={1,0,2}
  r = f32[120,50] reshape(t)
  ROOT y = f32[120,50] exponential(r) }"""
SHORT = ROWS.replace("[20,30]", "[20,1,30]").replace("dimensions={1}", "dimensions={2}")


@pytest.mark.parametrize(("text", "looks"), [(ROWS, 1), (JOINED, 2), (SPLIT, 2), (SHORT, 2)])
def test_a_domain_is_looked_at_once_for_each_form_of_its_loops(
    monkeypatch: pytest.MonkeyPatch, text: str, looks: int
) -> None:
    """Where loops are its dimensions, what was looked at to cut it serves; others are looked at
    anew: dimensions that are split or joined, or without those of one element.
    """
    made: list[object] = []
    traced = domain.traced

    def counted(*given: object) -> Trace:
        made.append(given)
        return traced(*given)  # type: ignore[arg-type]  # as they were given

    monkeypatch.setattr(domain, "traced", counted)
    compilation = Compilation(driver.parse(text), passes="fusion")
    assert len(compilation.program.kernels) == 1
    assert len(made) == looks
