"""The interpreter's own behaviour: order, effects, limits, errors, results that alias nothing."""

import numpy as np
import pytest

from hlo.errors import HloError
from hlo.interpreter.evaluate import evaluate
from hlo.parser.parse import parse

COUNT_FOREVER = """
HloModule forever

always {
  i = s32[] parameter(0)
  ROOT r = pred[] constant(true)
}

next {
  i = s32[] parameter(0)
  one = s32[] constant(1)
  ROOT r = s32[] add(i, one)
}

ENTRY e {
  zero = s32[] constant(0)
  ROOT w = s32[] while(zero), condition=always, body=next
}
"""


def run(text: str, *arguments: object) -> object:
    return evaluate(parse(text), *arguments)


def test_endless_loop_ends_at_max_steps() -> None:
    with pytest.raises(HloError) as caught:
        evaluate(parse(COUNT_FOREVER, "forever.hlo"), max_steps=100)
    assert caught.value.code == "max-steps"
    assert "while: w goes on after 100 iterations" in caught.value.message
    assert caught.value.line == 17


def test_returned_parameter_is_a_copy() -> None:
    x = np.arange(3, dtype=np.float32)
    result = run("HloModule m\nENTRY e { ROOT x = f32[3] parameter(0) }", x)
    assert isinstance(result, np.ndarray)
    assert not np.shares_memory(result, x)


def test_one_value_at_two_leaves_is_two_arrays() -> None:
    text = """HloModule m
ENTRY e { x = f32[3] parameter(0) y = f32[3] negate(x) ROOT t = (f32[3], f32[3]) tuple(y, y) }"""
    first, second = run(text, np.ones(3, np.float32))  # type: ignore[misc]  # a tuple
    assert not np.shares_memory(first, second)
    assert first.flags.writeable


def test_constant_results_can_be_written() -> None:
    result = run("HloModule m\nENTRY e { ROOT c = f32[2] constant({1, 2}) }")
    assert isinstance(result, np.ndarray)
    result[0] = 5
    assert run("HloModule m\nENTRY e { ROOT c = f32[2] constant({1, 2}) }").tolist() == [1, 2]  # type: ignore[attr-defined]  # an array


def test_result_has_the_entry_layout() -> None:
    text = """HloModule m, entry_computation_layout={(f32[2,3]{1,0})->f32[2,3]{0,1}}
ENTRY e { x = f32[2,3] parameter(0) ROOT y = f32[2,3]{0,1} copy(x) }"""
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = run(text, x)
    assert isinstance(result, np.ndarray)
    assert result.flags.f_contiguous
    assert (result == x).all()


def test_unneeded_faults_do_not_run() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  unused = f32[2] custom-call(x), custom_call_target="nothing_of_that_name"
  ROOT y = f32[2] negate(x)
}"""
    assert run(text, np.ones(2, np.float32)).tolist() == [-1, -1]  # type: ignore[attr-defined]  # an array


def test_effects_run_though_nothing_uses_them() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[2] parameter(0)
  unused = f32[2] custom-call(x), custom_call_target="nothing", custom_call_has_side_effect=true
  ROOT y = f32[2] negate(x)
}"""
    with pytest.raises(HloError, match='custom_call_target is "nothing"'):
        run(text, np.ones(2, np.float32))


def test_effects_inside_a_called_computation_run() -> None:
    text = """HloModule m
feed {
  x = f32[2] parameter(0)
  t = token[] after-all()
  o = token[] outfeed(x, t)
  ROOT r = s32[] constant(3)
}
ENTRY e {
  x = f32[2] parameter(0)
  c = s32[] call(x), to_apply=feed
  ROOT y = f32[2] negate(x)
}"""
    fed: list[object] = []
    evaluate(parse(text), np.ones(2, np.float32), outfeed=fed)
    assert len(fed) == 1
    assert fed[0].tolist() == [1, 1]  # type: ignore[attr-defined]  # an array


def test_infeed_gives_values_in_order_and_says_when_it_is_empty() -> None:
    text = """HloModule m
ENTRY e {
  t = token[] after-all()
  a = (s32[], token[]) infeed(t)
  u = token[] get-tuple-element(a), index=1
  b = (s32[], token[]) infeed(u)
  x = s32[] get-tuple-element(a), index=0
  y = s32[] get-tuple-element(b), index=0
  ROOT r = s32[] subtract(x, y)
}"""
    module = parse(text)
    assert evaluate(module, infeed=[7, 3]) == np.int32(4)
    with pytest.raises(HloError, match="infeed: b finds no value"):
        evaluate(module, infeed=[7])


