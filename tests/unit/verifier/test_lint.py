"""Each warning of lint, once where it fires and once where it is silent."""

import pytest

from hlo.driver import parse
from hlo.verifier.lint import WARNINGS, lint

ADD = """
add {
  a = bf16[] parameter(0)
  b = bf16[] parameter(1)
  ROOT r = bf16[] add(a, b)
}
"""


def entry(body: str, computations: str = "") -> str:
    return f"HloModule m\n{computations}\nENTRY e {{\n{body}\n}}\n"


FIRES = {
    "unused-parameter": entry(
        "p = f32[2] parameter(0)\nq = f32[2] parameter(1)\nROOT r = f32[2] negate(p)"
    ),
    "dead-computation": entry("ROOT p = f32[2] parameter(0)", "f { ROOT a = f32[] parameter(0) }"),
    "dead-instruction": entry(
        "p = f32[2] parameter(0)\nq = f32[2] negate(p)\nROOT r = f32[2] abs(p)"
    ),
    "square-broadcast": entry(
        "p = f32[3] parameter(0)\nROOT r = f32[3,3] broadcast(p), dimensions={1}"
    ),
    "accidental-f64": entry("p = f32[3] parameter(0)\nROOT r = f64[3] convert(p)"),
    "narrow-sum": entry(
        "p = bf16[1000] parameter(0)\nz = bf16[] constant(0)\n"
        "ROOT r = bf16[] reduce(p, z), dimensions={0}, to_apply=add", ADD,
    ),
    "division-by-zero": entry(
        "p = s32[3] parameter(0)\nz = s32[] constant(0)\nb = s32[3] broadcast(z), dimensions={}\n"
        "ROOT r = s32[3] divide(p, b)"
    ),
    "no-change": entry(
        "p = f32[2,3] parameter(0)\nROOT r = f32[2,3] transpose(p), dimensions={0,1}"
    ),
    "lone-scalar": entry("ROOT r = f32[2,3] constant( -1.5 )"),
    "implicit-root": entry("p = f32[2] parameter(0)"),
    "implicit-entry": "HloModule m\ne { ROOT p = f32[2] parameter(0) }",
}  # fmt: skip
SILENT = {
    "unused-parameter": entry("ROOT p = f32[2] parameter(0)"),
    "dead-computation": entry(
        "p = f32[2] parameter(0)\nROOT r = f32[2] call(p), to_apply=f",
        "f { a = f32[2] parameter(0) ROOT n = f32[2] negate(a) }",
    ),
    "dead-instruction": entry(
        "p = f32[2] parameter(0)\nt = token[] after-all()\n"
        "o = token[] outfeed(p, t), outfeed_shape=f32[2]\nROOT r = f32[2] abs(p)"
    ),
    "square-broadcast": entry(
        "p = f32[3] parameter(0)\nROOT r = f32[2,3] broadcast(p), dimensions={1}"
    ),
    "accidental-f64": entry(
        "p = f64[3] parameter(0)\nf = f32[3] convert(p)\nROOT r = f64[3] convert(f)"
    ),
    "narrow-sum": entry(
        "p = bf16[100] parameter(0)\nz = bf16[] constant(0)\n"
        "ROOT r = bf16[] reduce(p, z), dimensions={0}, to_apply=add", ADD,
    ),
    "division-by-zero": entry(
        "p = s32[3] parameter(0)\nz = s32[3] constant({1, 2, -1})\nROOT r = s32[3] divide(p, z)"
    ),
    "no-change": entry(
        "p = f32[3,3] parameter(0)\nROOT r = f32[3,3] transpose(p), dimensions={1,0}"
    ),
    "implicit-root": entry("ROOT p = f32[2] parameter(0)"),
    "implicit-entry": entry("p = f32[2] parameter(0)"),
    "lone-scalar": entry("x = f32[] constant(1)\nROOT r = f32[2] constant({1, 0})"),
}  # fmt: skip


def codes(text: str, disabled: tuple[str, ...] = ()) -> set[str]:
    return {warned.code for warned in lint(parse(text), disabled=disabled)}


@pytest.mark.parametrize("code", WARNINGS)
def test_warning_fires(code: str) -> None:
    assert code in codes(FIRES[code])


@pytest.mark.parametrize("code", WARNINGS)
def test_warning_is_silent(code: str) -> None:
    assert code not in codes(SILENT[code])


@pytest.mark.parametrize("code", WARNINGS)
def test_warning_can_be_switched_off(code: str) -> None:
    assert code not in codes(FIRES[code], disabled=(code,))


def test_warning_is_drawn_with_a_caret() -> None:
    (warned,) = lint(parse(FIRES["no-change"]))
    assert str(warned).startswith("warning[no-change]: transpose: of p to its own shape f32[2,3]")
    assert "^" in str(warned)
