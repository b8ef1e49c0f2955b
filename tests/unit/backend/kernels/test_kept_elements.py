"""What stages leave for later ones: all of it, nowhere else, and only where it was computed."""

import numpy as np
import pytest

from hlo import driver

DIMS = {"strip": (5, 41, 130), "columns": (41, 130), "row": (7, 131), "short row": (70, 13)}
REDUCED = {"strip": 1, "columns": 0, "row": 1, "short row": 1}


def braces(numbers: list[int]) -> str:
    return ",".join(map(str, numbers))


def changed(place: str, dim: int, size: int) -> str:
    """The dimensions with another size in one of them."""
    return braces([size if d == dim else n for d, n in enumerate(DIMS[place])])


def configuration(place: str, dim: int, edges: str) -> str:
    return "x".join(edges if d == dim else "0_0" for d in range(len(DIMS[place])))


def ranges(place: str, dim: int, range: str) -> str:
    return ", ".join(range if d == dim else f"[0:{n}]" for d, n in enumerate(DIMS[place]))


def minus_sum(place: str, size: int, moved: str) -> str:
    """tanh(x) - sum(moved tanh(x)), of which `size` elements are reduced."""
    dims, reduced = DIMS[place], REDUCED[place]
    kept = [d for d in range(len(dims)) if d != reduced]
    whole, small = braces(list(dims)), braces([dims[d] for d in kept])
    return f"""HloModule m
sum {{
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}}
fused {{
  x = f32[{whole}] parameter(0)
  zero = f32[] constant(0)
  t = f32[{whole}] tanh(x)
{moved}
  s = f32[{small}] reduce(p, zero), dimensions={{{reduced}}}, to_apply=sum
  sb = f32[{whole}] broadcast(s), dimensions={{{braces(kept)}}}
  ROOT r = f32[{whole}] subtract(t, sb)
}}
ENTRY e {{
  x = f32[{whole}] parameter(0)
  ROOT r = f32[{whole}] fusion(x), kind=kLoop, calls=fused
}}"""


