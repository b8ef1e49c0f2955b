"""Collectives over several devices: the worked examples of docs/control.md 2."""

import numpy as np
import pytest

from hlo.errors import HloError
from hlo.interpreter.evaluate import evaluate_devices
from hlo.ir.dtype import DTYPES
from hlo.parser.parse import parse

ADD = """
add {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT r = f32[] add(a, b)
}
"""


def run(root: str, arguments: list[list[np.ndarray]], replicas: int, *, partitions: int = 1,
        shapes: str = "f32[]", computations: str = ADD) -> list[object]:  # fmt: skip
    """The results of all devices for an entry with parameters p0, p1, ... and one instruction."""
    parameters = "\n".join(
        f"  p{k} = {shape} parameter({k})" for k, shape in enumerate(shapes.split())
    )
    text = f"HloModule m\n{computations}\nENTRY e {{\n{parameters}\n  ROOT r = {root}\n}}\n"
    return evaluate_devices(parse(text), arguments, replicas=replicas, partitions=partitions)


def powers() -> list[list[np.ndarray]]:
    """10^g on device g of 2 x 2."""
    return [[np.array(10**g, np.float32)] for g in range(4)]


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("replica_groups={{0,1}}", [101, 1010, 101, 1010]),
        ("replica_groups={}", [101, 1010, 101, 1010]),
        ("channel_id=1, replica_groups={{0,1}}", [1111, 1111, 1111, 1111]),
        ("channel_id=1, replica_groups={{0},{1}}", [11, 11, 1100, 1100]),
        (
            "channel_id=1, use_global_device_ids=true, replica_groups={{0,3},{2,1}}",
            [1001, 110, 110, 1001],
        ),
        (
            "channel_id=1, use_global_device_ids=true, replica_groups=[2,2]<=[2,2]T(1,0)",
            [101, 1010, 101, 1010],
        ),
    ],
)
def test_all_reduce_in_every_group_mode(attributes: str, expected: list[int]) -> None:
    results = run(f"f32[] all-reduce(p0), {attributes}, to_apply=add", powers(), 2, partitions=2)
    assert results == expected


def test_all_gather_in_the_order_of_the_group() -> None:
    inputs = [[np.array([10**g], np.float32)] for g in range(4)]
    root = "f32[4] all-gather(p0), channel_id=1, replica_groups={{1,0}}, dimensions={0}"
    results = run(root, inputs, 2, partitions=2, shapes="f32[1]")
    assert [r.tolist() for r in results] == [[100, 1000, 1, 10]] * 4


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("channel_id=1, source_target_pairs={{0,1},{1,0}}", [10, 1, 1000, 100]),
        ("source_target_pairs={{0,1}}", [0, 0, 1, 10]),
        ("source_target_pairs={}", [0, 0, 0, 0]),
    ],
)
def test_collective_permute(attributes: str, expected: list[int]) -> None:
    results = run(f"f32[] collective-permute(p0), {attributes}", powers(), 2, partitions=2)
    assert results == expected


def test_all_reduce_adds_in_rank_order_from_zero() -> None:
    values = [1e8, 1, -1e8, 1]
    inputs = [[np.array(v, np.float32)] for v in values]
    results = run("f32[] all-reduce(p0), replica_groups={{3,1,0,2}}, to_apply=add", inputs, 4)
    assert results == [0, 0, 0, 0]


def test_all_reduce_of_negative_zeros_is_positive() -> None:
    inputs = [[np.array(-0.0, np.float32)]] * 2
    results = run("f32[] all-reduce(p0), replica_groups={}, to_apply=add", inputs, 2)
    assert not np.signbit(results).any()


def test_all_reduce_calls_any_computation() -> None:
    digits = """
    digits {
      a = f32[] parameter(0)
      b = f32[] parameter(1)
      ten = f32[] constant(10)
      t = f32[] multiply(ten, a)
      ROOT r = f32[] add(t, b)
    }
    """
    inputs = [[np.array(v, np.float32)] for v in (1, 2, 3)]
    root = "f32[] all-reduce(p0), replica_groups={{2,0,1}}, to_apply=digits"
    assert run(root, inputs, 3, computations=digits) == [312, 312, 312]


def test_reduce_scatter_gives_rank_k_block_k() -> None:
    inputs = [[np.arange(4, dtype=np.float32) + 10 * g] for g in range(4)]
    root = "f32[2] reduce-scatter(p0), replica_groups={{2,0},{3,1}}, dimensions={0}, to_apply=add"
    results = run(root, inputs, 4, shapes="f32[4]")
    assert [r.tolist() for r in results] == [[24, 26], [44, 46], [20, 22], [40, 42]]


def test_all_to_all_of_an_array() -> None:
    inputs = [[np.arange(4, dtype=np.float32) + 10 * g] for g in range(2)]
    root = "f32[4] all-to-all(p0), replica_groups={{1,0}}, dimensions={0}"
    results = run(root, inputs, 2, shapes="f32[4]")
    assert [r.tolist() for r in results] == [[12, 13, 2, 3], [10, 11, 0, 1]]


def test_all_to_all_of_a_tuple() -> None:
    inputs = [[np.array(g + 1, np.float32), np.array(2 * (g + 1), np.float32)] for g in range(4)]
    root = "(f32[], f32[]) all-to-all(p0, p1), replica_groups={{2,0},{1,3}}"
    results = run(root, inputs, 4, shapes="f32[] f32[]")
    assert results[0] == (6, 2)
    assert results[2] == (3, 1)


