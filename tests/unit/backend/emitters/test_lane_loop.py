"""Lane loops: the reference's bits, whatever sizes, types and threads; and that they stop."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.analysis.while_loops.lane_loops import lane_loop
from hlo.errors import HloError
from hlo.ir.module import Module
from tests.support.by_threads import for_threads

OR = "or { a = pred[] parameter(0); b = pred[] parameter(1); ROOT r = pred[] or(a, b) }"


def program(
    dims: str, dtype: str, going: str, step: str, *, most: int = 50, result: str = "x"
) -> str:
    """A loop over x, beside k, which no trip changes, and n, which counts an element's trips.

    going: which elements go on, `p`; step: what x becomes, `y`, where they do.
    """
    state = f"(s32[], {dtype}[{dims}], {dtype}[{dims}], s32[{dims}])"
    elements = f"""
  s = {state} parameter(0); i = s32[] get-tuple-element(s), index=0
  x = {dtype}[{dims}] get-tuple-element(s), index=1
  k = {dtype}[{dims}] get-tuple-element(s), index=2
  n = s32[{dims}] get-tuple-element(s), index=3
  {going}"""
    taken = {"x": 1, "n": 3}[result]
    kind = {"x": dtype, "n": "s32"}[result]
    reduced = ",".join(map(str, range(dims.count(",") + 1)))
    text = f"""HloModule m
{OR}
body {{{elements}
  {step}
  z = {dtype}[{dims}] select(p, y, x)
  c = s32[{dims}] convert(p); m = s32[{dims}] add(n, c)
  one = s32[] constant(1); j = s32[] add(i, one)
  ROOT t = {state} tuple(j, z, k, m)
}}
condition {{{elements}
  no = pred[] constant(false); most = s32[] constant({most})
  any = pred[] reduce(p, no), dimensions={{{reduced}}}, to_apply=or
  l = pred[] compare(i, most), direction=LT
  ROOT r = pred[] and(l, any)
}}
ENTRY e {{
  x = {dtype}[{dims}] parameter(0); k = {dtype}[{dims}] parameter(1)
  i = s32[] constant(0); n = s32[{dims}] broadcast(i), dimensions={{}}
  s = {state} tuple(i, x, k, n)
  w = {state} while(s), condition=condition, body=body
  ROOT r = {kind}[{dims}] get-tuple-element(w), index={taken}
}}
"""
    return text.replace("; ", "\n  ")


def growing(dims: str, dtype: str, **others: object) -> str:
    """x grows by k and its half, as long as it is less than k."""
    t = f"{dtype}[{dims}]"
    going = f"p = pred[{dims}] compare(x, k), direction=LT"
    step = f"two = {t} add(k, k); q = {t} divide(x, two); h = {t} add(x, q); y = {t} add(h, q)"
    return program(dims, dtype, going, step, **others)  # type: ignore[arg-type]


def is_proved(module: Module) -> bool:
    """Whether the loop of such a program is one of lanes."""
    (loop,) = (i for i in module.entry.instructions if i.opcode == "while")
    return lane_loop(loop) is not None


def arguments(module: Module) -> list[np.ndarray]:
    """Numbers from -3 to 9, and a NaN where there are any."""
    rng = np.random.default_rng(3)
    found = []
    for parameter in module.entry.parameters:
        shape = parameter.shape
        values = rng.uniform(-3, 9, shape.dims)
        if not shape.dtype.is_integral:
            values.reshape(-1)[shape.size // 2] = np.nan
        found.append(values.astype(shape.dtype.numpy))
    return found


@pytest.mark.parametrize("dims", ["16", "17", "37", "1000", "3,21", "5,7,9", "40,64", "2,3000"])
@pytest.mark.parametrize("result", ["x", "n"])
def test_every_size_has_the_bits_of_the_reference(dims: str, result: str) -> None:
    module = hlo.parse(growing(dims, "f32", result=result))
    assert is_proved(module)
    given = arguments(module)
    expected = np.asarray(hlo.evaluate(module, *given))
    for threads in (1, 2, 3):
        found = np.asarray(for_threads(module, threads=threads)(*given))
        assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ["f64", "bf16", "f16", "s32", "s8", "u16", "s64"])
def test_every_type_has_the_bits_of_the_reference(dtype: str) -> None:
    module = hlo.parse(growing("100", dtype))
    given = [np.abs(x) + x.dtype.type(1) for x in arguments(module)]
    expected = np.asarray(hlo.evaluate(module, *given))
    found = np.asarray(hlo.compile(module)(*given))
    assert found.tobytes() == expected.tobytes()


def test_complex_numbers_stay_in_lanes() -> None:
    going = (
        "a = f32[50] abs(x); two = f32[] constant(2); twos = f32[50] broadcast(two), dimensions={}"
        "; p = pred[50] compare(a, twos), direction=LE"
    )
    step = "sq = c64[50] multiply(x, x); y = c64[50] add(sq, k)"
    module = hlo.parse(program("50", "c64", going, step, result="n"))
    rng = np.random.default_rng(0)
    given = [(rng.normal(size=50) + 1j * rng.normal(size=50)).astype(np.complex64)] * 2
    expected = np.asarray(hlo.evaluate(module, *given))
    assert np.array_equal(np.asarray(hlo.compile(module)(*given)), expected)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_loop_without_an_end_is_stopped(threads: int) -> None:
    """One element goes on for ever, one of the last lanes, which are no full vector."""
    module = hlo.parse(growing("4099", "f32", most=2**31 - 1))
    run = for_threads(module, threads=threads)
    x = np.ones(4099, np.float32)
    k = np.ones(4099, np.float32)
    assert np.array_equal(run(x, k), x)
    x[4098] = -(2.0**-140)
    with pytest.raises(HloError) as stopped:
        run(x, np.full(4099, 0, np.float32), timeout=0.2)
    assert stopped.value.code == "timeout"


# -- what is proved ----------------------------------------------------------------------------


def proved(going: str, step: str) -> bool:
    """Whether a loop with such a step is one of lanes."""
    return is_proved(hlo.parse(program("40", "f32", going, step)))


GOING = "p = pred[40] compare(x, k), direction=LT"
STEP = "y = f32[40] add(x, k)"


def test_what_is_done_stays() -> None:
    assert proved(GOING, STEP)


def test_the_predicate_may_be_a_part_of_the_selects() -> None:
    both = "q = pred[40] compare(x, x), direction=EQ; b = pred[40] compare(x, k), direction=LT; "
    assert proved(both + "p = pred[40] and(q, b)", STEP)


def test_a_predicate_of_the_counter_changes() -> None:
    counted = "b = s32[40] broadcast(i), dimensions={}; p = pred[40] compare(n, b), direction=LE"
    assert not proved(counted, STEP)


def test_a_body_that_moves_elements_is_none_of_lanes() -> None:
    assert not proved(GOING, "y = f32[40] reverse(x), dimensions={0}")
    assert not proved(GOING, "y = f32[40] iota(), iota_dimension=0")


def test_places_first_found_in_a_trip_are_found_again_behind_the_loop() -> None:
    """Rows of pairs are read in the loop and the result is written behind it, at the same places:
    what a trip alone makes does not reach there.
    """
    state = "(s64[], c128[600], c128[3,600])"
    text = f"""HloModule m
