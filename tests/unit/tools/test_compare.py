"""The comparison report: what passes, what it names, and how it reads."""

import ml_dtypes
import numpy as np
import pytest

from hlo.errors import HloError
from hlo.tools.comparison.compare import Budget, compare


def test_equal_values_pass() -> None:
    value = (np.arange(3), (np.array([np.nan, -0.0], np.float32), None), np.ones((0, 2)))
    report = compare(value, value)
    assert report.passed
    assert report.text.splitlines()[1] == (
        "PASS output {1,0}: f32[2]  2 elements, at most 0 ulp apart"
    )


def test_ulps_decide() -> None:
    one = np.ones(4, ml_dtypes.bfloat16)
    near = one.copy()
    near[2] = 1 + 2 * 2.0**-7
    assert compare(near, one, Budget(ulp=2)).passed
    report = compare(near, one, Budget(ulp=1))
    assert not report.passed
    (array,) = report.arrays
    assert array.over == 1
    assert array.worst[0].index == (2,)
    assert array.worst[0].ulp == 2
    assert array.histogram[0] == ("0", 0.75)


def test_tolerances_forgive_what_ulps_do_not() -> None:
    actual, expected = np.array([1.0, 1e-9]), np.array([1.0 + 1e-6, 0.0])
    assert not compare(actual, expected).passed
    assert compare(actual, expected, Budget(rtol=1e-5, atol=1e-8)).passed


def test_integers_and_nans_differ_whatever_the_budget() -> None:
    wide = Budget(ulp=1e9, rtol=10, atol=0)
    assert not compare(np.array([1.0, np.nan]), np.array([1.0, 1.0]), wide).passed
    assert not compare(np.array([5]), np.array([700]), Budget(ulp=1e9)).passed
    assert compare(np.array([np.nan]), np.array([-np.nan])).passed


def test_report_shows_the_worst_element_and_where_the_failures_are() -> None:
    expected = np.ones((4, 6), np.float32)
    actual = expected.copy()
    actual[2] = 1.5
    actual[2, 4] = 3
    text = compare((actual,), (expected,), Budget(ulp=4)).text
    assert "FAIL output {0}: f32[4,6]  6 of 24 elements over budget (25 %)" in text
    assert "1      {2,4}" in text
    assert "dimension 0, 1 of 4 positions (2: 6 of 6)" in text
    assert "0: 75.0 %" in text


@pytest.mark.parametrize(
    ("actual", "expected"),
    [((1,), (1, 2)), (np.ones(2), np.ones(3)), (np.ones(2), np.ones(2, np.float32)), (1, (1,))],
)
def test_other_structure_is_an_error(actual: object, expected: object) -> None:
    with pytest.raises(HloError) as caught:
        compare(actual, expected)
    assert caught.value.code == "comparison"


def test_complex_takes_the_worse_part() -> None:
    expected = np.array([1 + 1j], np.complex64)
    actual = np.array([1 + np.nextafter(np.float32(1), np.float32(2)) * 1j], np.complex64)
    assert compare(actual, expected, Budget(ulp=1)).passed
    assert not compare(actual, expected).passed


def test_tolerances_that_would_have_passed_do_pass() -> None:
    rng = np.random.default_rng(1)
    expected = rng.standard_normal(50)
    actual = expected * (1 + 1e-3 * rng.standard_normal(50))
    (array,) = compare(actual, expected).arrays
    text = compare(actual, expected).text
    rtol = float(text.split("--rtol=")[1].split()[0])
    atol = float(text.split("--atol=")[1].split()[0])
    assert compare(actual, expected, Budget(rtol=rtol)).passed
    assert compare(actual, expected, Budget(atol=atol)).passed
    assert compare(actual, expected, Budget(ulp=array.largest_ulp)).passed


def test_what_passes_by_its_size_is_shown_by_its_size() -> None:
    expected = np.array([1000, 1e-9], np.float32)
    actual = np.array([1000, 3e-4], np.float32)
    report = compare(actual, expected, Budget(ulp=4, rtol=1e-6, atol=1e-3))
    assert report.passed
    assert report.text == (
        "PASS output {}: f32[2]  2 elements, at most 0.0003 apart, of values up to 1e+03"
    )