def test_deep_call_chains_end_with_an_error() -> None:
    rows = ["g0 { x = f32[] parameter(0) ROOT y = f32[] negate(x) }"]
    for i in range(1, 400):
        body = f"ROOT y = f32[] call(x), to_apply=g{i - 1}"
        rows.append(f"g{i} {{ x = f32[] parameter(0) {body} }}")
    text = "HloModule m\n" + "\n".join(rows)
    entry = "\nENTRY e { x = f32[] parameter(0) ROOT y = f32[] call(x), to_apply=g%d }"
    assert run(text + entry % 250, 2.0) == np.float32(-2)
    with pytest.raises(HloError, match="calls deep") as caught:
        run(text + entry % 399, 2.0)
    assert caught.value.code == "limit"


def test_long_chains_do_not_recurse() -> None:
    rows = ["x0 = f32[] parameter(0)"] + [f"x{i} = f32[] negate(x{i - 1})" for i in range(1, 20001)]
    assert run("HloModule m\nENTRY e {\n" + "\n".join(rows) + "\n}", 2.0) == np.float32(2)


def test_random_numbers_follow_from_the_seed() -> None:
    text = """HloModule m
ENTRY e {
  a = f32[] constant(0)
  b = f32[] constant(1)
  ROOT r = f32[1000] rng(a, b), distribution=rng_normal
}"""
    module = parse(text)
    first, again, other = (evaluate(module, seed=s) for s in (1, 1, 2))
    assert isinstance(first, np.ndarray)
    assert (first == again).all()
    assert (first != other).any()
    assert abs(float(first.mean())) < 0.15
    assert abs(float(first.std()) - 1) < 0.1


def test_dynamic_dimension_is_cut_to_its_size() -> None:
    text = """HloModule m
add { a = f32[] parameter(0) b = f32[] parameter(1) ROOT r = f32[] add(a, b) }
ENTRY e {
  x = f32[<=4] parameter(0)
  y = f32[<=4] negate(x)
  zero = f32[] constant(0)
  s = f32[] reduce(x, zero), dimensions={0}, to_apply=add
  ROOT t = (f32[<=4], f32[]) tuple(y, s)
}"""
    y, s = run(text, np.array([1, 2, 3], np.float32))  # type: ignore[misc]  # a tuple
    assert y.tolist() == [-1, -2, -3]
    assert s == 6


def test_progress_hears_of_every_step() -> None:
    heard: list[tuple[int, int]] = []
    text = """HloModule m
ENTRY e { x = f32[] parameter(0) y = f32[] negate(x) ROOT z = f32[] add(y, y) }"""
    evaluate(parse(text), 1.0, progress=lambda done, total: heard.append((done, total)))
    assert heard == [(0, 2), (1, 2)]


def test_seed_of_the_run_can_be_read() -> None:
    text = """HloModule m
ENTRY e { ROOT s = u64[] custom-call(), custom_call_target="GetRngSeed" }"""
    assert evaluate(parse(text), seed=42) == np.uint64(42)


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (
            "f { x = f32[] parameter(0)\n y = f32[] parameter(1)\n ROOT z = f32[] add(x, y) }\n"
            "ENTRY e { a = f32[<=5] parameter(0)\n b = f32[<=5] parameter(1)\n"
            " ROOT c = f32[<=5] map(a, b), dimensions={0}, to_apply=f }",
            (1, 4),
        ),
        (
            "f { x = f32[] parameter(0)\n ROOT y = f32[] parameter(1) }\n"
            "ENTRY e { a = f32[5] parameter(0)\n u = f32[<=3] parameter(1)\n"
            " i = s32[3] iota(), iota_dimension=0\n"
            " ROOT c = f32[5] scatter(a, i, u), update_window_dims={}, inserted_window_dims={0},"
            " scatter_dims_to_operand_dims={0}, index_vector_dim=1, to_apply=f }",
            (5, 2),
        ),
    ],
)
def test_dynamic_sizes_that_do_not_fit_are_an_error(text: str, sizes: tuple[int, int]) -> None:
    module = parse(f"HloModule m\n{text}")
    with pytest.raises(HloError, match="dynamic sizes are such that"):
        evaluate(module, *(np.zeros(n, np.float32) for n in sizes))
