"""Arguments: what is taken, what is refused, and how the refusal reads."""

import array

import ml_dtypes
import numpy as np
import pytest

from hlo.errors import HloError
from hlo.ir.shape import Shape
from hlo.parser.parse import parse
from hlo.runtime.arguments import checked_argument, checked_arguments
from hlo.runtime.dynamic import Dynamic

F32_2 = Shape.array("f32", (2,))


def refused(value: object, shape: Shape) -> str:
    with pytest.raises(HloError) as caught:
        checked_argument(value, shape, "argument 0 (x)")
    assert caught.value.code == "arguments"
    return caught.value.message


def test_array_of_any_strides_passes_unchanged() -> None:
    backwards = np.arange(4, dtype=np.float32)[::-2]
    assert checked_argument(backwards, F32_2, "x") is backwards


class Offering:
    """An object with an array interface and nothing else."""

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        return np.ones(2, np.float32)


@pytest.mark.parametrize("value", [Offering(), array.array("f", [1, 1]), memoryview(b"\0" * 0)])
def test_array_interfaces(value: object) -> None:
    if isinstance(value, memoryview):
        assert refused(value, F32_2) == "argument 0 (x) is u8[0], expected f32[2]"
        return
    taken = checked_argument(value, F32_2, "x")
    assert isinstance(taken, np.ndarray)
    assert taken.tolist() == [1.0, 1.0]


class OnlyDlpack:
    """An object that speaks DLPack alone."""

    def __init__(self, data: np.ndarray) -> None:
        self._data = data

    def __dlpack__(self, **keywords: object) -> object:
        return self._data.__dlpack__(**keywords)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._data.__dlpack_device__()


def test_dlpack_objects() -> None:
    taken = checked_argument(OnlyDlpack(np.ones(2, np.float32)), F32_2, "x")
    assert isinstance(taken, np.ndarray)
    assert taken.dtype == np.float32


@pytest.mark.parametrize(
    ("value", "type"),
    [(3, "s8"), (True, "pred"), (0.5, "bf16"), (3, "f32"), (1 + 2j, "c64"), (float("nan"), "f16")],
)
def test_exact_numbers_for_scalars(value: complex, type: str) -> None:
    taken = checked_argument(value, Shape.array(type), "x")
    assert isinstance(taken, np.ndarray)
    assert taken.dtype == Shape.array(type).dtype.numpy
    assert taken.shape == ()


@pytest.mark.parametrize(
    ("value", "type"),
    [(128, "s8"), (-1, "u8"), (1, "pred"), (True, "s32"), (0.1, "f32"), (2**24 + 1, "f32"),
     (1.5, "s32"), (1j, "f32"), (1e39, "f32"), (10**400, "f64"), (0.1 + 0j, "c64")],
)  # fmt: skip
def test_inexact_numbers_are_refused(value: complex, type: str) -> None:
    assert "which does not hold it exactly" in refused(value, Shape.array(type))


def test_nothing_is_cast() -> None:
    assert refused(np.ones(2), F32_2) == "argument 0 (x) is f64[2], expected f32[2]"
    assert refused(np.ones(3, np.float32), F32_2) == "argument 0 (x) is f32[3], expected f32[2]"
    assert refused(np.ones(2, ">f4"), F32_2) == "argument 0 (x) is >f4[2], expected f32[2]"
    assert refused([1.0, 2.0], F32_2) == "argument 0 (x) is a list of 2, expected f32[2]"
    assert refused(None, F32_2) == "argument 0 (x) is None, expected f32[2]"
    assert refused("ab", F32_2) == "argument 0 (x) is a str, expected f32[2]"
    assert refused(1.0, F32_2) == "argument 0 (x) is the number 1.0, expected f32[2]"
    halves = np.ones(2, ml_dtypes.bfloat16)
    assert refused(halves, F32_2) == "argument 0 (x) is bf16[2], expected f32[2]"


def test_tuples_nest_and_tokens_are_none() -> None:
    shape = Shape.tuple((Shape.tuple((F32_2,)), Shape.token()))
    x = np.ones(2, np.float32)
    assert checked_argument(((x,), None), shape, "x") == ((x,), None)
    assert refused((x, None), shape) == (
        "argument 0 (x), element 0 is a ndarray, expected a tuple of 1"
    )
    assert refused(((x,), 1), shape) == (
        "argument 0 (x), element 1 is a int, expected None, for a token"
    )


def test_dynamic_dimensions_take_smaller_arrays() -> None:
    shape = Shape.array("f32", (4, 3), dynamic=(True, False))
    small = np.ones((2, 3), np.float32)
    assert checked_argument(small, shape, "x") is small
    given = Dynamic(np.ones((4, 3), np.float32), {0: 1})
    taken = checked_argument(given, shape, "x")
    assert isinstance(taken, np.ndarray)
    assert taken.shape == (1, 3)
    assert "f32[5,3], expected f32[<=4,3]" in refused(np.ones((5, 3), np.float32), shape)
    assert "f32[4,2], expected f32[<=4,3]" in refused(np.ones((4, 2), np.float32), shape)


def test_wrong_number_names_the_parameters() -> None:
    module = parse("HloModule m\nENTRY e { x = f32[2] parameter(0) ROOT y = s32[] parameter(1) }")
    with pytest.raises(HloError) as caught:
        checked_arguments(module.entry.parameters, (1,))
    assert caught.value.message == "1 argument, expected 2 (x: f32[2], y: s32[])"
