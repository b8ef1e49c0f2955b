"""Chunks of a split kernel: many, but for one whose chunks would each pack what units share."""

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.ir.functions import Function
from hlo.backend.ir.kernel import Kernel
from hlo.backend.planning.program import KernelStep
from hlo.backend.planning.splitting import chunks_of
from hlo.driver import optimize
from hlo.machine import COMMON

NONE = Function(records=())

RATES = COMMON.rates

WEIGHTS_GRADIENT = """HloModule m
ENTRY e {
  x = f32[4,26,26,16] parameter(0)
  y = f32[4,24,24,32] parameter(1)
  ROOT w = f32[3,3,16,32] convolution(x, y), window={size=24x24}, dim_labels=f01b_i01o->01bf
}
"""


def test_chunks_are_many_where_nothing_is_shared() -> None:
    assert chunks_of(Kernel(NONE, 16), 200.0, 2, 8, RATES) == 8


def test_chunks_are_few_where_each_packs_as_much_as_it_computes() -> None:
    packs = Kernel(NONE, 16, packed_bytes=1 << 20)
    assert chunks_of(packs, 200.0, 2, 8, RATES) == 2
    assert chunks_of(packs, 200.0, 4, 16, RATES) == 4


def test_chunks_are_many_where_packing_is_little_or_each_unit_packs() -> None:
    assert chunks_of(Kernel(NONE, 16, packed_bytes=1 << 12), 200.0, 2, 8, RATES) == 8
    packs = Kernel(NONE, 16, packed_bytes=1 << 20, packed_runs=16)
    assert chunks_of(packs, 200.0, 2, 8, RATES) == 8


def test_threads_pack_a_shared_factor_once_each() -> None:
    program = Compilation(
        optimize(hlo.parse(WEIGHTS_GRADIENT), "default"), threads=2, passes=""
    ).program
    steps = [s for s in program.steps if isinstance(s, KernelStep)]
    (product,) = [s for s in steps if program.kernels[s.kernel].packed_bytes]
    assert product.units > product.chunks == 2


def test_a_few_per_cent_of_packing_again_make_chunks_whole_runs() -> None:
    """Four runs of four units: a chunk of half a run would pack it on two threads."""
    packs = Kernel(NONE, 16, packed_bytes=1 << 19, packed_runs=4)
    assert chunks_of(packs, 2_800.0, 2, 8, RATES) == 4
    assert chunks_of(packs, 28_000.0, 2, 8, RATES) == 8  # of what takes long it is nothing
