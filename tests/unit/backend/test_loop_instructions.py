"""No target falls back to scalars: instructions per element, beside those of x86-64-v2."""

from __future__ import annotations

import pytest

from hlo import driver
from tests.support.loop_instructions import (
    BASE,
    FAST,
    KERNELS,
    TARGETS,
    loops,
    measured,
    per_element,
)

MOST = 2.0  # times those of x86-64-v2


@pytest.fixture(scope="module")
def base() -> dict[str, float]:
    return {kernel: measured(kernel, BASE) for kernel in KERNELS}


@pytest.mark.parametrize("target", [*TARGETS[1:], *FAST])
def test_loops_are_of_vectors(target: str, base: dict[str, float]) -> None:
    found = {kernel: measured(kernel, target) / base[kernel] for kernel in KERNELS}
    assert {kernel: ratio for kernel, ratio in found.items() if not ratio <= MOST} == {}


def test_scalars_are_found_out(base: dict[str, float]) -> None:
    """Strict code for 32-bit Arm has no vectors of floats."""
    module = driver.parse(f"HloModule m\nENTRY e {{ {KERNELS['multiply'][0]} }}")
    code = driver.compile_ahead(module, "armv7-a").assembly
    assert per_element(code, "arm", "mul") > MOST * base["multiply"]


def test_innermost_loops_are_counted() -> None:
    code = """f:
.outer:
\tmovl\t$1, %eax
1:
\tmulps\t%xmm0, %xmm1
\tdecq\t%rcx
\tjne\t1b
\tjne\t.outer
"""
    assert [len(lines) for lines in loops(code)] == [3]
    assert per_element(code, "x86_64", "mul") == 3 / 4
