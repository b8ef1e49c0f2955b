"""Compiling is as much work for large arrays as for small ones: what is done is counted, not timed.

Modules that have more of something are in test_growth.py.
"""

from __future__ import annotations

import pytest

import hlo
from tests.support.growth import Counter

SMALL, LARGE = 1 << 14, 1 << 20
MOST = 3  # Large arrays have parts, splits and tails that small ones have not; 64 would be growth.
ADD = "add { x = f32[] parameter(0) y = f32[] parameter(1) ROOT r = f32[] add(x, y) }"
LESS = (
    "less { x = f32[] parameter(0) y = f32[] parameter(1) "
    "ROOT r = pred[] compare(x, y), direction=LT }"
)
# N, HALF and LESS_6 are the size, its half, and six less. A row: parameters, and the result.
PROGRAMS = {
    "row": (
        "f32[1,1,N] f32[1,1,17]",
        "f32[1,1,N] convolution(p0, p1), window={size=17 pad=8_8}, dim_labels=bf0_oi0->bf0",
    ),
    "row of strides": (
        "f32[1,1,N] f32[1,1,8]",
        "f32[1,1,HALF] convolution(p0, p1), window={size=8 stride=2 pad=3_3}, "
        "dim_labels=bf0_oi0->bf0",
    ),
    "row of holes": (
        "f32[1,1,HALF] f32[1,1,3]",
        "f32[1,1,N] convolution(p0, p1), window={size=3 pad=2_1 lhs_dilate=2}, "
        "dim_labels=bf0_oi0->bf0",
    ),
    "features": (
        "f32[1,N,32] f32[7,1,32]",
        "f32[1,N,32] convolution(p0, p1), window={size=7 pad=3_3}, dim_labels=b0f_0io->b0f, "
        "feature_group_count=32",
    ),
    "features at the end": (
        "f32[1,N,32] f32[7,1,32]",
        "f32[1,LESS_6,32] convolution(p0, p1), window={size=7}, dim_labels=b0f_0io->b0f, "
        "feature_group_count=32",
    ),
    "rows of features": (
        "f32[1,32,N] f32[32,1,7]",
        "f32[1,32,N] convolution(p0, p1), window={size=7 pad=3_3}, dim_labels=bf0_oi0->bf0, "
        "feature_group_count=32",
    ),
    "gradient of features": (
        "f32[1,N,32] f32[1,N,32]",
        "f32[7,1,32] convolution(p0, p1), window={size=N pad=3_3}, dim_labels=f0b_i0o->0bf, "
        "batch_group_count=32",
    ),
    "gradient of rows": (
        "f32[1,32,N] f32[1,32,N]",
        "f32[32,1,7] convolution(p0, p1), window={size=N pad=3_3}, dim_labels=fb0_io0->fb0, "
        "batch_group_count=32",
    ),
    "windows as a product": (
        "f32[1,N,8] f32[7,8,8]",
        "f32[1,N,8] convolution(p0, p1), window={size=7 pad=3_3}, dim_labels=b0f_0io->b0f",
    ),
    "deep product": (
        "f32[N,16] f32[N,16]",
        "f32[16,16] dot(p0, p1), lhs_contracting_dims={0}, rhs_contracting_dims={0}",
    ),
    "products of a batch": (
        "f32[N,4,4] f32[N,4,4]",
        "f32[N,4,4] dot(p0, p1), lhs_batch_dims={0}, rhs_batch_dims={0}, "
        "lhs_contracting_dims={2}, rhs_contracting_dims={1}",
    ),
    "pad": ("f32[HALF] f32[]", "f32[N] pad(p0, p1), padding=1_0_1"),
    "concatenate": ("f32[HALF] f32[HALF]", "f32[N] concatenate(p0, p1), dimensions={0}"),
    "reverse": ("f32[N]", "f32[N] reverse(p0), dimensions={0}"),
    "windows": (
        "f32[N] f32[]",
        "f32[N] reduce-window(p0, p1), window={size=5 pad=2_2}, to_apply=add",
    ),
    "running sums": (
        "f32[N] f32[]",
        "f32[N] reduce-window(p0, p1), window={size=N pad=BEFORE_0}, to_apply=add",
    ),
    "sums": ("f32[N,16] f32[]", "f32[16] reduce(p0, p1), dimensions={0}, to_apply=add"),
    "sort": ("f32[N]", "f32[N] sort(p0), dimensions={0}, to_apply=less"),
    "sorted rows": ("f32[N,16]", "f32[N,16] sort(p0), dimensions={1}, to_apply=less"),
    "gather": (
        "f32[N] s32[N,1]",
        "f32[N] gather(p0, p1), offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, "
        "index_vector_dim=1, slice_sizes={1}",
    ),
    "scatter": (
        "f32[N] s32[HALF,1] f32[HALF]",
        "f32[N] scatter(p0, p1, p2), update_window_dims={}, inserted_window_dims={0}, "
        "scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=add",
    ),
    "factorisations": ("f32[N,4,4]", "f32[N,4,4] cholesky(p0), lower=true"),
    "transform": ("c64[N]", "c64[N] fft(p0), fft_type=FFT, fft_length={N}"),
    "transforms of rows": ("c64[N,16]", "c64[N,16] fft(p0), fft_type=FFT, fft_length={16}"),
}


def work(name: str, n: int) -> int:
    """Calls while a module is compiled that was before."""
    parameters, root = PROGRAMS[name]
    taken = [f"p{k} = {shape} parameter({k})" for k, shape in enumerate(parameters.split())]
    text = "\n".join(["HloModule m", ADD, LESS, "ENTRY e {", *taken, f"ROOT r = {root}", "}"])
    sizes = {"BEFORE": n - 1, "LESS_6": n - 6, "HALF": n // 2, "N": n}
    for word, size in sizes.items():
        text = text.replace(f"[{word}", f"[{size}").replace(f",{word}", f",{size}")
        text = text.replace(f"={word}", f"={size}").replace(f"{{{word}", f"{{{size}")
    module, counter = hlo.parse(text), Counter()
    hlo.compile(module, cache=False)
    with counter.stage("compile"):
        hlo.compile(module, cache=False)
    return counter.calls["compile"]


@pytest.mark.parametrize("name", PROGRAMS)
def test_work_does_not_follow_sizes(name: str) -> None:
    assert work(name, LARGE) < MOST * work(name, SMALL)
