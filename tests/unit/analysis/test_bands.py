"""Bands hold every place where a predicate of counted indices holds."""

import numpy as np
import pytest

import hlo
from hlo.analysis.bands import ALL, FAR, NOWHERE, Band, Truth, bands_of, live_band
from hlo.ir.module import Module

ROWS, COLUMNS = 5, 7
COUNTED = """
  i = s32[5] iota(), iota_dimension=0
  j = s32[7] iota(), iota_dimension=0
  r = s32[5,7] broadcast(i), dimensions={0}
  c = s32[5,7] broadcast(j), dimensions={1}
  t = s32[] constant(2)
  two = s32[5,7] broadcast(t), dimensions={}
  further = s32[5,7] add(r, two)
  nearer = s32[5,7] subtract(r, two)
  apart = s32[5,7] subtract(c, r)
"""
PREDICATES = {
    "lower": "p = pred[5,7] compare(r, c), direction=GE",
    "upper": "p = pred[5,7] compare(r, c), direction=LT",
    "shifted": "p = pred[5,7] compare(further, c), direction=GT",
    "exchanged": "p = pred[5,7] compare(c, nearer), direction=LE",
    "diagonal": "p = pred[5,7] compare(r, c), direction=EQ",
    "off_diagonal": "p = pred[5,7] compare(apart, two), direction=NE",
    "window": """a = pred[5,7] compare(c, nearer), direction=GE
      b = pred[5,7] compare(c, further), direction=LT
      p = pred[5,7] and(a, b)""",
    "outside": """a = pred[5,7] compare(c, nearer), direction=GE
      b = pred[5,7] compare(c, further), direction=LT
      w = pred[5,7] and(a, b)
      p = pred[5,7] not(w)""",
    "two_sides": """a = pred[5,7] compare(c, nearer), direction=LT
      b = pred[5,7] compare(c, further), direction=GE
      p = pred[5,7] or(a, b)""",
    "joined": """a = pred[5,7] compare(r, c), direction=GE
      b = pred[5,7] compare(c, further), direction=LE
      p = pred[5,7] or(a, b)""",
    "never": """a = pred[5,7] compare(r, c), direction=GT
      b = pred[5,7] compare(r, c), direction=LT
      p = pred[5,7] and(a, b)""",
    "in_other_types": """a = s64[5,7] convert(further)
      b = s64[5,7] convert(c)
      p = pred[5,7] compare(a, b), direction=GE""",
    "negated": """a = s32[5,7] negate(apart)
      p = pred[5,7] compare(a, two), direction=LT""",
    "near": """a = s32[5,7] abs(apart)
      p = pred[5,7] compare(a, two), direction=LT""",
    "not_near": """a = s32[5,7] abs(apart)
      p = pred[5,7] compare(a, two), direction=GE""",
    "near_turned": """a = s32[5,7] abs(apart)
      p = pred[5,7] compare(two, a), direction=GE""",
    "far": """a = s32[5,7] abs(apart)
      p = pred[5,7] compare(two, a), direction=LT""",
    "turned": """a = s32[7,5] broadcast(j), dimensions={0}
      b = s32[7,5] broadcast(i), dimensions={1}
      q = pred[7,5] compare(a, b), direction=LE
      p = pred[5,7] transpose(q), dimensions={1,0}""",
}


def predicate(body: str) -> Module:
    return hlo.parse(f"HloModule m\nENTRY e {{{COUNTED}\n{body}\n  ROOT o = pred[5,7] copy(p)\n}}")


def check_band(band: Band, holds: np.ndarray) -> None:
    apart = np.arange(COLUMNS)[None, :] - np.arange(ROWS)[:, None]
    assert not (holds & ~((band.low <= apart) & (apart <= band.high))).any()


@pytest.mark.parametrize("name", PREDICATES)
def test_bands_hold_the_predicate_when_indices_are_counted(name: str) -> None:
    module = predicate(PREDICATES[name])
    truth = bands_of(module.entry.root)
    assert truth is not None
    assert (truth.first, truth.second) == (0, 1)
    holds = np.asarray(hlo.evaluate(module))
    check_band(truth.true, holds)
    check_band(truth.false, ~holds)


