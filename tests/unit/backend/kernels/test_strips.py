"""Reductions with lanes over what they keep: short rows, alike for all numbers of threads."""

import numpy as np
import pytest

from hlo import driver
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.linking.toolchain import host_target
from tests.support.by_threads import for_threads

REDUCERS = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
"""


def braces(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def softmax(dims: tuple[int, ...], axes: tuple[int, ...]) -> str:
    """exp(x - max) / sum, the reductions over some axes."""
    kept = tuple(d for d in range(len(dims)) if d not in axes)
    small = f"f32[{braces(tuple(dims[d] for d in kept))}]"
    large = f"f32[{braces(dims)}]"
    over, along = f"dimensions={{{braces(axes)}}}", f"dimensions={{{braces(kept)}}}"
    return f"""HloModule m
{REDUCERS}
ENTRY e {{
  x = {large} parameter(0)
  least = f32[] constant(-inf)
  zero = f32[] constant(0)
  m = {small} reduce(x, least), {over}, to_apply=max
  mb = {large} broadcast(m), {along}
  d = {large} subtract(x, mb)
  ex = {large} exponential(d)
  s = {small} reduce(ex, zero), {over}, to_apply=sum
  sb = {large} broadcast(s), {along}
  ROOT r = {large} divide(ex, sb)
}}"""


CASES = [
    ((37, 5), (1,)),
    ((33, 2), (1,)),
    ((1000, 7), (1,)),
    ((301, 13), (1,)),
    ((64, 16), (1,)),
    ((15, 3), (1,)),
    ((9, 11, 2, 3), (2, 3)),
    ((5, 7, 130), (1,)),
    ((2, 300, 65), (1,)),
    ((3, 40, 50), (2,)),
    ((4, 6, 8, 9), (0, 2)),
    ((0, 5), (1,)),
]


@pytest.mark.parametrize(("dims", "axes"), CASES)
def test_softmax_over_any_axes_is_the_reference(
    dims: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    module = driver.parse(softmax(dims, axes))
    x = np.random.default_rng(0).standard_normal(dims).astype(np.float32)
    got = driver.compile(module, threads=1, cache=False)(x)
    assert np.allclose(got, driver.evaluate(module, x), rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(("dims", "axes"), [((30011, 5), (1,)), ((64, 65, 200), (1,))])
def test_softmax_over_any_axes_has_equal_bits_for_all_threads(
    dims: tuple[int, ...], axes: tuple[int, ...]
) -> None:
    module = driver.parse(softmax(dims, axes))
    x = np.random.default_rng(1).standard_normal(dims).astype(np.float32)
    found = [for_threads(module, threads=n)(x) for n in (1, 2, 3, 7)]
    assert all(f.tobytes() == found[0].tobytes() for f in found)


def test_dead_lanes_of_a_batch_touch_no_memory() -> None:
    module = driver.parse(softmax((17, 3), (1,)))
    whole = np.full((19, 3), np.nan, np.float32)
    whole[:17] = np.arange(51).reshape(17, 3)
    got = driver.compile(module, threads=1, cache=False)(whole[:17])
    assert np.allclose(got.sum(axis=1), 1)


def kernel_text(text: str) -> str:
    module = driver.optimize(driver.parse(text), "fusion")
    fused = next(i for i in module.entry.instructions if i.opcode == "fusion")
    return fused_kernel(fused, host_target()).text


def test_short_rows_are_gathered_once_for_all_stages() -> None:
    text = kernel_text(softmax((4096, 13), (1,)))
    stages = text.split("fmul")[1:]  # the largest elements come before the first exponential
    assert not any("masked.gather" in stage for stage in stages)


@pytest.mark.parametrize("type", ["bf16", "f16"])
@pytest.mark.parametrize("dims", [(301, 13), (1000, 10), (33, 16)])
def test_short_rows_of_short_floats_are_the_reference(type: str, dims: tuple[int, int]) -> None:
    module = driver.parse(softmax(dims, (1,)).replace("f32", type))
    x = (
        np.random.default_rng(0)
        .standard_normal(dims)
        .astype(module.entry.parameters[0].shape.dtype.numpy)
    )
    got = driver.compile(module, threads=1, cache=False)(x).astype(np.float32)
    wanted = driver.evaluate(module, x).astype(np.float32)
    assert np.allclose(got, wanted, rtol=2e-2, atol=1e-6)


@pytest.mark.parametrize("dims", [(5, 40), (64, 16), (24, 40), (257, 16)])
@pytest.mark.parametrize("opcode", ["tanh", "negate"])
def test_rows_that_are_read_from_the_other_end_as_well(opcode: str, dims: tuple[int, int]) -> None:
    large = f"f32[{braces(dims)}]"
    text = f"""HloModule m
{REDUCERS}
both {{
  x = {large} parameter(0)
  zero = f32[] constant(0)
  t = {large} {opcode}(x)
  s = f32[{dims[0]}] reduce(t, zero), dimensions={{1}}, to_apply=sum
  sb = {large} broadcast(s), dimensions={{0}}
  other = {large} reverse(t), dimensions={{0}}
  d = {large} subtract(t, sb)
  ROOT r = {large} minimum(d, other)
}}
ENTRY e {{
  x = {large} parameter(0)
  ROOT r = {large} fusion(x), kind=kInput, calls=both
}}"""
    module = driver.parse(text)
    x = np.random.default_rng(5).standard_normal(dims).astype(np.float32)
    found = driver.compile(module, cache=False)(x)
    assert np.allclose(found, driver.evaluate(module, x), rtol=1e-5, atol=1e-5)


def test_folds_at_an_index_known_at_run_time() -> None:
    text = f"""HloModule m
{REDUCERS}
window {{
  x = f32[2,21] parameter(0)
  n = s32[] parameter(1)
  first = s32[] constant(0)
  zero = f32[] constant(0)
  s = f32[21] reduce(x, zero), dimensions={{0}}, to_apply=sum
  sb = f32[2,21] broadcast(s), dimensions={{1}}
  d = f32[2,21] subtract(x, sb)
  ROOT r = f32[2,17] dynamic-slice(d, first, n), dynamic_slice_sizes={{2,17}}
}}
ENTRY e {{
  x = f32[2,21] parameter(0)
  n = s32[] parameter(1)
  ROOT r = f32[2,17] fusion(x, n), kind=kLoop, calls=window
}}"""
    module = driver.parse(text)
    x = np.random.default_rng(5).integers(-3, 4, (2, 21)).astype(np.float32)
    executable = driver.compile(module, cache=False)
    for n in (0, 3, 4, 9):
        assert np.array_equal(executable(x, np.int32(n)), driver.evaluate(module, x, np.int32(n)))


def test_folds_beside_a_padded_operand_read_nothing() -> None:
    text = f"""HloModule m
{REDUCERS}
padded {{
  x = f32[7,257] parameter(0)
  zero = f32[] constant(0)
  m = f32[7] reduce(x, zero), dimensions={{1}}, to_apply=max
  ROOT r = f32[9] pad(m, zero), padding=-1_3
}}
ENTRY e {{
  x = f32[7,257] parameter(0)
  ROOT r = f32[9] fusion(x), kind=kLoop, calls=padded
}}"""
    module = driver.parse(text)
    x = np.random.default_rng(5).standard_normal((7, 257)).astype(np.float32)
    found = driver.compile(module, cache=False).run_guarded(x)
    assert np.array_equal(found, driver.evaluate(module, x))


def test_a_result_of_fewer_dimensions_may_run_over_what_is_reduced() -> None:
    text = f"""HloModule m
{REDUCERS}
both {{
  x = f32[3,17] parameter(0)
  zero = f32[] constant(0)
  s = f32[17] reduce(x, zero), dimensions={{0}}, to_apply=sum
  sb = f32[3,17] broadcast(s), dimensions={{1}}
  d = f32[3,17] subtract(x, sb)
  turned = f32[3,17] reverse(x), dimensions={{0,1}}
  longer = f32[3,17,1] reshape(d)
  ROOT r = (f32[3,17], f32[3,17,1]) tuple(turned, longer)
}}
ENTRY e {{
  x = f32[3,17] parameter(0)
  ROOT r = (f32[3,17], f32[3,17,1]) fusion(x), kind=kLoop, calls=both
}}"""
    module = driver.parse(text)
    x = np.random.default_rng(5).integers(-3, 4, (3, 17)).astype(np.float32)
    found = driver.compile(module, cache=False).run_guarded(x)
    assert isinstance(found, tuple)
    for ours, expected in zip(found, driver.evaluate(module, x), strict=True):  # type: ignore[arg-type]
        assert np.array_equal(ours, expected)
