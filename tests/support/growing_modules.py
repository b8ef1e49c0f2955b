"""Families of modules that grow by one number: every way in which a program can be large.

What a stage costs on a family has to grow as the size does (tests/unit/test_growth.py counts work;
`python -m benchmarks.growth` takes seconds). tests/support/growing/ has them by what they have many
of, and what their texts are written with.
"""

from __future__ import annotations

from tests.support.growing import callees, control, instructions, operands  # enters the families
from tests.support.growing.family import FAMILIES, Family
from tests.support.growing.text import chain, computation, module

__all__ = [
    "FAMILIES",
    "Family",
    "callees",
    "chain",
    "computation",
    "control",
    "instructions",
    "module",
    "operands",
]
