"""Sums over lanes: which lanes meet does not depend on how many vectors are summed beside each
other, and the sums come out in the vectors' order.
"""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.microkernels.lane_sums import across
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.linking.toolchain import host_machine
from hlo.ir.dtype import F32, F64
from tests.support.lanes_jit import lanes_function
from tests.support.machines_here import that_run_here

KINDS = {
    "float": (F32, np.float32),
    "double": (F64, np.float64),
}


def by_neighbours(x: np.ndarray) -> np.ndarray:
    """Sums along the last dimension: neighbours first."""
    while x.shape[-1] > 1:
        x = x[..., ::2] + x[..., 1::2]
    return x[..., 0]


def spread(shape: tuple[int, ...], dtype: type) -> np.ndarray:
    """Numbers of which every other order of summing makes other sums."""
    rng = np.random.default_rng(3)
    return (rng.standard_normal(shape) * 4.0 ** rng.integers(-9, 9, shape)).astype(dtype)


@pytest.mark.parametrize("scalar", KINDS)
@pytest.mark.parametrize("lanes", [2, 4, 8, 16])
def test_sums_of_neighbours_come_in_order(scalar: str, lanes: int) -> None:
    dtype, numpy = KINDS[scalar]
    target = Target(host_machine())
    for count in (n for n in (1, 2, 4, 8, 16) if n <= lanes):

        def body(w: Writer, target: Target, values: list[Value]) -> list[Value]:
            total = across(w, ring_of(dtype, target), values)
            order = [min(k, total.lanes - 1) for k in range(lanes)]
            return [w.shuffle(total, None, order) if total.lanes > 1 else w.splat(total, lanes)]

        rows = spread((count, lanes), numpy)
        run = lanes_function(body, [scalar] * count, [scalar], lanes=lanes, target=target)
        (found,) = run(*rows)
        np.testing.assert_array_equal(found[:count].view(numpy), by_neighbours(rows))


ROWS = """HloModule m
%add (a: {t}[], b: {t}[]) -> {t}[] {{
  %a = {t}[] parameter(0)
  %b = {t}[] parameter(1)
  ROOT %r = {t}[] add(%a, %b)
}}
ENTRY %e (p: {t}[{n},{k}]) -> {t}[{n}] {{
  %p = {t}[{n},{k}]{{1,0}} parameter(0)
  %z = {t}[] constant(-0)
  ROOT %s = {t}[{n}]{{0}} reduce(%p, %z), dimensions={{1}}, to_apply=%add
}}
"""


@pytest.mark.parametrize(("element", "numpy"), [("f32", np.float32), ("f64", np.float64)])
@pytest.mark.parametrize("machine", [None, *that_run_here("x86-64-v3", "x86-64-v2")])
def test_rows_that_are_halved_together(element: str, numpy: type, machine: str | None) -> None:
    for rows in (6, 402):  # the second ones are worth several vectors side by side
        module = driver.parse(ROWS.format(t=element, n=rows, k=64))
        compiled = driver.compile(module, cache=False, machine=machine)
        x = spread((rows, 64), numpy)
        alone = [np.asarray(compiled(np.roll(x, -k, axis=0)))[0] for k in range(rows)]
        np.testing.assert_array_equal(np.asarray(compiled(x)), alone)
        np.testing.assert_allclose(alone, x.astype(np.float64).sum(1), rtol=1e-5, atol=1e-2)