def test_ragged_all_to_all() -> None:
    def ints(*values: int) -> np.ndarray:
        return np.array(values, np.int32)

    rows = [
        (ints(1, 2, 2), ints(0, 1), ints(1, 2), ints(0, 0), ints(1, 1)),
        (ints(3, 4, 0), ints(0, 1), ints(1, 1), ints(1, 2), ints(2, 1)),
    ]
    inputs = [[row[0], ints(0, 0, 0, 0), *row[1:]] for row in rows]
    root = "s32[4] ragged-all-to-all(p0, p1, p2, p3, p4, p5), replica_groups={{0,1}}"
    shapes = "s32[3] s32[4] s32[2] s32[2] s32[2] s32[2]"
    results = run(root, inputs, 2, shapes=shapes)
    assert [r.tolist() for r in results] == [[1, 3, 0, 0], [2, 2, 4, 0]]


def test_ragged_all_to_all_refuses_sizes_that_differ() -> None:
    one, zero = np.array([1], np.int32), np.array([0], np.int32)
    data = np.array([1, 2], np.float32)
    root = "f32[2] ragged-all-to-all(p0, p1, p2, p3, p4, p5), replica_groups={}"
    shapes = "f32[2] f32[2] s32[1] s32[1] s32[1] s32[1]"
    with pytest.raises(HloError, match="as are sent"):
        run(root, [[data, data, zero, one, zero, zero]], 1, shapes=shapes)


def test_collective_broadcast_from_the_first_of_a_group() -> None:
    inputs = [[np.array(g + 1, np.float32)] for g in range(4)]
    results = run("f32[] collective-broadcast(p0), replica_groups={{2,0},{1}}", inputs, 4)
    assert results == [3, 2, 3, 0]


def test_collective_broadcast_with_a_dynamic_root() -> None:
    inputs = [[np.array(g + 1, np.float32), np.array([1], np.int32)] for g in range(2)]
    root = "f32[] collective-broadcast(p0, p1), replica_groups={{0,1}}, has_dynamic_root=true"
    assert run(root, inputs, 2, shapes="f32[] s32[1]") == [2, 2]


def test_permute_in_place() -> None:
    x, y = np.arange(4, dtype=np.float32), np.zeros(4, np.float32)
    inputs = [[x + 10 * g, y, np.array(1, np.int32), np.array(2, np.int32)] for g in range(2)]
    text = """HloModule m
ENTRY e {
  p0 = f32[4] parameter(0)
  p1 = f32[4] parameter(1)
  i = s32[] parameter(2)
  j = s32[] parameter(3)
  from = (s32[]) tuple(i)
  to = (s32[]) tuple(j)
  ROOT r = f32[4] collective-permute(p0, p1, from, to), source_target_pairs={{0,1}},
    slice_sizes={{2}}
}"""
    results = evaluate_devices(parse(text), inputs, replicas=2)
    assert [r.tolist() for r in results] == [[0, 0, 0, 0], [0, 0, 1, 2]]


def test_ids() -> None:
    root = "(u32[], u32[]) tuple(r1, r2)"
    text = "HloModule m\nENTRY e {\n  r1 = u32[] replica-id()\n  r2 = u32[] partition-id()\n"
    module = parse(f"{text}  ROOT r = {root}\n}}")
    results = evaluate_devices(module, [[]] * 4, replicas=2, partitions=2)
    assert results == [(0, 0), (0, 1), (1, 0), (1, 1)]


def test_device_in_no_group_is_an_error() -> None:
    inputs = [[np.array(1, np.float32)]] * 2
    with pytest.raises(HloError, match="without replica 1"):
        run("f32[] all-reduce(p0), replica_groups={{0}}, to_apply=add", inputs, 2)


@pytest.mark.parametrize(
    ("dtype", "opcode", "values", "expected"),
    [
        ("bf16", "add", [256, 1, 1, 1], 260),  # f32 inside, one rounding
        ("s8", "add", [100, 100, 100, 100], -112),
        ("f32", "maximum", [0, np.nan, 2, 3], np.nan),  # XLA:CPU drops the NaN
        ("pred", "and", [1, 1, 0, 1], False),
        ("s32", "xor", [1, 2, 4, 8], 15),
    ],
)
def test_all_reduce_by_type_and_operation(
    dtype: str, opcode: str, values: list[float], expected: object
) -> None:
    f = f"f {{ a = {dtype}[] parameter(0) b = {dtype}[] parameter(1) ROOT r = {dtype}[] {opcode}(a, b) }}"  # noqa: E501  # a program
    numpy = DTYPES[dtype].numpy
    inputs = [[np.array(v, np.float32).astype(numpy)] for v in values]
    root = f"{dtype}[] all-reduce(p0), replica_groups={{}}, to_apply=f"
    results = run(root, inputs, 4, shapes=f"{dtype}[]", computations=f)
    for result in results:
        np.testing.assert_equal(np.asarray(result).astype(np.float64), float(expected))


def test_async_forms_give_the_synchronous_results() -> None:
    text = f"""HloModule m
{ADD}
ENTRY e {{
  x = f32[1] parameter(0)
  g = (f32[1], f32[2]) all-gather-start(x), replica_groups={{}}, dimensions={{0}}
  h = f32[2] all-gather-done(g)
  s = f32[2] all-reduce-start(h), replica_groups={{}}, to_apply=add
  t = f32[2] all-reduce-done(s)
  p = (f32[2], f32[2], u32[], u32[]) collective-permute-start(t), source_target_pairs={{{{0,1}}}}
  ROOT q = f32[2] collective-permute-done(p)
}}"""
    inputs = [[np.array([v], np.float32)] for v in (1, 2)]
    results = evaluate_devices(parse(text), inputs, replicas=2)
    assert [r.tolist() for r in results] == [[0, 0], [2, 4]]
