"""Short rows sorted a vector at a time: the network sorts, and every row has its own elements."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from hlo.analysis.sort_orders import recognised
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.records import Call
from hlo.backend.isa.target import Target
from hlo.backend.kernels.sorting.network import comparators, stages
from hlo.backend.kernels.sorting.row import Row
from hlo.backend.kernels.sorting.rows_together import Together, together
from hlo.backend.kernels.sorting.sort import sort_kernel
from hlo.backend.linking.toolchain import host_target
from hlo.interpreter.evaluate import evaluate
from hlo.ir.module import Module
from hlo.machine import named
from tests.support.kernel_jit import kernel_function
from tests.support.machines_here import that_run_here
from tests.unit.backend.kernels.sorting.test_sort import (
    CANONICAL,
    check,
    plain_comparator,
    sort_module,
)

# Across and along rows; rows and neighbours that fill no vector; in registers and in memory.
SHAPES = [
    ((9, 70), 0),
    ((3, 25, 37), 1),
    ((2, 50, 19), 1),
    ((70, 9), 1),
    ((37, 4), 1),
    ((3, 23, 33), 2),
    ((21, 131), 1),
]


@pytest.mark.parametrize("count", range(2, 13))
def test_the_network_sorts_all_zeros_and_ones(count: int) -> None:
    pairs = [(i, i + s.distance) for s in stages(count) for run in s.runs(count) for i in run]
    assert len(pairs) == comparators(count)
    for values in itertools.product((0, 1), repeat=count):
        found = list(values)
        for i, j in pairs:
            found[i], found[j] = sorted((found[i], found[j]))
        assert found == sorted(values)


@pytest.mark.parametrize("dtype", ["s8", "u8", "u16", "s32", "u64", "s64", "f16", "f32", "f64"])
def test_rows_of_one_operand(dtype: str) -> None:
    kind = "TOTALORDER" if dtype.startswith("f") else ""
    for (dims, along), direction in zip(SHAPES, itertools.cycle(("LT", "GT")), strict=False):
        check(sort_module((dtype,), dims, along, plain_comparator((dtype,), 0, direction, kind)))


@pytest.mark.parametrize("name", that_run_here("x86-64-v2", "x86-64-v3", "x86-64-v4"))
def test_on_other_machines(name: str) -> None:
    for dims, along in SHAPES:
        module = sort_module(("f32",), dims, along, CANONICAL)
        check(module, target=lambda: Target(named(name)))


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_rows_with_equals_that_differ_are_sorted_one_by_one(dtype: str) -> None:
    for dims, along in SHAPES:
        module = sort_module((dtype,), dims, along, CANONICAL.replace("f32", dtype))
        check(module)  # zeros of both signs, and NaNs, in their places
        _check_plain(module)


def test_one_question_finds_rows_with_such_values() -> None:
    module = sort_module(("f32",), (37, 9), 1, CANONICAL)
    kernel = sort_kernel(module.entry.root, host_target())
    assert isinstance(kernel, Kernel)
    calls = [r.symbol for r in kernel.function.records if isinstance(r, Call)]
    assert sum(symbol.startswith("llvm.vector.reduce.or") for symbol in calls) == 1


def _check_plain(module: Module) -> None:
    """The same of rows of which few have such values."""
    root = module.entry.root
    dtype = root.shape.dtype.numpy
    x = np.random.default_rng(1).standard_normal(root.shape.dims).astype(dtype)
    x.flat[7::211], x.flat[8::211] = 0.0, -0.0
    (got,) = kernel_function(root, sort_kernel(root, host_target()), 3)(x)
    assert got.tobytes() == np.ascontiguousarray(evaluate(module, x)).tobytes()


@pytest.mark.parametrize(
    "kinds", [("s8", "f32"), ("f32", "s32", "c64"), ("bf16", "u8"), ("pred", "s64")]
)
def test_other_operands_follow_their_rows_key(kinds: tuple[str, ...]) -> None:
    kind = "TOTALORDER" if kinds[0] in ("f32", "bf16") else ""
    for (dims, along), direction in zip(SHAPES, itertools.cycle(("GT", "LT")), strict=False):
        module = sort_module(kinds, dims, along, plain_comparator(kinds, 0, direction, kind))
        form = _form(module)
        assert (form is not None and form.with_position) == (
            dims[along] <= 128 or kinds[0] == "f32"
        )
        check(module)
    check(sort_module(kinds[::-1], (70, 9), 1, plain_comparator(kinds[::-1], len(kinds) - 1, "GT")))


def _form(module: Module) -> Together | None:
    root = module.entry.root
    (along,) = root["dimensions"]
    row = Row.of(root.operands[0].shape.dims, along)
    return together(
        row,
        recognised(root["to_apply"]),
        [o.shape.dtype for o in root.operands],
        Target(named("x86-64-v3")),
    )


def test_which_sorts_are_so() -> None:
    across = _form(sort_module(("f32",), (9, 70), 0, CANONICAL))
    assert across is not None
    assert (across.lanes, across.units, across.is_turned) == (16, 4, False)
    along = _form(sort_module(("u8",), (70, 9), 1, plain_comparator(("u8",), 0, "LT")))
    assert along is not None
    assert (along.lanes, along.units, along.is_turned) == (8, 8, True)
    negated = CANONICAL.replace("select(na, n, sa)", "negate(sa)")
    negated = negated.replace("select(nb, n, sb)", "negate(sb)")
    other = _form(sort_module(("f32",), (70, 9), 1, negated))
    assert other is not None
    assert (other.lanes, other.with_position, across.with_position) == (4, True, False)
    for dims, kind in (((70, 1025), 1), ((3, 9), 1), ((9, 3), 0), ((2, 9, 2), 1), ((9, 0), 0)):
        assert _form(sort_module(("f32",), dims, kind, CANONICAL)) is None
