"""Numbers in text that lie beside the middle of two of their type: as XLA's reader rounds them."""

from __future__ import annotations

import pytest

import hlo
from tests.support.oracle import Oracle, available

# The type, the number, and what XLA makes of it: f16 goes by way of f32, smaller types do not.
ROWS = (
    ("f16", "11.00390625000001", "11"),
    ("f16", "11.0039073", "11.008"),
    ("bf16", "1.00390625000001", "1"),
    ("f8e5m2", "0.014648437499999986", "0.014"),
    ("f8e4m3fn", "2.125000000000002", "2.25"),
    ("f8e3m4", "0.5468749999999994", "0.531"),
    ("f8e8m0fnu", "1.0913936421275128e-11", "7.3e-12"),
    ("f6e3m2fn", "0.5625000000000007", "0.62"),
    ("f4e2m1fn", "0.7499999999999992", "0.5"),
)


def text_of(dtype: str, number: str) -> str:
    return f"HloModule m\nENTRY e {{ ROOT c = {dtype}[] constant({number}) }}"


@pytest.mark.parametrize(("dtype", "number", "expected"), ROWS)
def test_numbers_beside_the_middle(dtype: str, number: str, expected: str) -> None:
    assert f"constant({expected})" in str(hlo.parse(text_of(dtype, number)))


@pytest.mark.oracle
@pytest.mark.skipif(not available(), reason="needs jaxlib 0.10.2")
def test_numbers_beside_the_middle_are_the_oracles() -> None:
    server = Oracle()
    printed = [(server.to_string(text_of(t, n)), want) for t, n, want in ROWS]
    server.close()
    assert [p for p, want in printed if p is None or f"constant({want})" not in p] == []
