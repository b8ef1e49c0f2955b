"""Long reductions with few results are cut: in how many parts, and for the same numbers."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.parser.parse import parse
from hlo.passes.reduction.reduction_splitting import split_reductions
from tests.support.by_threads import for_threads
from tests.support.covering import covering


def norm(rows: int, columns: int) -> str:
    """x - mean(x) over the rows."""
    return f"""HloModule m
      sum {{ a = f32[] parameter(0)
        b = f32[] parameter(1)
        ROOT c = f32[] add(a, b) }}
      ENTRY e {{ x = f32[{rows},{columns}] parameter(0)
        z = f32[] constant(0)
        s = f32[{columns}] reduce(x, z), dimensions={{0}}, to_apply=sum
        n = f32[] constant({rows})
        ns = f32[{columns}] broadcast(n), dimensions={{}}
        mean = f32[{columns}] divide(s, ns)
        means = f32[{rows},{columns}] broadcast(mean), dimensions={{1}}
        ROOT d = f32[{rows},{columns}] subtract(x, means) }}"""


@pytest.mark.parametrize(
    ("rows", "columns", "is_cut"),
    [
        (6000, 64, True),  # few columns are one unit of a kernel
        (6000, 65, False),  # more of them run in parallel as they are
        (3000, 64, False),  # too little for two threads
        (40000, 3, True),  # a long reduction
    ],
)
def test_tall_reductions_of_few_columns_are_cut(rows: int, columns: int, *, is_cut: bool) -> None:
    module = parse(norm(rows, columns))
    assert split_reductions(module, module.entry) is is_cut
    reductions = [i for i in module.entry.instructions if i.opcode == "reduce"]
    assert len(reductions) == 1 + is_cut


@pytest.mark.parametrize("shape", [(6000, 64), (8192, 33), (30000, 10)])
def test_cut_reductions_give_the_same_bits_for_all_numbers_of_threads(
    shape: tuple[int, int],
) -> None:
    module = parse(norm(*shape))
    x = np.random.default_rng(3).integers(-8, 9, shape).astype(np.float32)  # sums are exact
    expected = driver.evaluate(module, x)
    for threads in (1, 2, 3, 7):
        found = for_threads(module, threads=threads)(x)
        assert np.array_equal(found, expected)  # type: ignore[arg-type]  # arrays


def whole(dtype: str, dims: tuple[int, ...], op: str, start: str) -> str:
    """A reduction of all squares."""
    shape = f"{dtype}[{','.join(map(str, dims))}]"
    return f"""HloModule m
      f {{ a = {dtype}[] parameter(0)
        b = {dtype}[] parameter(1)
        ROOT c = {dtype}[] {op}(a, b) }}
      ENTRY e {{ x = {shape} parameter(0)
        t = {shape} multiply(x, x)
        z = {dtype}[] constant({start})
        ROOT s = {dtype}[] reduce(t, z), dimensions={{{",".join(map(str, range(len(dims))))}}},
          to_apply=f }}"""


@pytest.mark.parametrize("dims", [(100003,), (331, 337), (65536 + 2,)])
def test_what_parts_leave_over_is_a_part_more(dims: tuple[int, ...]) -> None:
    module = parse(whole("f32", dims, "add", "0"))
    assert split_reductions(module, module.entry)
    joined = module.entry.root.operands[0]
    assert joined.opcode == "concatenate"
    parts, tail = joined.operands
    rows = parts.operands[0]
    assert rows.shape.dims[-1] % 64 == 0  # whole lines
    assert rows.operands[0].opcode == tail.opcode == "slice"
    assert rows.shape.size + tail.shape.size == module.entry.parameters[0].shape.size
    assert tail.shape.size < 64 * parts.shape.size


def test_a_divisor_that_leaves_nothing_over_is_taken() -> None:
    module = parse(whole("f32", (1 << 17,), "add", "0"))
    assert split_reductions(module, module.entry)
    assert not [i for i in module.entry.instructions if i.opcode == "slice"]


def test_rows_computed_by_rows_are_not_one_long_row() -> None:
    """Parts of odd rows: what is spread along rows would be found by division else."""
    text = whole("f32", (331, 337), "add", "0").replace(
        "t = f32[331,337] multiply(x, x)",
        "v = f32[331] parameter(1)\n w = f32[331,337] broadcast(v), dimensions={0}\n"
        "t = f32[331,337] multiply(x, w)",
    )
    module = parse(text)
    assert split_reductions(module, module.entry)
    parts, rest = module.entry.root.operands[0].operands
    assert parts.operands[0].shape.rank == 3
    assert rest.opcode == "reduce"


@pytest.mark.parametrize(
    ("dtype", "op", "start", "dims"),
    covering(
        [
            ("f32", "add", "3"),
            ("s32", "add", "-7"),
            ("f16", "maximum", "-inf"),
            ("f64", "minimum", "inf"),
        ],
        [(100003,), (331, 337), (5, 20011), (65536 + 2,)],
        strength=1,
        several=(0,),
    ),
)
def test_uneven_parts_give_the_same_bits(
    dtype: str, op: str, start: str, dims: tuple[int, ...]
) -> None:
    module = parse(whole(dtype, dims, op, start))
    dtypes = {"f32": np.float32, "s32": np.int32, "f16": np.float16, "f64": np.float64}
    x = np.random.default_rng(3).integers(-8, 9, dims).astype(dtypes[dtype])  # sums are exact
    expected = driver.evaluate(module, x)
    for threads in (1, 2, 3, 7):
        found = for_threads(module, threads=threads)(x)
        assert np.array_equal(found, expected)  # type: ignore[arg-type]  # arrays


def test_arg_max_of_a_prime_length_finds_the_first() -> None:
    n = 100003
    text = f"""HloModule m
      f {{ a = f32[] parameter(0)
        i = s32[] parameter(1)
        b = f32[] parameter(2)
        j = s32[] parameter(3)
        g = pred[] compare(a, b), direction=GT
        e = pred[] compare(a, b), direction=EQ
        l = pred[] compare(i, j), direction=LT
        t = pred[] and(e, l)
        p = pred[] or(g, t)
        v = f32[] select(p, a, b)
        k = s32[] select(p, i, j)
        ROOT r = (f32[], s32[]) tuple(v, k) }}
      ENTRY e {{ x = f32[{n}] parameter(0)
        y = s32[{n}] iota(), iota_dimension=0
        m = f32[] constant(-inf)
        z = s32[] constant(0)
        ROOT s = (f32[], s32[]) reduce(x, y, m, z), dimensions={{0}}, to_apply=f }}"""
    module = parse(text)
    for places in ([n - 1], [n - 2, n - 1], [70000, n - 1], [0, n - 1]):
        x = np.zeros(n, np.float32)
        x[places] = 5
        value, index = driver.compile(module, threads=2, cache=False)(x)  # type: ignore[misc]
        assert (value, index) == (5, places[0])


@pytest.mark.parametrize(("dtype", "opcode"), [("s32", "add"), ("bf16", "add"), ("f32", "maximum")])
def test_parts_start_from_a_constant_that_is_there(dtype: str, opcode: str) -> None:
    """Masked numbers are the reduction's first value: a kernel has the constant once."""
    first = "-inf" if opcode == "maximum" else "0"
    text = f"""HloModule m
      f {{ a = {dtype}[] parameter(0)
        b = {dtype}[] parameter(1)
        ROOT c = {dtype}[] {opcode}(a, b) }}
      ENTRY e {{ x = {dtype}[64,512] parameter(0)
        i = s32[64,512] iota(), iota_dimension=0
        j = s32[64,512] iota(), iota_dimension=1
        mask = pred[64,512] compare(i, j), direction=GE
        z = {dtype}[] constant({first})
        zs = {dtype}[64,512] broadcast(z), dimensions={{}}
        y = {dtype}[64,512] select(mask, x, zs)
        r = {dtype}[] reduce(y, z), dimensions={{0,1}}, to_apply=f
        s = {dtype}[] reduce(x, z), dimensions={{0,1}}, to_apply=f
        ROOT t = ({dtype}[], {dtype}[]) tuple(r, s) }}"""
    once = driver.optimize(parse(text))
    assert str(driver.optimize(once)) == str(once)
