"""Quoted text and raw dicts (docs/text.md 1.4, 1.6, 5.3)."""

import pytest

from hlo.attributes.escape import dict_end, is_raw_dict, quoted, unquoted
from hlo.errors import Violation


def test_every_byte_survives() -> None:
    text = bytes(range(1, 256)).decode("utf-8", "surrogateescape")
    assert unquoted(quoted(text)) == text
    assert quoted("é\1\"'\\\n") == r'"\303\251\001\"\'\\\n"'


def test_escapes_that_are_read() -> None:
    assert unquoted(r'"\x41\101\u00e9\?\a"') == "AAé?\a"
    assert unquoted(r"'it\'s'") == "it's"


@pytest.mark.parametrize("text", [r'"\q"', r'"\x"', r'"\xfff"', r'"\777"', r'"\ud800"'])
def test_escapes_that_are_refused(text: str) -> None:
    with pytest.raises(Violation, match="escape"):
        unquoted(text)


def test_raw_dicts() -> None:
    assert is_raw_dict(' /*c*/ {"a":"}"} // end')
    assert not is_raw_dict(' {"a":"}"}', alone=True)
    assert not is_raw_dict("{a}{b}")
    assert not is_raw_dict("{")
    assert dict_end('x{"\\"}"}y', 1) == 8
    assert dict_end("{{}", 0) == -1