def check(text: str) -> None:
    module = driver.parse(text)
    dims = module.entry.parameters[0].shape.dims
    x = np.random.default_rng(5).standard_normal(dims).astype(np.float32)
    found = driver.compile(module, cache=False).run_guarded(x)
    assert np.allclose(found, driver.evaluate(module, x), rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("place", DIMS)
@pytest.mark.parametrize("edges", [(1, 1), (1, -1), (-1, 1), (-1, -1)])
def test_stages_that_want_other_elements_of_a_row(place: str, edges: tuple[int, int]) -> None:
    dim = REDUCED[place]
    size = DIMS[place][dim] + sum(edges)
    padding = configuration(place, dim, f"{edges[0]}_{edges[1]}")
    padded = f"  p = f32[{changed(place, dim, size)}] pad(t, zero), padding={padding}"
    check(minus_sum(place, size, padded))


@pytest.mark.parametrize("place", DIMS)
@pytest.mark.parametrize("step", [1, 2])
def test_stages_that_want_fewer_elements_of_a_row(place: str, step: int) -> None:
    dim = REDUCED[place]
    limit = DIMS[place][dim] if step == 2 else DIMS[place][dim] // 2
    size = -(-limit // step)
    sliced = ranges(place, dim, f"[0:{limit}:{step}]")
    moved = f"  p = f32[{changed(place, dim, size)}] slice(t), slice={{{sliced}}}"
    check(minus_sum(place, size, moved))


@pytest.mark.parametrize("place", DIMS)
def test_stages_that_want_elements_in_some_columns_only(place: str) -> None:
    other = 0 if REDUCED[place] else len(DIMS[place]) - 1
    size = DIMS[place][other]
    moved = f"""  q = f32[{changed(place, other, size - 2)}] slice(t), \
slice={{{ranges(place, other, f"[1:{size - 1}]")}}}
  p = f32[{changed(place, other, size)}] pad(q, zero), \
padding={configuration(place, other, "1_1")}"""
    check(minus_sum(place, DIMS[place][REDUCED[place]], moved))


def test_stages_that_want_elements_in_some_lanes_only() -> None:
    moved = """  q = f32[5,41,128] slice(t), slice={[0:5], [0:41], [1:129]}
  p = f32[5,41,130] pad(q, zero), padding=0_0x0_0x1_1"""
    check(minus_sum("strip", 41, moved))


@pytest.mark.parametrize("padding", ["-1_3x-1_-1x0_20_0", "0_0x1_1x-3_200", "2_0x0_0x0_0"])
def test_folds_of_strips_beside_a_padded_operand_read_nothing(padding: str) -> None:
    sizes = [p.split("_") for p in padding.split("x")]
    dims = [n + int(e[0]) + int(e[1]) for n, e in zip((2, 33, 40), sizes, strict=True)]
    text = minus_sum("strip", 41, "").replace("5,41,130", "2,33,40").replace("5,130", "2,40")
    text = text.replace("reduce(p", "reduce(t").replace(
        "ROOT r = f32[2,33,40] sub", "d = f32[2,33,40] sub"
    )
    text = text.replace(
        "subtract(t, sb)",
        f"subtract(t, sb)\n  ROOT r = f32[{braces(dims)}] pad(d, zero), padding={padding}",
    )
    check(text.replace("ROOT r = f32[2,33,40] fusion", f"ROOT r = f32[{braces(dims)}] fusion"))


@pytest.mark.parametrize("dim", [0, 2])
def test_strips_beside_their_operand_have_the_stages_of_each_column(dim: int) -> None:
    dims = [9, 20, 21]
    joined = braces([2 * n if d == dim else n for d, n in enumerate(dims)])
    text = minus_sum("strip", 41, "").replace("5,41,130", "9,20,21").replace("5,130", "9,21")
    text = text.replace("reduce(p", "reduce(t").replace(
        "ROOT r = f32[9,20,21] sub", "d = f32[9,20,21] sub"
    )
    text = text.replace(
        "subtract(t, sb)",
        f"subtract(t, sb)\n  ROOT r = f32[{joined}] concatenate(d, x), dimensions={{{dim}}}",
    )
    check(text.replace("ROOT r = f32[9,20,21] fusion", f"ROOT r = f32[{joined}] fusion"))


def test_folds_inside_lanes_hold_their_conditions_in_one_lane() -> None:
    check("""HloModule m
max {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b)
}
fused {
  x = f32[65,130,3] parameter(0)
  zero = f32[] constant(0)
  m = f32[65,3] reduce(x, zero), dimensions={1}, to_apply=max
  p = f32[127,5] pad(m, zero), padding=-1_-1_1x0_0_1
  s = f32[127] reduce(p, zero), dimensions={1}, to_apply=max
  ROOT r = f32[172] pad(s, zero), padding=5_40
}
ENTRY e {
  x = f32[65,130,3] parameter(0)
  ROOT r = f32[172] fusion(x), kind=kLoop, calls=fused
}""")


def test_what_a_phase_leaves_is_not_read_at_other_places() -> None:
    check("""HloModule m
fused {
  x = f32[5000] parameter(0)
  zero = f32[] constant(0)
  a = f32[5000] tanh(x)
  b = f32[5000] exponential(a)
  c = f32[5000] log-plus-one(b)
  d = f32[5000] tanh(c)
  p = f32[5000] pad(b, zero), padding=-16_16
  f = f32[5000] exponential(d)
  g = f32[5000] add(f, b)
  h = f32[5000] cosine(g)
  i = f32[5000] sine(h)
  j = f32[5000] add(i, p)
  k = f32[5000] tanh(j)
  l = f32[5000] maximum(k, b)
  n = f32[5000] cosine(l)
  ROOT o = f32[5000] subtract(n, b)
}
ENTRY e {
  x = f32[5000] parameter(0)
  ROOT r = f32[5000] fusion(x), kind=kLoop, calls=fused
}""")


def test_what_reductions_of_reductions_leave_is_there_when_the_outer_one_ends() -> None:
    text = """HloModule m
sum {
  a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b)
}
fused {
  x = f32[3,2,40] parameter(0)
  zero = f32[] constant(0)
  t = f32[3,2,40] tanh(x)
  s = f32[2] reduce(t, zero), dimensions={0,2}, to_apply=sum
  q = f32[] reduce(s, zero), dimensions={0}, to_apply=sum
  qb = f32[3,2,40] broadcast(q), dimensions={}
  ROOT r = f32[3,2,40] subtract(t, qb)
}
ENTRY e {
  x = f32[3,2,40] parameter(0)
  ROOT r = f32[3,2,40] fusion(x), kind=kInput, calls=fused
}"""
    check(text)
