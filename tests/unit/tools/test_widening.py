"""The yardstick in f64: what is widened, what keeps its type, and which side is nearer to it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.tools.cases.case import Case, case_of
from hlo.tools.comparing import compared
from hlo.tools.comparison.verdicts import DIFFERENT, UNDECIDED, judged, noise_of
from hlo.tools.comparison.widening import exact_leaves, widened
from tests.support.command import call
from tests.unit.tools.test_verdicts import CANCELS, PLAIN

BITS = """HloModule m, is_scheduled=true
ENTRY e {
  u = u32[4] parameter(0)
  x = f32[4] parameter(1)
  f = f32[4] bitcast-convert(u)
  h = bf16[4] convert(x)
  s = bf16[4] add(h, h)
  w = f32[4] convert(s)
  p = f32[4] reduce-precision(w), exponent_bits=5, mantissa_bits=2
  r = f32[4] add(f, p)
  b = u32[4] bitcast-convert(x)
  ROOT t = (f32[4], u32[4]) tuple(r, b)
}
"""


def test_values_are_not_rounded_and_bits_stay() -> None:
    u = np.array([0x3F800000, 0x40000000, 0x3F000000, 0], np.uint32)
    x = np.array([0.1, 0.2, 0.3, 1.1], np.float32)
    exact, bits = exact_leaves(Case(hlo.parse(BITS), (u, x)))
    assert exact.dtype == np.float64
    assert (exact == u.view(np.float32).astype(np.float64) + 2 * x.astype(np.float64)).all()
    assert (bits == x.view(np.uint32)).all()


def test_roundings_inside_fusions_are_left_out() -> None:
    text = """HloModule m
f {
  x = f32[4] parameter(0)
  p = f32[4] reduce-precision(x), exponent_bits=5, mantissa_bits=2
  ROOT n = f32[4] negate(p)
}
ENTRY e {
  x = f32[4] parameter(0)
  ROOT r = f32[4] fusion(x), kind=kLoop, calls=f
}
"""
    x = np.array([0.1, 0.2, 0.3, 1.1], np.float32)
    (exact,) = exact_leaves(Case(hlo.parse(text), (x,)))
    assert (exact == -x.astype(np.float64)).all()


def test_tuples_of_custom_calls_keep_their_types() -> None:
    text = """HloModule m
ENTRY e {
  x = f32[8] parameter(0)
  t = (f32[3], s32[3]) custom-call(x), custom_call_target="TopK"
  a = f32[3] get-tuple-element(t), index=0
  ROOT n = f32[3] negate(a)
}
"""
    wide = widened(case_of(hlo.parse(text)))
    assert str(wide.module.entry.root.shape) == "f64[3]{0}"
    (call_,) = (i for i in wide.module.entry.instructions if i.opcode == "custom-call")
    assert call_.operands[0].shape.dtype.name == "f32"


def test_what_is_undecided_is_decided_in_f64() -> None:
    """A sum that cancels hides in f32 which function it was of, not in f64."""
    case = case_of(hlo.parse(CANCELS.replace("(h, b)\n", "(down, b)\n")))
    other = hlo.parse(str(case.module).replace("tanh(", "exponential("))
    results = [hlo.evaluate(m, *case.values) for m in (case.module, other)]
    assert judged(*results, noise_of(case)).verdict == UNDECIDED
    assert compared(case, other, "interpreter").verdicts.verdict == DIFFERENT


def test_the_command_says_who_is_nearer(tmp_path: Path) -> None:
    a, b = tmp_path / "a.hlo", tmp_path / "b.hlo"
    a.write_text(PLAIN)
    b.write_text(PLAIN.replace("tanh(x)", "sine(x)"))
    told = call("hlo-run", "compare", str(a), str(b))
    assert "nearer to f64  output 0: the first" in told.out
    assert call("hlo-run", "compare", str(a), "--against=f64").code == 0
    assert call("hlo-run", str(a), "--compare=f64").code == 0
    data = json.loads(
        call("hlo-run", "compare", str(a), "--against=f64", "--isolate", "--json").out
    )
    (row,) = data["alone"]
    assert "tanh(" in row["instruction"]
    assert row["ulp"] < 4


def test_a_module_that_cannot_be_widened_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(
        "HloModule m\nc { p = f32[4] parameter(0)\n ROOT n = f32[4] negate(p) }\n"
        "ENTRY e {\n x = f32[4] parameter(0)\n"
        ' ROOT t = f32[4] custom-call(x), custom_call_target="mine", called_computations={c}\n}\n'
    )
    with pytest.raises(hlo.HloError):
        exact_leaves(case_of(hlo.parse(path.read_text())))
