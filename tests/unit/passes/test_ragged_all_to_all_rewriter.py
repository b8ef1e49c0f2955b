"""Ragged all-to-alls of one device, compiled: the interpreter's rows and its errors."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation

TEXT = """HloModule m
ENTRY e { x = {t}[6,2] parameter(0)
  o = {t}[7,2] parameter(1)
  a = {i}[{p}] parameter(2)
  n = {i}[{p}] parameter(3)
  b = {i}[{p}] parameter(4)
  m = {i}[{p}] parameter(5)
  ROOT r = {t}[7,2] ragged-all-to-all(x, o, a, n, b, m), replica_groups={{0}} }
"""
GOOD = [
    ([0, 1, 5], [2, 3, 1], [5, 0, 3], [2, 3, 1]),
    ([0, 0, 0], [0, 2, 0], [0, 3, 7], [0, 2, 0]),
    ([0, 0, 6], [6, 0, 0], [1, 3, 0], [6, 0, 0]),
]
BAD = [
    ([0, 1, 5], [2, 3, 2], [5, 0, 3], [2, 3, 2]),  # reaches beyond the input
    ([0, 1, 5], [2, 3, 1], [6, 0, 3], [2, 3, 1]),  # reaches beyond the output
    ([0, 1, 5], [2, 3, 1], [5, 0, 2], [2, 3, 1]),  # over another
    ([0, 1, 5], [2, 3, 1], [5, 0, 3], [2, 3, 0]),  # other sizes than sent
    ([-1, 1, 5], [2, 3, 1], [5, 0, 3], [2, 3, 1]),
    ([0, 1, 5], [2, -1, 1], [5, 0, 3], [2, -1, 1]),
]


def program(t: str, i: str, p: str) -> hlo.Module:
    return hlo.parse(TEXT.replace("{t}", t).replace("{i}", i).replace("{p}", p))


TYPES = [("f32", "s32", "3"), ("bf16", "s64", "3"), ("s4", "u8", "3,1"), ("pred", "s8", "1,3")]


@pytest.mark.parametrize(("t", "i", "p"), TYPES)
def test_rows_go_where_the_parts_say(t: str, i: str, p: str) -> None:
    module = program(t, i, p)
    run = hlo.compile(module, cache=False)
    types = [q.shape.dtype.numpy for q in module.entry.parameters]
    dims = module.entry.parameters[2].shape.dims
    x, o = (np.arange(k).reshape(-1, 2).astype(types[0]) for k in (12, 14))
    for parts in GOOD:
        numbers = [np.array(row).astype(types[2]).reshape(dims) for row in parts]
        expected, actual = hlo.evaluate(module, x, o, *numbers), run(x, o, *numbers)
        np.testing.assert_array_equal(actual.astype(np.float32), expected.astype(np.float32))  # type: ignore[attr-defined]  # arrays


@pytest.mark.parametrize("parts", BAD)
def test_bad_parts_are_refused(parts: tuple[list[int], ...]) -> None:
    module = program("f32", "s32", "3")
    x, o = np.ones((6, 2), np.float32), np.zeros((7, 2), np.float32)
    numbers = [np.array(row, np.int32) for row in parts]
    with pytest.raises(hlo.HloError) as expected:
        hlo.evaluate(module, x, o, *numbers)
    with pytest.raises(hlo.HloError) as actual:
        hlo.compile(module, cache=False)(x, o, *numbers)
    assert str(actual.value).split("\n")[0] == str(expected.value).split("\n")[0]


def test_a_second_round_leaves_the_refusal_alone() -> None:
    once = hlo.optimize(program("f32", "s32", "3"))
    twice = hlo.optimize(once)
    assert (
        len(Compilation(twice, passes="", threads=1).program.hosts)
        == len(Compilation(once, passes="", threads=1).program.hosts)
        == 1
    )
