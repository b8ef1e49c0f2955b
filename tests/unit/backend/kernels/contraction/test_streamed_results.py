"""Which results go past the caches, and that they arrive, wherever they begin in memory."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.machine import NAMED, Cache
from tests.support.contraction_harness import Compiled, levels, target_of
from tests.support.covering import covering
from tests.unit.backend.kernels.contraction.test_contraction_dot import check, reference, values
from tests.unit.backend.kernels.contraction.test_result_prefetch import hints, product

PAST = "vmovntp"


def goes_past(m: int, n: int, k: int, machine: str, out: DType = dt.F32) -> bool:
    kernels = contraction_kernels(product(m, n, k, out, out), Target(NAMED[machine]))
    found = [call.kernel.text for call in kernels.calls if PAST in call.kernel.text]
    assert all("sfence" in text for text in found), "the lines arrive before others are told"
    return bool(found)


@pytest.mark.parametrize(("sizes", "out", "machine", "past"), [
    ((4096, 4096, 16), dt.F32, "x86-64-v4", True),
    ((4096, 4096, 16), dt.F32, "x86-64-v3", True),
    ((4096, 2048, 16), dt.F64, "x86-64-v4", True),
    ((1024, 4096, 16), dt.F32, "x86-64-v4", False),  # a large cache may hold it
    ((4096, 4090, 16), dt.F32, "x86-64-v4", False),  # rows begin within lines
    ((4096, 4096, 4096), dt.F32, "x86-64-v4", False),  # sums that are fetched again
])  # fmt: skip
def test_results_that_no_cache_holds_go_past_all(
    sizes: tuple[int, int, int], out: DType, machine: str, *, past: bool
) -> None:
    assert goes_past(*sizes, machine, out) == past
    if past:
        *_, work = (call.kernel.work for call in contraction_kernels(
            product(*sizes, out, out), Target(NAMED[machine])).calls)  # fmt: skip
        assert work is not None
        assert work.streamed == sizes[0] * sizes[1] * out.item_bytes, "written, and not read"
        assert not hints(product(*sizes, out, out), machine), "lines are not fetched"


@pytest.mark.parametrize(
    ("level", "dtype", "begins"),
    covering(levels(), [dt.F32, dt.F64, dt.S32], [0, 1, 5, 16]),
)  # fmt: skip
def test_they_are_stored_wherever_they_begin(level: str, dtype: DType, begins: int) -> None:
    """begins: elements behind a line's beginning."""
    target = target_of(level)
    caches = (*target.machine.caches[:-1], Cache(bytes=1 << 10, ways=16, shared=True))
    target = Target(replace(target.machine, caches=caches))
    for m, n, k in ((61, 96, 5), (200, 64, 33)):
        instruction = product(m, n, k, dtype, dtype)
        rng = np.random.default_rng(m)
        operands = [values(rng, o.shape) for o in instruction.operands]
        sequence = contraction_kernels(instruction, target)
        if level == "avx512" and dtype.is_float:
            assert any(PAST in call.kernel.text for call in sequence.calls)
        size, item = m * n, np.dtype(dtype.numpy).itemsize
        around = np.full(size * item + 512, 0x55, np.uint8)
        first = -around.ctypes.data % 64 + 64 + begins * item
        inner = around[first : first + size * item].view(dtype.numpy).reshape(m, n)
        found = Compiled(sequence, level)(operands, inner, 3)
        check(instruction, found, reference(instruction, *operands), k)
        assert (around[:first] == 0x55).all()
        assert (around[first + size * item :] == 0x55).all()
