"""Fusion of very many values: how many kernels there are, and uses replaced together."""

from __future__ import annotations

import pytest

from hlo import driver
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction
from hlo.passes.manager import Manager
from tests.support.growing_modules import FAMILIES


@pytest.mark.parametrize("count", [65, 200])
@pytest.mark.parametrize("name", ["concatenated_values", "readers_of_an_array"])
def test_all_readers_of_an_array_share_kernels(name: str, count: int) -> None:
    """Kernels that have as many results as they may are in no other's way."""
    module = driver.parse(FAMILIES[name].text(count))
    optimized = driver.optimize(module, manager=Manager())
    fusions = [i for i in optimized.entry.instructions if i.opcode == "fusion"]
    assert len(fusions) <= -(-count // 8) + 1


def _program() -> tuple[Computation, dict[Instruction, Instruction]]:
    text = "p = f32[4] parameter(0)\n" + "\n".join(
        [f"a{k} = f32[4] negate(p)\nb{k} = f32[4] add(a{k}, a{max(k - 1, 0)})" for k in range(5)]
    )
    last = "ROOT r = f32[4] multiply(b4, a0)"
    entry = driver.parse(f"HloModule m\nENTRY e {{\n{text}\n{last}\n}}").entry
    named = {i.name: i for i in entry.instructions}
    p = named["p"]
    new = {named[f"a{k}"]: entry.new("sine", p.shape, (p,)) for k in range(5)}
    # These use what they stand for, and are the only ones that still do afterwards.
    new |= {named[o]: entry.new("abs", p.shape, (named[o],)) for o in ("b2", "r")}
    return entry, new


def test_uses_replaced_together_are_as_one_by_one() -> None:
    texts = []
    for together in (True, False):
        entry, new = _program()
        if together:
            entry.replace_all_uses(new)
        else:
            for old, other in new.items():
                entry.replace_uses(old, other)
        assert entry.root.opcode == "abs"
        for i in entry.instructions:
            assert set(i.users) == {u for u in entry.instructions if i in u.operands}
        texts.append([(i.name, [o.name for o in i.operands]) for i in entry.instructions])
    assert texts[0] == texts[1]