body {{
  s = {state} parameter(0)
  i = s64[] get-tuple-element(s), index=0
  a = c128[600] get-tuple-element(s), index=1
  t = c128[3,600] get-tuple-element(s), index=2
  one = s64[] constant(1)
  n = s64[] add(i, one)
  z = s64[] constant(0)
  r = c128[1,600] dynamic-slice(t, i, z), dynamic_slice_sizes={{1,600}}
  q = c128[600] reshape(r)
  b = c128[600] add(a, q)
  ROOT o = {state} tuple(n, b, t)
}}
cond {{
  s = {state} parameter(0)
  i = s64[] get-tuple-element(s), index=0
  three = s64[] constant(3)
  ROOT c = pred[] compare(i, three), direction=LT
}}
ENTRY e {{
  t = c128[3,600] parameter(0)
  z = s64[] constant(0)
  f = c128[] constant((0, 0))
  a = c128[600] broadcast(f), dimensions={{}}
  s = {state} tuple(z, a, t)
  w = {state} while(s), condition=cond, body=body
  ROOT r = c128[600] get-tuple-element(w), index=1
}}
"""
    module = hlo.parse(text)
    table = np.arange(1800.0).reshape(3, 600) * (1 + 2j)
    found = np.asarray(hlo.compile(module, cache=False)(table))
    np.testing.assert_array_equal(found, np.asarray(hlo.evaluate(module, table)))


def test_an_array_that_stays_may_become_another_one() -> None:
    """Elements that nothing but the root reads are handed on unread, unless to another place."""
    state = "(s64[], u8[254], u8[254])"
    text = f"""HloModule m
