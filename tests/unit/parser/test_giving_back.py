"""Regular expressions on Pythons whose groups that give nothing back forget where they were."""

from __future__ import annotations

import re

import pytest

from hlo.parser.terminals import giving_back


@pytest.mark.parametrize(("expression", "expected"), [
    (r"((?:a|b)*+)c", r"((?:a|b)*)c"),
    (r"(?:a++|(?:b)++)?+", r"(?:a++|(?:b)+)?"),  # single characters do not forget
    (r"\)*+[)]++\}*+", r"\)*+[)]++\}*+"),  # nor are these groups
])  # fmt: skip
def test_groups_alone_give_back(expression: str, expected: str) -> None:
    assert giving_back(expression) == expected


def test_a_try_that_fails_in_its_middle_takes_nothing() -> None:
    """As Python 3.11.4 and earlier take it: `(?:ab)*+` matches the "a" of "ac"."""
    found = re.match(giving_back(r"(?:ab)*+"), "abac")
    assert found is not None
    assert found[0] == "ab"
