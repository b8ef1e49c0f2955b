"""Literals never change: an array that somebody may write to is copied."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import Literal, Shape
from hlo.ir.dtype import F32

TYPED = Shape.array(F32, (2, 3))


@pytest.mark.parametrize("shape", [None, TYPED])
@pytest.mark.parametrize("view", [lambda a: a, lambda a: a.T, lambda a: a[::-1], memoryview])
def test_what_is_written_later_is_not_seen(view: object, shape: Shape | None) -> None:
    assert callable(view)
    array = np.ones((3, 2) if view(np.ones((3, 2))).shape == (2, 3) else (2, 3), np.float32)
    literal = Literal.of(view(array), shape)
    array[:] = 7
    assert literal.array.tolist() == [[1, 1, 1], [1, 1, 1]]
    assert array.flags.writeable
    assert not literal.array.flags.writeable


def test_what_nobody_writes_to_is_shared() -> None:
    array = np.ones((2, 3), np.float32)
    array.flags.writeable = False
    assert np.shares_memory(Literal.of(array, TYPED).array, array)


def test_bits_that_are_no_elements_are_not_compared() -> None:
    shape = Shape.array("s4", (2,))
    wide = np.array([0xF8, 7], np.uint8).view(shape.dtype.numpy)
    narrow = np.array([0x08, 7], np.uint8).view(shape.dtype.numpy)
    assert Literal.of(wide, shape).same_bits(Literal.of(narrow, shape))
