"""dot-operand-transposer: the numbers of a product whose batches lie innermost stay."""

from __future__ import annotations

import numpy as np
import pytest

import hlo

TEXT = """HloModule m
ENTRY e {{
  x = f32[{m},{k},{b}] parameter(0)
  y = f32[{y}] parameter(1)
  p = f32[{b},{m},{k}] transpose(x), dimensions={{2,0,1}}
  ROOT r = f32[{b},{m},{n}] dot({x}, y), lhs_batch_dims={{{batch}}},
    lhs_contracting_dims={{{along}}}, rhs_batch_dims={{0}}, rhs_contracting_dims={{1}}
}}
"""


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("is_written", [False, True])
@pytest.mark.parametrize(("b", "m", "n", "k"), [(30, 20, 17, 33), (7, 5, 4, 6), (100, 1, 8, 16)])
def test_sums_are_exact(b: int, m: int, n: int, k: int, threads: int, *, is_written: bool) -> None:
    """Of integers; where the program writes the transpose itself, too."""
    numbers = np.random.default_rng(0)
    x, y = (numbers.integers(-4, 5, s).astype(np.float32) for s in ((m, k, b), (b, k, n)))
    places = (
        {"x": "p", "batch": 0, "along": 2} if is_written else {"x": "x", "batch": 2, "along": 1}
    )
    text = TEXT.format(b=b, m=m, n=n, k=k, y=f"{b},{k},{n}", **places)
    exe = hlo.compile(hlo.parse(text), threads=threads, cache=False)
    np.testing.assert_array_equal(exe.run_guarded(x, y), x.transpose(2, 0, 1) @ y)


def test_a_transpose_that_is_written_stays_where_it_pays() -> None:
    """Each element of a matrix that a vector meets is read once: it is read where it lies."""
    places = {"x": "p", "batch": 0, "along": 2}
    for n, stays in ((17, True), (1, False)):
        text = TEXT.format(b=30, m=20, n=n, k=33, y=f"30,33,{n}", **places)
        (dot,) = [
            i
            for i in hlo.optimize(hlo.parse(text)).entry.instructions
            if i.opcode in ("dot", "fusion")
        ]
        assert any(o.opcode == "transpose" for o in dot.operands) is stays
