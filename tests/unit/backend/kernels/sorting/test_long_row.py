"""Long rows that threads share out: the bytes of the op's own evaluate, in any parts."""

from __future__ import annotations

import zlib

import numpy as np
import pytest
from msgspec.structs import replace

from hlo.backend.kernels.sorting.buckets import BUCKETS
from hlo.backend.kernels.sorting.long_row import long_row_kernels
from hlo.backend.linking.toolchain import host_target
from hlo.interpreter.evaluate import evaluate
from hlo.ir.module import Module
from tests.support.by_threads import for_threads
from tests.support.contraction_harness import Compiled
from tests.support.hlo_values import mixed_values
from tests.unit.backend.kernels.sorting.test_sort import (
    CANONICAL,
    TWO_KEYS,
    WEIGHED,
    plain_comparator,
    sort_module,
)

LONG = 20_001  # No multiple of a part, a vector or a bucket.


def check(module: Module, values: list[np.ndarray]) -> None:
    wanted = evaluate(module, *values)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    assert long_row_kernels(module.entry.root, host_target()) is not None
    for threads in (1, 2, 3):
        got = for_threads(module, threads=threads)(*values)
        got = got if isinstance(got, tuple) else (got,)
        for one, other in zip(got, wanted, strict=True):
            assert one.tobytes() == np.ascontiguousarray(other).tobytes()


def values_of(module: Module) -> list[np.ndarray]:
    rng = np.random.default_rng(zlib.crc32(str(module.entry.root).encode()))
    shapes = [o.shape for o in module.entry.root.operands]
    return [mixed_values(s.dtype, s.size, rng).reshape(s.dims) for s in shapes]


@pytest.mark.parametrize("dtype", ["f32", "s32", "u8", "bf16", "f64", "s64"])
@pytest.mark.parametrize("direction", ["LT", "GT"])
def test_numbers_alone(dtype: str, direction: str) -> None:
    kind = "TOTALORDER" if dtype[0] in "fb" else ""
    cmp = plain_comparator((dtype,), 0, direction, kind)
    module = sort_module((dtype,), (LONG,), 0, cmp)
    check(module, values_of(module))


def test_units_in_any_ranges() -> None:
    module = sort_module(("f32",), (1, LONG), 1, CANONICAL)
    root = module.entry.root
    sequence = long_row_kernels(root, host_target())
    assert sequence is not None
    (x,) = values_of(module)
    compiled = Compiled(sequence)
    for pieces in (1, 2, 5):
        got = compiled([x], np.empty_like(x), pieces)
        assert got.tobytes() == np.asarray(evaluate(module, x)).tobytes()


@pytest.mark.parametrize("types", [("f32", "s32", "c64", "u8"), ("s32", "s64", "c128", "bf16")])
def test_others_follow_the_key(types: tuple[str, ...]) -> None:
    module = sort_module(types, (LONG, 1), 0, plain_comparator(types, 1, "GT"))
    check(module, values_of(module))


def test_ties_are_decided_by_the_next_key() -> None:
    for wide in ("f32", "f64"):
        module = sort_module(("s8", wide), (LONG,), 0, TWO_KEYS.replace("f32", wide))
        check(module, values_of(module))


@pytest.mark.parametrize("kind", ["equal", "two", "falling", "one apart"])
def test_unequal_buckets(kind: str) -> None:
    x = np.zeros(LONG, np.int32)
    if kind == "two":
        x[::3] = -7
    elif kind == "falling":
        x = np.arange(LONG, dtype=np.int32)[::-1].copy()
    elif kind == "one apart":
        x[12_345] = np.iinfo(np.int32).min
    types = ("s32", "s32")
    module = sort_module(types, (LONG,), 0, plain_comparator(types, 0, "LT"))
    check(module, [x, np.arange(LONG, dtype=np.int32)])


def test_kernels_are_four_for_each_key() -> None:
    types = ("s8", "f32")
    one = sort_module(types, (LONG,), 0, plain_comparator(types, 0, "LT"))
    for module, keys in ((one, 1), (sort_module(types, (LONG,), 0, TWO_KEYS), 2)):
        sequence = long_row_kernels(module.entry.root, host_target())
        assert sequence is not None
        units = [call.kernel.units for call in sequence.calls]
        assert len(units) == 4 * keys
        assert units[3::4] == [BUCKETS] * keys
        assert min(units[1], units[2]) > 1
        # threads that deal have their places on lines far apart, whatever memory begins at
        assert sequence.calls[2].kernel.scratch_bytes >= 8 * 64


def test_what_stays_with_the_kernel_of_rows() -> None:
    cmp = plain_comparator(("f32",), 0, "LT", "TOTALORDER")
    for dims, along in (((1000,), 0), ((2, LONG), 1), ((LONG, 2), 0)):
        root = sort_module(("f32",), dims, along, cmp).entry.root
        assert long_row_kernels(root, host_target()) is None
    unknown = sort_module(("s8", "f32"), (LONG,), 0, WEIGHED).entry.root
    assert long_row_kernels(unknown, host_target()) is None
    long = sort_module(("f32",), (LONG,), 0, cmp).entry.root
    assert long_row_kernels(long, replace(host_target(), is_alone=True)) is None