@pytest.mark.parametrize(
    ("name", "true"),
    [
        ("lower", Band(high=0)),
        ("shifted", Band(high=1)),
        ("window", Band(-2, 1)),
        ("outside", ALL),
        ("two_sides", ALL),
        ("near", Band(-1, 1)),
        ("near_turned", Band(-2, 2)),
        ("not_near", ALL),
        ("joined", Band(high=2)),
        ("off_diagonal", ALL),
    ],
)
def test_bands_are_as_narrow_as_diagonals_say(name: str, true: Band) -> None:
    truth = bands_of(predicate(PREDICATES[name]).entry.root)
    assert truth is not None
    assert truth.true == true


@pytest.mark.parametrize(
    "body",
    [
        "p = pred[5,7] compare(r, two), direction=GE",  # rows alone
        "s = s32[5,7] add(r, r)\n p = pred[5,7] compare(s, c), direction=GE",  # another slope
        # 200 + a row's number leaves the type
        """k = s8[5,7] convert(r)
           l = s8[] constant(127)
           m = s8[5,7] broadcast(l), dimensions={}
           n = s8[5,7] add(k, m)
           o8 = s8[5,7] convert(c)
           p = pred[5,7] compare(n, o8), direction=GE""",
        # 0 less a column's number is a large unsigned one
        """k = u32[5,7] convert(apart)
           l = u32[5,7] convert(two)
           p = pred[5,7] compare(k, l), direction=GE""",
    ],
)
def test_nothing_is_said_when_more_than_a_distance_decides(body: str) -> None:
    assert bands_of(predicate(body).entry.root) is None


def test_and_keeps_a_band_when_the_other_side_is_unknown() -> None:
    body = """v = pred[5,7] parameter(0)
      a = pred[5,7] compare(r, c), direction=GE
      p = pred[5,7] and(v, a)"""
    truth = bands_of(predicate(body).entry.root)
    assert truth == Truth(0, 1, Band(high=0), ALL)


def test_long_chains_are_not_looked_through() -> None:
    chain = "\n".join(f"c_{n} = s32[5,7] add(c_{n - 1}, two)" for n in range(1, 2000))
    body = f"c_0 = s32[5,7] copy(c)\n{chain}\np = pred[5,7] compare(r, c_1999), direction=GE"
    assert bands_of(predicate(body).entry.root) is None


def test_constant_masks_are_looked_at() -> None:
    rows = ",".join("{" + ",".join(str(int(j <= i + 1)) for j in range(7)) + "}" for i in range(5))
    module = hlo.parse(f"HloModule m\nENTRY e {{ ROOT p = pred[5,7] constant({{{rows}}}) }}")
    assert bands_of(module.entry.root) == Truth(0, 1, Band(-4, 1), Band(2, 6))
    none = hlo.parse("HloModule m\nENTRY e { ROOT p = pred[1,2] constant({{0,0}}) }")
    assert bands_of(none.entry.root) == Truth(0, 1, NOWHERE, Band(0, 1))


LIVE = """HloModule m
ENTRY e {{
  i = s32[5,7] iota(), iota_dimension=0
  j = s32[5,7] iota(), iota_dimension=1
  p = pred[5,7] compare(i, j), direction=GE
  x = f32[5,7] parameter(0)
  y = f32[5,7] parameter(1)
  twice = f32[5,7] multiply(x, x)
  {body}
}}
"""


@pytest.mark.parametrize(
    ("body", "band"),
    [
        ("ROOT r = f32[5,7] select(p, twice, y)", Band(high=0)),
        ("ROOT r = f32[5,7] select(p, y, twice)", Band(low=1)),
        ("s = f32[5,7] select(p, twice, y)\n ROOT r = f32[5,7] add(s, x)", ALL),
        ("s = f32[5,7] select(p, y, y)\n ROOT r = f32[5,7] select(p, s, x)", Band(low=1)),
        ("ROOT r = f32[5,7] select(p, twice, x)", Band(-FAR, FAR)),
        ("s = f32[5,7] select(p, y, x)\n ROOT r = f32[5,7] select(p, s, y)", NOWHERE),
    ],
)
def test_live_elements_are_those_that_selects_take(body: str, band: Band) -> None:
    module = hlo.parse(LIVE.format(body=body))
    x = next(i for i in module.entry.instructions if i.name == "x")
    found = live_band(x, module.entry)[2]
    assert found == band or (found.is_none and band.is_none)
