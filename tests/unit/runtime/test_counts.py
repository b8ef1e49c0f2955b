"""Counts that callers give: integers of any type, and nothing that only looks like one."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import hlo
from hlo.errors import HloError, checked_count

MODULE = hlo.parse("HloModule m\nENTRY e { p = f32[2] parameter(0) ROOT r = f32[2] add(p, p) }")
X = np.ones(2, np.float32)
NONE: tuple[object, ...] = (1.5, 2.0, True, np.bool_(True), "2", [2], float("nan"), -1)


@pytest.mark.parametrize("given", [3, np.int64(3), np.uint8(3)])
def test_integers_of_any_type(given: object) -> None:
    found = checked_count("threads", given)
    assert (found, type(found)) == (3, int)


@pytest.mark.parametrize("given", NONE, ids=repr)
@pytest.mark.parametrize(
    "call",
    [
        lambda n: hlo.compile(MODULE, threads=n),
        lambda n: hlo.evaluate(MODULE, X, max_steps=n),
        lambda n: hlo.evaluate(MODULE, X, seed=n),
        lambda n: hlo.evaluate_devices(MODULE, [[X]], replicas=n),
        lambda n: hlo.evaluate_devices(MODULE, [[X]], partitions=n),
    ],
    ids=["threads", "max_steps", "seed", "replicas", "partitions"],
)
def test_what_is_none_is_named(call: Callable[[object], object], given: object) -> None:
    with pytest.raises(HloError, match=r" is .*, expected an integer from [01]") as raised:
        call(given)
    assert raised.value.code == "arguments"


def test_numpys_integers_may_be_threads() -> None:
    np.testing.assert_array_equal(hlo.compile(MODULE, threads=np.int64(1), cache=False)(X), X + X)


@pytest.mark.parametrize("passes", [None, 3, ["dce"]], ids=repr)
def test_a_pipeline_is_a_text(passes: object) -> None:
    for call in (hlo.compile, hlo.optimize):
        with pytest.raises(HloError, match=r"passes is .*, expected names") as raised:
            call(MODULE, passes=passes)
        assert raised.value.code == "arguments"
