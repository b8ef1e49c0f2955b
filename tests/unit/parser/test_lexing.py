"""Tokens, by docs/text.md 1."""

from __future__ import annotations

import pytest

from hlo.parser.lexer import END, Lexer


def kinds(text: str) -> list[str]:
    lexer, at, previous, found = Lexer(text), 0, "", []
    while (token := lexer.token(at, previous)).type != END:
        found.append(token.type)
        at, previous = token.end_pos, token.type
    return found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("p: = f32[2]", "NAME EQUAL TYPE LSQB INT RSQB"),
        ("p=f32", "ATTR TYPE"),
        ("%true true nan inf s4 F32", "NAME TRUE DECIMAL INF TYPE IDENT"),
        ("f32[2,3]{1,0} p", "SHAPE IDENT"),
        ("f32[2] {0}", "TYPE LSQB INT RSQB LAYOUT INT RBRACE"),
        ("f32[2]{ROOT", "TYPE LSQB INT RSQB LBRACE ROOT"),
        ("f32[]{:S(1)}", "TYPE LSQB RSQB LAYOUT COLON IDENT LPAR INT RPAR RBRACE"),
        ("b(f32[2]) b ( b", "BUFFER LPAR SHAPE RPAR BUFFER LPAR IDENT"),
        ("b01f_01io->b01f b0f?_0io?->b0f", "DIM_LABELS DIM_LABELS"),
        ("0x10 1_000 1_2x3_4_5 -1_0", "DXD PAD PAD PAD"),
        ("5. -.5 1e5x 1E+5", "DECIMAL DECIMAL DECIMAL IDENT DECIMAL"),
        (".5 +1 --1", "ERROR INT PLUS INT ERROR INT"),
        ("18446744073709551615 18446744073709551616", "INT ERROR"),
        ("-9223372036854775808 -9223372036854775809", "INT ERROR"),
        ("-inf -nan nan(0x1) nan(0x0)", "NEG_INF DECIMAL DECIMAL ERROR"),
        ("-> <= < ... . ?", "ARROW LESS_EQUAL ERROR ELLIPSIS ERROR QUESTION"),
        ("a/*x*/b//c\nd /* e", "IDENT IDENT IDENT ERROR STAR IDENT"),
        (r'"a\"b" "\q" ' + r"'it\'s'", "STRING ERROR STRING"),
        ("a\fb \u00a0 \0", "IDENT ERROR IDENT ERROR ERROR"),
    ],
)
def test_tokens(text: str, expected: str) -> None:
    assert kinds(text) == expected.split()


def test_raw_dict_knows_only_braces_and_strings() -> None:
    text = ' {"a": "}", {b}} // }'
    token = Lexer(text).dict(0)
    assert token is not None
    assert token.value == '{"a": "}", {b}}'


def test_endless_digits_are_no_crash() -> None:
    assert kinds("0" * 10_000 + "7") == ["INT"]
    assert kinds("9" * 10_000) == ["ERROR"]
    assert kinds("9" * 10_000 + "x1") == ["ERROR"]
