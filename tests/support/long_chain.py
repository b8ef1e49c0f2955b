"""A program of many elementwise instructions, of which one is special."""

from __future__ import annotations

import random

PLAIN = ("add", "multiply", "subtract", "maximum", "minimum", "tanh", "negate")
LAST = 20  # values that a next one may use, and results


def chain(count: int, opcode: str, at: int) -> str:
    """`count` instructions on f32[8,16], the one numbered `at` of a binary opcode."""
    rng = random.Random(0)
    names = ["p0", "p1"]
    lines = [f"  {name} = f32[8,16] parameter({n})" for n, name in enumerate(names)]
    for number in range(count):
        chosen = opcode if number == at else rng.choice(PLAIN)
        a, b = (rng.choice(names[-LAST:]) for _ in range(2))
        operands = a if chosen in ("tanh", "negate") else f"{a}, {b}"
        lines.append(f"  v{number} = f32[8,16] {chosen}({operands})")
        names.append(f"v{number}")
    results = names[-LAST:]
    lines.append(f"  ROOT r = ({', '.join(['f32[8,16]'] * LAST)}) tuple({', '.join(results)})")
    return "HloModule chain\nENTRY e {\n" + "\n".join(lines) + "\n}\n"
