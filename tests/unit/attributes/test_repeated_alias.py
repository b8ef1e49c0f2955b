"""A second alias of one output is not looked at, whatever it says; a first one is."""

import pytest

import hlo

TEXT = """HloModule m, input_output_alias={ ALIASES }
ENTRY e {
  p = f32[2] parameter(0)
  ROOT r = f32[2] negate(p)
}
"""


def test_the_first_alias_wins() -> None:
    module = hlo.parse(TEXT.replace("ALIASES", "{}: (0, {}), {}: (-1, {})"))
    assert "input_output_alias={ {}: (0, {}, may-alias) }" in str(module)


def test_a_negative_parameter_is_refused() -> None:
    with pytest.raises(hlo.HloError, match="0 or more"):
        hlo.parse(TEXT.replace("ALIASES", "{}: (-1, {})"))
