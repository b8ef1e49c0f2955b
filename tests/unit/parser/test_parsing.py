"""Modules, spans, bad input."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.errors import HloError, HloErrors
from hlo.ir.literal import Literal
from hlo.parser import spans
from hlo.parser.parse import MOST_ERRORS, parse, parse_shape


def body(line: str) -> str:
    return f"HloModule m\nENTRY e {{\n  p = f32[2] parameter(0)\n  ROOT r = {line}\n}}\n"


def test_spans_of_parts() -> None:
    text = body(
        'f32[2]{0} add(f32[2] p, /*index=1*/p), metadata={op_name="a, b=c"}, '
        'backend_config={"x":"}"}'
    )
    root = parse(text).entry.root
    assert spans.shape_span(root).text == "f32[2]{0}"
    assert spans.opcode_span(root).text == "add"
    assert spans.operand_span(root, 0).text == "f32[2] p"
    assert spans.operand_span(root, 1).text == "p"
    assert spans.operand_span(root, 2) is None
    assert spans.attribute_span(root, "metadata").text == 'metadata={op_name="a, b=c"}'
    assert spans.attribute_span(root, "backend_config").text == 'backend_config={"x":"}"}'
    assert spans.attribute_span(root, "sharding") is None
    assert root.span.text.startswith("r = f32[2]{0} add(")


@pytest.mark.parametrize(
    "text",
    [
        body("f32[2] " + "negate(" * 10_000 + "p" + ")" * 10_000),
        body("f32[2] constant(" + "{" * 10_000 + "}" * 10_000 + ")"),
        body("(" * 10_000 + "f32[2]" + ")" * 10_000 + " tuple(p)"),
        body("f32[2] call(p), to_apply=" + "{ q = f32[2] call(p), to_apply=" * 10_000),
        body("f32[2] negate(p), origin={" + "(" * 10_000 + ")" * 10_000 + "}"),
        body("f32[2] negate(p), sharding=" + "{" * 10_000),
    ],
)
def test_deep_nesting_is_an_error(text: str) -> None:
    with pytest.raises(HloError):
        parse(text)


@pytest.mark.parametrize(
    "text", ["", "\0", bytes(range(256)).decode("latin-1"), "\u20ac", "/*", "HloModule"]
)
def test_junk_is_an_error_with_a_place(text: str) -> None:
    with pytest.raises(HloErrors) as caught:
        parse(text)
    assert caught.value.span is not None
    assert str(caught.value)


def test_huge_literals_are_refused_and_elided_ones_kept() -> None:
    with pytest.raises(HloError):
        parse(body("f32[1000000000000] constant({1,2})"))
    with pytest.raises(HloError):
        parse(body("f32[1000000000000] constant({...})"))
    root = parse(body("f32[1000000000] constant({...})")).entry.root
    literal = root.attributes["literal"]
    assert isinstance(literal, Literal)
    assert literal.is_elided


def test_literal_bits() -> None:
    root = parse(body("f32[4] constant({-0.0, -0, nan(0x5), -nan})")).entry.root
    bits = root.attributes["literal"].array.view(np.uint32).tolist()  # type: ignore[attr-defined]  # a Literal
    assert bits == [0x80000000, 0, 0x7F800005, 0xFFC00000]


@pytest.mark.parametrize(
    ("shape", "text", "first"),
    [
        ("f32[2,3]", "-1.5", -1.5),
        ("pred[3]", "true", 1),
        ("u2[4]", "3", 3),
        ("f32[2]", "nan", None),
    ],
)
def test_one_number_is_the_first_element_of_an_array(shape: str, text: str, first: object) -> None:
    literal = parse(f"HloModule m\nENTRY e {{\n  ROOT r = {shape} constant({text})\n}}").entry.root[
        "literal"
    ]
    assert isinstance(literal, Literal)
    values = literal.array.reshape(-1).tolist()
    assert values[0] == first or (first is None and np.isnan(values[0]))
    assert not any(values[1:])


def test_errors_are_bounded() -> None:
    lines = "".join(f"  a{k} = f32[2] foo(p)\n" for k in range(100))
    with pytest.raises(HloErrors) as caught:
        parse(f"HloModule m\nENTRY e {{\n  p = f32[2] parameter(0)\n{lines}}}\n")
    assert len(caught.value.errors) == MOST_ERRORS


def test_shapes() -> None:
    assert str(parse_shape(" ( f32[2,3] , token[] )")) == "(f32[2,3]{1,0}, token[])"
    with pytest.raises(HloErrors):
        parse_shape("f32[2")


@pytest.mark.parametrize(
    ("instruction", "code", "text", "help"),
    [
        ("p = f32[2] parametre(0)", "unknown-opcode", "parametre", "did you mean 'parameter'?"),
        ("c = f32[2] konstant({1,2})", "unknown-opcode", "konstant", "did you mean 'constant'?"),
        ("n = f32[2] negat(q), x=1", "unknown-opcode", "negat", "did you mean 'negate'?"),
        ("token = f32[2] negate(q)", "syntax", "token", "as a name write token_"),
        ("unknown = f32[2] negate(q)", "syntax", "unknown", "as a name write %unknown"),
        ("n = f32[2] negate(s32)", "syntax", ")", "s32 is a reserved word"),
        ("p = f33[2] parameter(1)", "syntax", "f33", "did you mean 'f32'?"),
    ],
)
def test_wrong_words_are_told_apart(instruction: str, code: str, text: str, help: str) -> None:
    with pytest.raises(HloErrors) as caught:
        parse(f"HloModule m\nENTRY e {{ q = f32[2] parameter(0) ROOT {instruction} }}")
    (error,) = caught.value.errors
    assert error.code == code
    assert error.span is not None
    assert error.span.text == text
    assert help in error.help
