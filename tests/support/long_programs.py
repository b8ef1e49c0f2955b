"""Programs that run for 2 s and more, one or more for every family of kernels.

    inputs(module) -> arguments for one of them, cheap to make

Their sizes are those at which one kernel, and often one of its units, takes that long.
"""

from __future__ import annotations

import re

import numpy as np

from hlo.ir.module import Module

_ADD = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] add(a, b)
}
"""
_MULTIPLY = """
multiply {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT s = f32[] multiply(a, b)
}
"""
_LESS = """
less {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT l = pred[] compare(a, b), direction=LT
}
"""
_ODD = """
odd {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  m = f32[] multiply(a, b)
  s = f32[] add(m, a)
  t = f32[] tanh(s)
  ROOT e = f32[] exponential(t)
}
"""


def loop(shape: str, step: str) -> str:
    """A loop whose trips are an argument: `step` computes y from the state x and the trip i."""
    state = f"(s64[], s64[], {shape})"
    return f"""HloModule loop
condition {{
  p = {state} parameter(0)
  i = s64[] get-tuple-element(p), index=0
  n = s64[] get-tuple-element(p), index=1
  ROOT l = pred[] compare(i, n), direction=LT
}}
body {{
  p = {state} parameter(0)
  i = s64[] get-tuple-element(p), index=0
  n = s64[] get-tuple-element(p), index=1
  x = {shape} get-tuple-element(p), index=2
  one = s64[] constant(1)
  j = s64[] add(i, one)
{step}
  ROOT t = {state} tuple(j, n, y)
}}
ENTRY e {{
  n = s64[] parameter(0)
  x = {shape} parameter(1)
  zero = s64[] constant(0)
  start = {state} tuple(zero, n, x)
  w = {state} while(start), condition=condition, body=body
  ROOT r = {shape} get-tuple-element(w), index=2
}}"""


def _program(lines: str, callees: str = "") -> str:
    body = re.sub(r"; ", "\n  ", lines)
    return f"HloModule long\n{callees}\nENTRY e {{\n  zero = f32[] constant(0)\n  {body}\n}}"


SCALAR_LOOP = loop("s64[]", "  a = s64[] xor(x, i)\n  y = s64[] add(a, one)")
LANE_LOOP = loop("f32[10000]", "  a = f32[10000] multiply(x, x)\n  y = f32[10000] tanh(a)")
KERNEL_LOOP = loop(
    "f32[128,128]",
    "  d = f32[128,128] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}\n"
    "  y = f32[128,128] tanh(d)",
)

PROGRAMS = {
    "while_scalar": SCALAR_LOOP,
    "while_kernels": KERNEL_LOOP,
    "while_lanes": LANE_LOOP,
    "fused_loops": _program(
        "k = f32[] parameter(0); c = f32[1000000,40000] broadcast(k), dimensions={}; "
        "i = f32[1000000,40000] iota(), iota_dimension=1; x = f32[1000000,40000] multiply(i, c); "
        "s = f32[1000000,40000] sine(x); m = f32[1000000] reduce(s, zero), dimensions={1}, "
        "to_apply=add; ROOT r = f32[1000000] tanh(m)",
        _ADD,
    ),
    "reduction": _program(
        "k = f32[] parameter(0); c = f32[200000,200000] broadcast(k), dimensions={}; "
        "i = f32[200000,200000] iota(), iota_dimension=1; "
        "x = f32[200000,200000] multiply(i, c); "
        "ROOT r = f32[] reduce(x, zero), dimensions={0,1}, to_apply=add",
        _ADD,
    ),
    "scan": _program(
        "x = f32[100000000] parameter(0); "
        "ROOT r = f32[] reduce(x, zero), dimensions={0}, to_apply=odd",
        _ODD,
    ),
    "contraction": _program(
        "x = f32[8000,8000] parameter(0); y = f32[8000,8000] parameter(1); "
        "ROOT r = f32[8000,8000] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}"
    ),
    "convolution": _program(
        "x = f32[1,2000000,1] parameter(0); y = f32[80000,1,1] parameter(1); "
        "ROOT r = f32[1,1920001,1] convolution(x, y), window={size=80000}, "
        "dim_labels=b0f_0io->b0f"
    ),
    "sort": _program(
        "x = f32[60000000] parameter(0); "
        "ROOT r = f32[60000000] sort(x), dimensions={0}, to_apply=less",
        _LESS,
    ),
    "scatter": _program(
        "x = f32[10000,64] parameter(0); i = s32[1000000,1] parameter(1); "
        "u = f32[] parameter(2); w = f32[10000000,64] broadcast(u), dimensions={}; "
        "j = s32[10,1000000,1] broadcast(i), dimensions={1,2}; "
        "k = s32[10000000,1] reshape(j); "
        "ROOT r = f32[10000,64] scatter(x, k, w), update_window_dims={1}, "
        "inserted_window_dims={0}, scatter_dims_to_operand_dims={0}, index_vector_dim=1, "
        "to_apply=odd",
        _ODD,
    ),
    "gather": _program(
        "x = f32[20000000] parameter(0); i = s32[20000000,1] parameter(1); "
        "j = s32[200,20000000,1] broadcast(i), dimensions={1,2}; k = s32[4000000000,1] reshape(j); "
        "g = f32[4000000000] gather(x, k), offset_dims={}, collapsed_slice_dims={0}, "
        "start_index_map={0}, index_vector_dim=1, slice_sizes={1}; "
        "ROOT r = f32[] reduce(g, zero), dimensions={0}, to_apply=add",
        _ADD,
    ),
    "fft": _program(
        "x0 = c64[40000,1024] parameter(0); "
        + "; ".join(
            f"x{n + 1} = c64[40000,1024] fft(x{n}), fft_type=FFT, fft_length={{1024}}"
            for n in range(63)
        )
        + "; ROOT r = c64[40000,1024] fft(x63), fft_type=FFT, fft_length={1024}"
    ),
    "reduce_window": _program(
        "x = f32[4000000] parameter(0); one = f32[] constant(1); "
        "ROOT r = f32[3960001] reduce-window(x, one), window={size=40000}, to_apply=multiply",
        _MULTIPLY,  # sums would be made in parts
    ),
    "select_and_scatter": _program(
        "x = f32[6000,6000] parameter(0); s = f32[5986,5986] parameter(1); "
        "ROOT r = f32[6000,6000] select-and-scatter(x, s, zero), window={size=15x15}, "
        "select=less, scatter=add",
        _ADD + _LESS,
    ),
    "rng": _program(
        "k = f32[] parameter(0); one = f32[] constant(1); "
        "r0 = f32[400000000] rng(k, one), distribution=rng_normal; "
        "ROOT r = f32[] reduce(r0, zero), dimensions={0}, to_apply=add",
        _ADD,
    ),
    "linear_algebra": _program(
        "x = f32[400,1000,1000] parameter(0); ROOT r = f32[400,1000,1000] cholesky(x), lower=true"
    ),
    "triangular_solve": _program(
        "x = f32[7000,7000] parameter(0); y = f32[7000,7000] parameter(1); "
        "ROOT r = f32[7000,7000] triangular-solve(x, y), left_side=true, lower=true, "
        "transpose_a=NO_TRANSPOSE"
    ),
}


def inputs(module: Module) -> list[np.ndarray]:
    """Arguments: whole numbers below 10000 (a loop's trips: 2^62), floats of [0, 1)."""
    return [
        _input(p.shape.dims, np.dtype(p.shape.dtype.numpy), is_trips=p.name.startswith("n."))
        for p in module.entry.parameters
    ]


def _input(dims: tuple[int, ...], kind: np.dtype, *, is_trips: bool) -> np.ndarray:
    rng = np.random.default_rng(0)
    count = int(np.prod(dims))
    if is_trips:
        return np.array(2**62, kind)
    if np.issubdtype(kind, np.integer):
        some = rng.integers(0, 10000, min(count, 1 << 20)).astype(kind)
    else:
        some = rng.random(min(count, 1 << 20), np.float32).astype(kind)
    return np.resize(some, dims)
