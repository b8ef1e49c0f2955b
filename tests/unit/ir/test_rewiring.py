"""Operands of wide instructions: replaced in any order as if each were replaced at once, and put in
place once however many are replaced.
"""

from __future__ import annotations

import random

import pytest

import hlo
from hlo import driver
from hlo.ir import rewiring
from tests.support.growing_modules import FAMILIES

WIDTHS = (3, rewiring.WIDE, 200)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("seed", range(20))
def test_replacements_are_made_in_their_order(width: int, seed: int) -> None:
    draw = random.Random(seed)
    module = hlo.parse(FAMILIES["tuple_of_parameters"].text(width))
    entry = module.entry
    root, values = entry.root, list(entry.parameters)
    expected = list(values)
    shape = hlo.Shape.array("f32", (4,))
    for _ in range(draw.choice([1, rewiring.FEW, 3 * width])):
        old, new = draw.choice(values), draw.choice(values)
        if draw.random() < 0.2:
            new = entry.new("negate", shape, (old,))
            values.append(new)
            expected.append(new)
        if old is new:
            continue
        entry.replace_uses(old, new)
        expected[:width] = [new if o is old else o for o in expected[:width]]
        if draw.random() < 0.05:
            at = draw.randrange(width)
            entry.set_operand(root, at, old)
            expected[at] = old
    assert list(root.operands) == expected[:width]
    assert type(root) is type(entry.parameters[0])
    for value in values:
        assert (root in value.users) == (value in root.operands)


PASSES = {"equal_values": "cse", "known_values": "constant_folding", "simple_values": "algsimp"}


@pytest.mark.parametrize("family", PASSES)
def test_wide_operands_are_put_in_place_once(family: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each time costs as much as there are operands, so there may not be a time for each."""
    made = 0
    put = rewiring._Noted.in_place

    def counted(self: rewiring._Noted) -> rewiring.Operands:
        nonlocal made
        made += 1
        return put(self)

    monkeypatch.setattr(rewiring._Noted, "in_place", counted)
    module = hlo.parse(FAMILIES[family].text(500))
    optimized = driver.optimize(module, passes=PASSES[family])
    assert str(optimized) != str(module)
    assert made <= 8
