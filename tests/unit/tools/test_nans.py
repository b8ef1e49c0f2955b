"""nans: made, handed on, discarded; in loops by iteration; with the line of the program."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

import hlo
from hlo.tools.cases import case_of
from hlo.tools.extract import with_operands
from hlo.tools.nans import nans
from tests.support.command import call

SCAN = """HloModule scan
body {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  p = f32[4] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  q = f32[] constant(0.25)
  qs = f32[4] broadcast(q), dimensions={}
  grown = f32[4] add(p, qs)
  f = f32[] constant(1)
  fs = f32[4] broadcast(f), dimensions={}
  rest = f32[4] subtract(fs, grown)
  l = f32[4] log(rest), metadata={op_name="loss" source_file="loss.py" source_line=41}
  kept = f32[4] minimum(grown, l)
  less = pred[4] compare(rest, qs), direction=LT
  m = f32[4] select(less, grown, l)
  ROOT r = (s32[], f32[4]) tuple(j, GOES_ON)
}
condition {
  s = (s32[], f32[4]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(6)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  p = f32[4] parameter(0)
  zero = s32[] constant(0)
  s = (s32[], f32[4]) tuple(zero, p)
  w = (s32[], f32[4]) while(s), condition=condition, body=body
  v = f32[4] get-tuple-element(w), index=1
  ROOT n = f32[4] negate(v)
}
"""


def scan(goes_on: str) -> str:
    other = SCAN.replace("GOES_ON", goes_on)
    # The state grows; what the log gives is added to it times zero, which a NaN is not.
    product = (
        "  none = f32[] constant(0)\n  nones = f32[4] broadcast(none), dimensions={}\n"
        f"  scaled = f32[4] multiply({goes_on}, nones)\n  next = f32[4] add(grown, scaled)\n"
    )
    other = other.replace(f"tuple(j, {goes_on})", "tuple(j, next)")
    return other.replace("  ROOT r =", product + "  ROOT r =")


START = np.array([-1, 0.125, -1, -1], np.float32)


def test_the_log_of_a_negative_number_in_iteration_3_of_a_scan() -> None:
    """0.125 + 4 * 0.25 is the first that is over 1."""
    found = [f for f in nans(case_of(hlo.parse(scan("l")), [START])) if not f.is_discarded]
    (first,) = found
    assert (first.kind, first.loop, first.iteration, first.index) == ("nan", "body", 3, (1,))
    assert first.instruction.startswith("%l = f32[4]{0} log(")
    assert first.source == "loss.py:41"
    assert first.operands == ("%rest = -0.125",)
    assert first.outputs == (0,)


def test_what_no_output_gets_is_discarded() -> None:
    found = nans(case_of(hlo.parse(scan("m")), [START]))
    assert found
    assert all(f.is_discarded for f in found)


def test_masks_are_discarded_and_denormals_are_looked_for_on_request() -> None:
    text = """HloModule m
    ENTRY e { p = f32[3] parameter(0)
      i = f32[] constant(-inf) b = f32[3] broadcast(i), dimensions={}
      m = f32[3] maximum(p, b) ROOT r = f32[3] multiply(m, m) }"""
    case = case_of(hlo.parse(text), [np.array([1e-21, 1, 2], np.float32)])
    (mask,) = nans(case)
    assert (mask.kind, mask.is_discarded) == ("inf", True)
    (small,) = nans(case, ("denormal",))
    assert small.index == (0,)
    assert "multiply" in small.instruction


def test_the_command(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(scan("l"))
    words = ["nans", str(tmp_path / "m.hlo"), "--input=f32[4]=-1 0.125 -1 -1"]
    outcome = call("hlo-run", *words)
    assert outcome.code == 1
    assert outcome.out == (
        "first nan   %l = f32[4]{0} log(%rest)   loss.py:41\n"
        "    element {1} is nan   iteration 3 of body\n"
        "    %rest = -0.125\n"
        "    reaches output {0}\n"
    )
    assert json.loads(call("hlo-run", *words, "--json").out)[0]["iteration"] == 3


def test_extract_goes_back_as_far_as_there_is_something() -> None:
    lines = [f"  x{n} = f32[4] add(x{n - 1}, x{n - 1})" for n in range(1, 60)]
    text = "HloModule m\nENTRY e {\n  x0 = f32[4] parameter(0)\n" + "\n".join(lines) + "\n}\n"
    root = hlo.parse(text).entry.root
    assert len(with_operands([root], 10**12)) == 60


def test_extract_and_stats(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(scan("l"))
    words = ["extract", str(path), "--name=rest", "--depth=1", "-o", str(tmp_path / "o")]
    made = call("hlo-opt", *words)
    assert made.code == 0
    module = hlo.parse((tmp_path / "o").read_text())
    assert sorted(i.opcode for i in module.entry.instructions) == [
        "add", "broadcast", "constant", "parameter", "parameter", "subtract",
    ]  # fmt: skip
    given = np.load(tmp_path / "o.npz")
    assert hlo.evaluate(module, *given.values()).shape == (4,)
    unknown = call("hlo-opt", "extract", str(path), "--name=nothing")
    assert (unknown.code, "no instruction nothing" in unknown.err) == (1, True)
    table = call("hlo-opt", "stats", str(path), "--most=1").out
    assert table.startswith("scan: 30 instructions in 3 computations\n")
    data = json.loads(call("hlo-opt", "stats", str(path), "--json").out)
    assert dict(data[0]["opcodes"])["log"] == 1
