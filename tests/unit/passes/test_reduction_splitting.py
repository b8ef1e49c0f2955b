"""Long reductions with few results are cut: in how many parts, and for the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.parser.parse import parse
from hlo.passes.reduction_splitting import split_reductions


def norm(rows: int, columns: int) -> str:
    """x - mean(x) over the rows."""
    return f"""HloModule m
      sum {{ a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = f32[] add(a, b) }}
      ENTRY e {{ x = f32[{rows},{columns}] parameter(0)
        z = f32[] constant(0)
        s = f32[{columns}] reduce(x, z), dimensions={{0}}, to_apply=sum
        n = f32[] constant({rows})
        ns = f32[{columns}] broadcast(n), dimensions={{}}
        mean = f32[{columns}] divide(s, ns)
        means = f32[{rows},{columns}] broadcast(mean), dimensions={{1}}
        ROOT d = f32[{rows},{columns}] subtract(x, means) }}"""


@pytest.mark.parametrize(
    ("rows", "columns", "is_cut"),
    [
        (6000, 64, True),  # few columns are one unit of a kernel
        (6000, 65, False),  # more of them run in parallel as they are
        (3000, 64, False),  # too little for two threads
        (40000, 3, True),  # a long reduction
    ],
)
def test_tall_reductions_of_few_columns_are_cut(rows: int, columns: int, *, is_cut: bool) -> None:
    module = parse(norm(rows, columns))
    assert split_reductions(module, module.entry) is is_cut
    reductions = [i for i in module.entry.instructions if i.opcode == "reduce"]
    assert len(reductions) == 1 + is_cut


@pytest.mark.parametrize("shape", [(6000, 64), (8192, 33), (30000, 10)])
def test_cut_reductions_give_the_same_bits_for_all_numbers_of_threads(
    shape: tuple[int, int],
) -> None:
    module = parse(norm(*shape))
    x = np.random.default_rng(3).integers(-8, 9, shape).astype(np.float32)  # sums are exact
    expected = driver.evaluate(module, x)
    for threads in (1, 2, 3, 7):
        found = driver.compile(module, threads=threads, cache=False)(x)
        assert np.array_equal(found, expected)  # type: ignore[arg-type]  # arrays
