"""Vectorised evaluation beside the docstrings' formulas, element by element, on random cases."""

import itertools
import random
from collections.abc import Callable, Iterator
from typing import ClassVar

import numpy as np
import pytest

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.padding import PaddingDim
from hlo.attributes.window import Window, WindowDim
from hlo.interpreter.device import Device, Surroundings
from hlo.interpreter.run import Called, Run
from hlo.ir.shape import Shape
from hlo.ops.table import OPS
from hlo.parser.parse import parse
from tests.support.readings import taken

CASES = 60
Ints = tuple[int, ...]


class Chance:
    """Seeded choices."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def size(self, low: int = 1, high: int = 4) -> int:
        return self.random.randint(low, high)

    def sizes(self, rank: int, low: int = 1, high: int = 4) -> Ints:
        return tuple(self.size(low, high) for _ in range(rank))

    def permutation(self, n: int) -> list[int]:
        return self.random.sample(range(n), n)

    def some(self, items: list[int], most: int | None = None) -> list[int]:
        return self.random.sample(items, self.random.randint(0, most or len(items)))

    def array(self, dims: Ints, low: int = -9, high: int = 9) -> np.ndarray:
        seed = self.random.randrange(2**31)
        return np.random.default_rng(seed).integers(low, high + 1, dims).astype(np.int32)

    def window(self, rank: int, *, base: bool = True) -> Window:
        return Window(
            tuple(
                WindowDim(
                    self.size(1, 3), self.size(1, 2), self.size(-1, 2), self.size(-1, 2),
                    self.size(1, 2) if base else 1, self.size(1, 2), self.random.random() < 0.3,
                )
                for _ in range(rank)
            )
        )  # fmt: skip


def called(text: str) -> Called:
    """The first computation of a text, for an op to call."""
    module = parse(f"HloModule m\n{text}\nENTRY e {{ ROOT p = s32[] parameter(0) }}")
    return Called(module.computations[0], Run(Device(Surroundings())))


def digits() -> Called:
    """10a + b: shows order and count of every application."""
    return called(
        "f { a = s32[] parameter(0) b = s32[] parameter(1) c = s32[] constant(10) "
        "t = s32[] multiply(a, c) ROOT r = s32[] add(t, b) }"
    )


def shape_of(array: np.ndarray) -> Shape:
    return Shape.array("s32", array.shape)


def positions(o: Ints, window: Window, dims: Ints) -> Iterator[tuple[Ints, Ints]]:
    """Window positions (row-major) that stand on an element of dims, with that element."""
    for w in itertools.product(*(range(d.size) for d in window.dims)):
        element = []
        for at, k, d, n in zip(o, w, window.dims, dims, strict=True):
            b = at * d.stride + k * d.window_dilation - d.pad_low
            if b < 0 or b % d.base_dilation or b // d.base_dilation >= n:
                break
            element.append(b // d.base_dilation)
        else:
            yield w, tuple(element)


def pad_case(c: Chance) -> tuple[np.ndarray, np.ndarray]:
    x = c.array(c.sizes(c.size(1, 3), 0))
    padding = tuple(PaddingDim(c.size(-2, 2), c.size(-2, 2), c.size(0, 2)) for _ in x.shape)
    sizes = [n + p.low + p.high + max(n - 1, 0) * p.interior
             for n, p in zip(x.shape, padding, strict=True)]  # fmt: skip
    padding = tuple(PaddingDim(p.low, p.high + max(-size, 0), p.interior)
                    for p, size in zip(padding, sizes, strict=True))  # fmt: skip
    expected = np.full([max(size, 0) for size in sizes], 7, np.int32)
    for i in np.ndindex(*x.shape):
        place = tuple(p.low + k * (p.interior + 1) for k, p in zip(i, padding, strict=True))
        if all(0 <= k < n for k, n in zip(place, expected.shape, strict=True)):
            expected[place] = x[i]
    return OPS["pad"].evaluate(x, np.array(7, np.int32), **taken("pad", padding=padding)), expected


def reduce_case(c: Chance) -> tuple[np.ndarray, np.ndarray]:
    x = c.array(c.sizes(c.size(1, 4), 0, 3))
    dimensions = tuple(c.some(list(range(x.ndim))))
    kept = [d for d in range(x.ndim) if d not in dimensions]
    expected = np.full([x.shape[d] for d in kept], 3, np.int32)
    for i in np.ndindex(*x.shape):
        place = tuple(i[d] for d in kept)
        expected[place] = expected[place] * 10 + x[i]
    f = digits()
    return OPS["reduce"].evaluate(
        x, np.array(3, np.int32), **taken("reduce", dimensions=dimensions, to_apply=f)
    ), expected


def reduce_window_case(c: Chance) -> tuple[np.ndarray, np.ndarray]:
    x = c.array(c.sizes(c.size(1, 2), 0, 5))
    window = c.window(x.ndim)
    row, operands = OPS["reduce-window"], (x, np.array(3, np.int32))
    f = digits()
    scalar = Shape.array("s32")
    inferred = row.infer(
        shape_of(x), scalar, **taken("reduce-window", window=window, to_apply=f.program_shape)
    )
    expected = np.full(inferred.dims, 3, np.int32)
    for o in np.ndindex(*inferred.dims):
        for _, element in positions(o, window, x.shape):
            expected[o] = expected[o] * 10 + x[element]
    return row.evaluate(*operands, **taken("reduce-window", window=window, to_apply=f)), expected


def windowed_sum_case(c: Chance) -> tuple[np.ndarray, np.ndarray]:
    x = c.array(c.sizes(c.size(1, 2), 0, 7))
    window = c.window(x.ndim)
    f = called("f { a = s32[] parameter(0) b = s32[] parameter(1) ROOT r = s32[] add(a, b) }")
    row, scalar = OPS["reduce-window"], Shape.array("s32")
    inferred = row.infer(
        shape_of(x), scalar, **taken("reduce-window", window=window, to_apply=f.program_shape)
    )
    expected = np.full(inferred.dims, 3, np.int32)
    for o in np.ndindex(*inferred.dims):
        expected[o] += sum(x[element] for _, element in positions(o, window, x.shape))
    return row.evaluate(
        x, np.array(3, np.int32), **taken("reduce-window", window=window, to_apply=f)
    ), expected


def select_and_scatter_case(c: Chance) -> tuple[np.ndarray, np.ndarray]:
    x = c.array(c.sizes(c.size(1, 2), 1, 5), 0, 3)
    window = c.window(x.ndim, base=False)
    f = digits()
    ge = called(
        "f { a = s32[] parameter(0) b = s32[] parameter(1) "
        "ROOT r = pred[] compare(a, b), direction=GE }"
    )
    sizes = (
        OPS["reduce-window"]
        .infer(
            shape_of(x),
            Shape.array("s32"),
            **taken("reduce-window", window=window, to_apply=f.program_shape),
        )
        .dims
    )
    source = c.array(sizes)
    expected = np.full(x.shape, 2, np.int32)
    for o in np.ndindex(*sizes):
        winner = None
        for _, element in positions(o, window, x.shape):
            if winner is None or not x[winner] >= x[element]:
                winner = element
        if winner is not None:
            expected[winner] = expected[winner] * 10 + source[o]
    init = np.array(2, np.int32)
    row = OPS["select-and-scatter"]
    return row.evaluate(
        x, source, init, **taken(row.opcode, window=window, select=ge, scatter=f)
    ), expected


def gather_numbers(c: Chance) -> tuple[np.ndarray, np.ndarray, dict[str, object], list[int]]:
    """An operand, indices, and dimension numbers of a gather; the dimensions of its windows."""
    x = c.array(c.sizes(c.size(1, 4)))
    dims = c.permutation(x.ndim)
    mapped = dims[: c.size(0, x.ndim)]
    rest = dims[len(mapped) :]
    batching = sorted(rest[: c.size(0, min(2, len(rest)))])
    collapsed = sorted(c.some([d for d in range(x.ndim) if d not in batching]))
    batch = [x.shape[d] for d in batching] + list(c.sizes(c.size(0, 2)))
    order = c.permutation(len(batch))
    placed = [batch[k] for k in order]
    vector = c.size(0, len(placed))
    where = [order.index(k) for k in range(len(batching))]
    start_dims = [k + (k >= vector) for k in where]
    full = (*placed[:vector], len(mapped), *placed[vector:])
    indices = c.array(full, -2, 5)
    numbers = {
        "start_index_map": tuple(mapped), "operand_batching_dims": tuple(batching),
        "start_indices_batching_dims": tuple(start_dims), "index_vector_dim": vector,
        "collapsed_slice_dims": tuple(collapsed), "indices_are_sorted": False,
    }  # fmt: skip
    return x, indices, numbers, [d for d in range(x.ndim) if d not in (*collapsed, *batching)]


def start_of(b: Ints, indices: np.ndarray, numbers: dict, rank: int) -> list[int]:
    """Where the window of batch index b starts, not clamped."""
    vector = numbers["index_vector_dim"]
    start = [0] * rank
    for k, d in enumerate(numbers["start_index_map"]):
        start[d] = int(indices[(*b[:vector], k, *b[vector:])])
    pairs = zip(
        numbers["operand_batching_dims"], numbers["start_indices_batching_dims"], strict=True
    )
    for d, place in pairs:
        start[d] = b[place - (place > vector)]
    return start


def gather_case(c: Chance) -> tuple[np.ndarray, np.ndarray]:
    x, indices, numbers, window = gather_numbers(c)
    sizes = tuple(c.size(1, n) if d in window else 1 for d, n in enumerate(x.shape))
    batch_rank = indices.ndim - 1
    offsets = tuple(sorted(c.random.sample(range(batch_rank + len(window)), len(window))))
    numbers |= {"offset_dims": offsets, "slice_sizes": sizes}
    row = OPS["gather"]
    inferred = row.infer(shape_of(x), shape_of(indices), **taken("gather", **numbers))
    expected = np.zeros(inferred.dims, np.int32)
    for o in np.ndindex(*inferred.dims):
        b = tuple(i for at, i in enumerate(o) if at not in offsets)
        start = start_of(b, indices, numbers, x.ndim)
        place = [max(0, min(s, n - m)) for s, n, m in zip(start, x.shape, sizes, strict=True)]
        for at, d in zip(offsets, window, strict=True):
            place[d] += o[at]
        expected[o] = x[tuple(place)]
    return row.evaluate(
        x, indices, operand_shapes=(shape_of(x), shape_of(indices)), **taken("gather", **numbers)
    ), expected


def scatter_case(c: Chance) -> tuple[np.ndarray, np.ndarray]:
    x, indices, numbers, window = gather_numbers(c)
    batch_rank = indices.ndim - 1
    vector = numbers["index_vector_dim"]
    batch = [n for d, n in enumerate(indices.shape) if d != vector]
    windows = tuple(sorted(c.random.sample(range(batch_rank + len(window)), len(window))))
    dims, left = [], list(batch)
    sizes = dict(zip(windows, (c.size(1, x.shape[d]) for d in window), strict=True))
    for at in range(batch_rank + len(window)):
        dims.append(sizes[at] if at in sizes else left.pop(0))
    updates = c.array(tuple(dims))
    expected = x.copy()
    for b in np.ndindex(*batch):
        start = start_of(b, indices, numbers, x.ndim)
        span = [1] * x.ndim
        for at, d in zip(windows, window, strict=True):
            span[d] = updates.shape[at]
        if any(s < 0 or s + m > n for s, m, n in zip(start, span, x.shape, strict=True)):
            continue
        for w in np.ndindex(*(updates.shape[at] for at in windows)):
            place, source = list(start), list(b)
            for k, (at, d) in enumerate(zip(windows, window, strict=True)):
                place[d] += w[k]
                source.insert(at, w[k])
            expected[tuple(place)] = expected[tuple(place)] * 10 + updates[tuple(source)]
    row = OPS["scatter"]
    numbers = {
        "update_window_dims": windows, "inserted_window_dims": numbers["collapsed_slice_dims"],
        "scatter_dims_to_operand_dims": numbers["start_index_map"],
        "input_batching_dims": numbers["operand_batching_dims"],
        "scatter_indices_batching_dims": numbers["start_indices_batching_dims"],
        "index_vector_dim": vector, "indices_are_sorted": False, "unique_indices": False,
    }  # fmt: skip
    f = digits()
    shapes = (shape_of(x), shape_of(indices), shape_of(updates))
    assert row.infer(*shapes, **taken("scatter", to_apply=f.program_shape, **numbers)) == shape_of(
        x
    )
    return row.evaluate(x, indices, updates, **taken("scatter", to_apply=f, **numbers)), expected


def convolution_case(c: Chance) -> tuple[np.ndarray, np.ndarray]:
    spatial = c.size(0, 2)
    window = c.window(spatial)
    groups, batches = c.random.choice([(1, 1), (2, 1), (1, 2), (3, 1)])
    i, o, b = c.size(1, 2), c.size(1, 2) * groups * batches, c.size(1, 2) * batches
    orders = [c.permutation(spatial + 2) for _ in range(3)]
    labels = DimLabels(
        *(part for order in orders for part in (order[0], order[1], tuple(order[2:])))
    )
    lhs_sizes = (b, i * groups, *c.sizes(spatial, 0, 5))
    rhs_sizes = (i, o, *(d.size for d in window.dims))
    x, y = c.array(lhs_sizes), c.array(rhs_sizes)
    lhs, rhs = x.transpose(np.argsort(orders[0])), y.transpose(np.argsort(orders[1]))
    attributes = {
        "window": window, "dim_labels": labels, "feature_group_count": groups,
        "batch_group_count": batches, "convolution_kind": "unset", "operand_precision": (),
        "algorithm": "unset", "sparsity_config": None,
    }  # fmt: skip
    row = OPS["convolution"]
    inferred = row.infer(
        shape_of(lhs), shape_of(rhs), shape=None, **taken("convolution", **attributes)
    )
    expected = np.zeros(tuple(inferred.dims[d] for d in orders[2]), np.int32)
    for place in np.ndindex(*expected.shape):
        n, feature, *at = place
        g, h = feature // (o // groups), feature // (o // batches)
        for w, element in positions(tuple(at), window, x.shape[2:]):
            kernel = tuple(d.size - 1 - k if d.reversed else k
                           for k, d in zip(w, window.dims, strict=True))  # fmt: skip
            for k in range(i):
                source = x[(n + h * (b // batches), g * i + k, *element)]
                expected[place] += source * y[(k, feature, *kernel)]
    actual = row.evaluate(lhs, rhs, shape=inferred, **taken("convolution", **attributes))
    return actual, expected.transpose(np.argsort(orders[2]))


class TestFormulas:
    """One test per op; a failure names the seed."""

    builders: ClassVar[list[Callable[[Chance], tuple[np.ndarray, np.ndarray]]]] = [
        pad_case, reduce_case, reduce_window_case, windowed_sum_case, select_and_scatter_case,
        gather_case, scatter_case, convolution_case,
    ]  # fmt: skip

    @pytest.mark.parametrize("build", builders, ids=lambda f: f.__name__)
    def test_evaluation_follows_the_formula(self, build: Callable) -> None:
        for seed in range(CASES):
            with np.errstate(over="ignore"):
                actual, expected = build(Chance(seed))
            assert actual.shape == expected.shape, f"seed {seed}"
            assert np.array_equal(actual, expected), f"seed {seed}:\n{actual}\n{expected}"
