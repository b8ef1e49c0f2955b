"""The op table and the manual pages as text."""

import re
from pathlib import Path

import pytest

from hlo import driver
from hlo.ops.listing import constraints, explain_op, family, op_table
from hlo.ops.table import OPS, KernelFamily

FILES = [*(Path(__file__).parents[3] / "hlo/ops").glob("*.py")]


def test_table_has_every_opcode_with_both_readings() -> None:
    rows = op_table().splitlines()[1:]
    assert [row.split()[0] for row in rows] == sorted(OPS)
    assert all(" infer evaluate" in row for row in rows)


@pytest.mark.parametrize(
    ("opcode", "family"),
    [("add", KernelFamily.LOOPS), ("while", KernelFamily.CONTROL),
     ("dot", KernelFamily.CONTRACTION), ("tuple", KernelFamily.FREE),
     ("infeed", KernelFamily.HOST), ("bitcast", KernelFamily.FREE)],
)  # fmt: skip
def test_family_of_an_opcode(opcode: str, family: KernelFamily) -> None:
    assert OPS[opcode].family is family


def test_constraints_of_a_docstring() -> None:
    found = constraints(OPS["select"])
    assert list(found) == ["C1", "C2", "C3", "C4", "C5"]
    assert found["C4"] == "pred is of type pred."


def test_page_shows_attributes_and_constraints() -> None:
    page = explain_op("fft")
    assert "fft_type" in page
    assert "\n  C1" in page
    assert "compiled: fourier" in page
    assert "C4: equal dimensions" in explain_op("add")
    assert "C2: it is an array" in explain_op("negate")


def test_family_is_the_file_of_the_row() -> None:
    assert family(OPS["add"]) == family(OPS["compare"]) == "elementwise"
    assert {family(row) for row in OPS.values()} <= {f.stem for f in FILES}


def test_page_of_power_says_what_large_exponents_do() -> None:
    """Its numbers are those of the reference and of reducing."""
    page = " ".join(explain_op("power").split())
    said = re.search(r"in s32, 3\^64 = (\d+) and 3\^65 = (\d+)", page)
    assert said is not None
    assert "six low bits" in page
    for exponent, value in zip((64, 65), said.groups(), strict=True):
        module = driver.parse(
            "HloModule m\nENTRY e {\n x = s32[] constant(3)\n"
            f" y = s32[] constant({exponent})\n ROOT p = s32[] power(x, y)\n}}"
        )
        assert driver.evaluate(module) == int(value)
        assert f"constant({value})" in driver.to_text(driver.optimize(module, "constant_folding"))