body {{
  s = {state} parameter(0)
  i = s64[] get-tuple-element(s), index=0
  one = s64[] constant(1)
  n = s64[] add(i, one)
  k = u8[254] get-tuple-element(s), index=2
  ROOT o = {state} tuple(n, k, k)
}}
cond {{
  s = {state} parameter(0)
  i = s64[] get-tuple-element(s), index=0
  five = s64[] constant(5)
  ROOT c = pred[] compare(i, five), direction=LT
}}
ENTRY e {{
  a = u8[254] parameter(0)
  b = u8[254] negate(a)
  z = s64[] constant(0)
  s = {state} tuple(z, a, b)
  w = {state} while(s), condition=cond, body=body
  ROOT r = u8[254] get-tuple-element(w), index=1
}}
"""
    module = hlo.parse(text)
    given = np.arange(254, dtype=np.uint8)
    found = np.asarray(hlo.compile(module, cache=False)(given))
    np.testing.assert_array_equal(found, np.negative(given))


COUNTED = """HloModule m
less { a = f32[] parameter(0); b = f32[] parameter(1)
  ROOT r = pred[] compare(a, b), direction=LT }
body { s = (s32[], f32[3,4]) parameter(0); i = s32[] get-tuple-element(s), index=0
  x = f32[3,4] get-tuple-element(s), index=1; one = s32[] constant(1)
  j = s32[] add(i, one); y = f32[3,4] STEP; ROOT t = (s32[], f32[3,4]) tuple(j, y) }
going { s = (s32[], f32[3,4]) parameter(0); i = s32[] get-tuple-element(s), index=0
  k = s32[] constant(3); ROOT r = pred[] compare(i, k), direction=LT }
held { x = f32[3,4] parameter(0); z = s32[] constant(0); s = (s32[], f32[3,4]) tuple(z, x)
  w = (s32[], f32[3,4]) while(s), condition=going, body=body
  i = s32[] get-tuple-element(w), index=0; y = f32[3,4] get-tuple-element(w), index=1
  ROOT r = (s32[], f32[3,4]) tuple(i, y) }
ENTRY e { x = f32[3,4] parameter(0)
  ROOT r = (s32[], f32[3,4]) fusion(x), kind=kLoop, calls=held }
""".replace("; ", "\n  ")


@pytest.mark.parametrize("passes", ["", "default"])
@pytest.mark.parametrize("step", ["negate(x)", "sort(x), dimensions={1}, to_apply=less"])
def test_a_given_fusion_that_gives_a_loops_counter(step: str, passes: str) -> None:
    module = hlo.parse(COUNTED.replace("STEP", step))
    x = np.float32([[3, 1, 2, 0], [7, 5, 6, 4], [9, 11, 8, 10]])
    trips, found = hlo.compile(module, passes=passes, cache=False)(x)  # type: ignore[misc]  # a tuple
    assert trips == 3
    np.testing.assert_array_equal(found, -x if step == "negate(x)" else np.sort(x, 1))
