"""Quotients of 64-bit integers in vectors beside the interpreter's: small, wide and mixed ones."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.given_machines import machine_of

EDGES = (0, 1, 2, 2**52 - 1, 2**52, 2**52 + 1, 2**53 - 1, 2**53, 2**53 + 1, 2**62, 2**63 - 1)
TEXT = """HloModule m
ENTRY e {{
  a = {type}[100] parameter(0)
  b = {type}[100] parameter(1)
  ROOT r = {type}[100] {opcode}(a, b)
}}
"""


@pytest.mark.parametrize("opcode", ["divide", "remainder"])
@pytest.mark.parametrize("type", ["s64", "u64"])
@pytest.mark.parametrize("machine", [None, "haswell", "generic"])
def test_wide_quotients(opcode: str, type: str, machine: str | None) -> None:
    rng = np.random.default_rng(len(opcode))
    module = driver.parse(TEXT.format(type=type, opcode=opcode))
    wanted = None if machine is None else machine_of(machine)
    program = driver.compile(module, cache=False, machine=wanted)
    for bits in (8, 40, 52, 53, 54, 64):
        a, b = _numbers(rng, bits, type), _numbers(rng, min(bits, 50), type)
        for dividend in (a, a * b, a * b - 1):
            expected = np.asarray(driver.evaluate(module, dividend, b))
            np.testing.assert_array_equal(np.asarray(program(dividend, b)), expected)


def _numbers(rng: np.random.Generator, bits: int, type: str) -> np.ndarray:
    """So many bits; of signed ones half are negative, and some of all sit at the edges."""
    made = rng.integers(0, 2**64, 100, dtype=np.uint64) >> np.uint64(64 - bits)
    edges = np.array([e for e in EDGES if e < 2**bits], dtype=np.uint64)
    made[: len(edges)] = edges
    if type == "u64":
        return rng.permutation(made)
    numbers = made.astype(np.int64)
    return rng.permutation(np.where(rng.random(100) < 0.5, numbers, -numbers))
