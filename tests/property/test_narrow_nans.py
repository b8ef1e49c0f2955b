"""NaNs of every code go through each op on narrow floats and through the rounding that follows.

Rounding by integer arithmetic would carry a NaN whose bits below the type's are set into a zero.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

import hlo
from hlo.ir.dtype import DTYPES
from hlo.ops.table import OPS, Trait
from tests.support.machines_here import that_run_here

MACHINES = that_run_here("x86-64", "x86-64-v2", "x86-64-v3", "x86-64-v4", "znver5")
COUNT = 173
ABSENT = {"stochastic-convert", "reduce-precision", "convert", "select", "compare"}
REDUCERS = ("maximum", "minimum", "add")


def codes(dtype: str, seed: int) -> np.ndarray:
    """Numbers, every third of them any code: NaNs with few and with all bits, infinities."""
    rng = np.random.default_rng(seed)
    values = rng.standard_normal(COUNT).astype(DTYPES[dtype].numpy).view(np.uint16)
    values[::3] = rng.integers(0, 1 << 16, len(values[::3]))
    largest = (1 << 16) - 1
    values[:6] = largest, largest >> 1, largest - 0x3F, 0x7F81, 0x7C01, 0x7F80
    return values.view(DTYPES[dtype].numpy)


def program(dtype: str) -> tuple[list[str], hlo.ir.module.Module]:
    """A sum with the result of each op that takes such floats, and with reductions of them all."""
    b = hlo.Builder("nans")
    shape = hlo.Shape.array(dtype, (COUNT,))
    operands = [b.parameter(f"p{k}", shape) for k in range(3)]
    x, z = operands[0], operands[2]
    made = {}
    for opcode, row in OPS.items():
        if row.traits & Trait.ELEMENTWISE and row.arity and opcode not in ABSENT:
            with suppress(hlo.HloError):  # an op on integers
                made[opcode] = b.add(b.emit(opcode, *operands[: row.arity]), z)
    for opcode in REDUCERS:
        reducer = b.scalar_computation(opcode, DTYPES[dtype])
        total = b.reduce(x, b.constant(0, dtype), reducer, (0,))
        made[f"reduce {opcode}"] = b.subtract(z, b.broadcast(total, dimensions=(), shape=shape))
    return list(made), b.build(b.tuple(list(made.values())))


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("dtype", ["bf16", "f16"])
def test_nans_stay_nans(dtype: str, machine: str) -> None:
    names, module = program(dtype)
    arguments = [codes(dtype, seed) for seed in range(3)]
    wanted = hlo.evaluate(module, *arguments)
    found = hlo.compile(module, cache=False, threads=1, machine=machine)(*arguments)
    for name, ours, reference in zip(names, found, wanted, strict=True):
        differ = np.isnan(ours.astype(np.float32)) != np.isnan(reference.astype(np.float32))
        assert not differ.any(), (name, np.argwhere(differ)[0], ours[differ], reference[differ])
