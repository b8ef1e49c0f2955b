"""Texts of numbers, expected by hand or from jaxlib 0.10.2 (docs/text.md 4.2)."""

import ml_dtypes
import numpy as np
import pytest

from hlo.attributes.literal_text import literal_text, typed_literal_text
from hlo.attributes.number_text import element_texts, significant_digits
from hlo.ir import dtype as dt
from hlo.ir.literal import Literal
from hlo.ir.shape import Shape


def texts(name: str, values: list[float], **options: bool) -> list[str]:
    dtype = dt.dtype(name)
    return element_texts(dtype, np.array(values).astype(dtype.numpy), **options)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("f32", 0.1, "0.1"),
        ("f32", 1 / 3, "0.333333343"),
        ("f32", 1e6, "1e+06"),
        ("f32", 2**-149, "1.4013e-45"),
        ("f64", 0.1, "0.1"),
        ("f64", 1 / 3, "0.33333333333333331"),
        ("bf16", 0.1, "0.1001"),
        ("f16", 65504, "65504"),
        ("f8e5m2", 57344, "5.7e+04"),
        ("f8e4m3fn", 448, "448"),
        ("f8e8m0fnu", 0.5, "0.5"),
        ("f6e2m3fn", 7.5, "7.5"),
        ("s4", -8, "-8"),
        ("u64", 2**63, "9223372036854775808"),
        ("f32", float("-inf"), "-inf"),
    ],
)
def test_number(name: str, value: float, text: str) -> None:
    assert texts(name, [value]) == [text]


def test_nan_shows_its_payload_unless_it_is_the_quiet_bit() -> None:
    codes = np.array([0x7FC00000, 0xFFC00000, 0x7F800001, 0xFFFFFFFF], np.uint32)
    found = element_texts(dt.F32, codes.view(np.float32))
    assert found == ["nan", "-nan", "nan(0x1)", "-nan(0x7fffff)"]


def test_nan_of_types_without_payload() -> None:
    one = np.array([0x80, 0x7F, 0xFF], np.uint8)
    assert element_texts(dt.F8E4M3FNUZ, one[:1].view(ml_dtypes.float8_e4m3fnuz)) == ["-nan"]
    found = element_texts(dt.F8E4M3FN, one[1:].view(ml_dtypes.float8_e4m3fn))
    assert found == ["nan", "-nan"]


def test_negative_zero_reads_back_only_with_a_point() -> None:
    assert texts("f32", [-0.0, 0.0]) == ["-0.0", "0"]
    assert texts("f32", [-0.0, 0.0], reads_back=False) == ["-0", "0"]
    value = np.array([complex(-0.0, 1.0)], np.complex64)
    assert element_texts(dt.C64, value) == ["(-0.0, 1)"]


def test_digits_of_small_floats() -> None:
    found = {t.name: significant_digits(t) for t in (dt.BF16, dt.F16, dt.F8E5M2, dt.F4E2M1FN)}
    assert found == {"bf16": 4, "f16": 5, "f8e5m2": 2, "f4e2m1fn": 2}


@pytest.mark.parametrize(
    ("dims", "text"),
    [
        ((), "0"),
        ((2,), "{0, 1}"),
        ((1, 1), "{ {0} }"),
        ((2, 2), "{ { 0, 1 }, { 2, 3 } }"),
        ((0, 2), "{  }"),
        ((2, 0), "{ {}, {} }"),
        ((2, 0, 2), "{ {  }, {  } }"),
        ((1, 1, 0, 2), "{ { /*i0=0*/ { /*i1=0*/ } } }"),
        (
            (2, 1, 1, 2),
            "{ { /*i0=0*/ { /*i1=0*/ { 0, 1 } } }, { /*i0=1*/ { /*i1=0*/ { 2, 3 } } } }",
        ),
    ],
)
def test_nesting(dims: tuple[int, ...], text: str) -> None:
    size = int(np.prod(dims))
    assert literal_text(Literal.of(np.arange(size, dtype=np.int32).reshape(dims))) == text


def test_tuples_predicates_and_elided_values() -> None:
    flag = Literal.of(np.array(True))
    flags = Literal.of(np.array([True, False]))
    elided = Literal.elided(Shape.array("f32", (3,)))
    literal = Literal.of_tuple((flag, flags, elided))
    assert literal_text(literal) == "( true, {1, 0}, {...} )"
    assert typed_literal_text(literal) == "( pred[] true, pred[2]{0} {1, 0}, f32[3]{0} {...} )"
