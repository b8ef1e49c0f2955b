"""Very many copies in a row: one loop over a table, in the order in which they stood."""

from __future__ import annotations

import numpy as np

from hlo import driver
from hlo.backend.entry.copy_table import LEAST_COPIES, Copies, gathered
from hlo.backend.planning.program import CopyStep, HostStep
from tests.support.growing_modules import FAMILIES


def test_long_rows_are_gathered_and_short_ones_are_not() -> None:
    copies = [CopyStep(k, k + 1, 8, 0.005) for k in range(LEAST_COPIES)]
    other = HostStep(0, 0, None, 20.0)  # type: ignore[arg-type]  # an instruction that nothing asks for
    found = list(gathered([*copies, other, *copies[1:]]))
    assert found == [Copies(tuple(copies)), other, *copies[1:]]


def test_parameters_that_are_results() -> None:
    count = 3 * LEAST_COPIES
    module = driver.parse(FAMILIES["tuple_of_parameters"].text(count))
    arguments = [np.full(4, k, np.float32) for k in range(count)]
    for mode in ("strict", "fast"):
        executable = driver.compile(module, cache=False, mode=mode)
        for got, want in zip(executable(*arguments), arguments, strict=True):
            assert got.tobytes() == want.tobytes()
    text = driver.emit_stage(module, "llvm")
    assert text.count("call void @llvm.memcpy") < 20


def test_values_among_copies() -> None:
    count = LEAST_COPIES + 5
    lines = [f"p{k} = f32[4] parameter({k})" for k in range(count)]
    names = ", ".join(f"p{k}" for k in range(count))
    kinds = ", ".join(["f32[4]"] * (count + 1))
    text = "\n".join(
        ["HloModule m", "ENTRY e {", *lines, "s = f32[4] sine(p0)",
         f"ROOT t = ({kinds}) tuple(s, {names})", "}", ""]
    )  # fmt: skip
    arguments = [np.full(4, k, np.float32) for k in range(count)]
    first, *rest = driver.compile(driver.parse(text), cache=False)(*arguments)
    np.testing.assert_array_equal(first, np.zeros(4, np.float32))
    assert [r[0] for r in rest] == list(range(count))
