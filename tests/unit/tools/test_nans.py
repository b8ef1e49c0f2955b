"""nans: made, handed on, discarded; in loops by iteration; with the line of the program."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.tools.cases.case import case_of
from hlo.tools.cases.extract import with_operands
from hlo.tools.faults.compiled_nans import compiled_nans
from hlo.tools.faults.nans import nans
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


def test_compiled_code_says_the_same() -> None:
    """Inside of a fusion, by iteration, with the same bits; what a kernel discards it has not."""
    case = case_of(hlo.parse(scan("l")), [START])
    probed = compiled_nans(case)
    (first,) = probed.findings
    (expected,) = nans(case)
    assert probed.is_same
    assert first == replace(expected, number=0, instruction=first.instruction)
    assert first.instruction.startswith("%l = f32[4]{0} log(")
    assert compiled_nans(case_of(hlo.parse(scan("m")), [START])).findings == ()


WIDE = """HloModule wide
ENTRY e {
  x = TYPE[4099] parameter(0)
  y = TYPE[4099] multiply(x, x)
  c = TYPE[4099,3] broadcast(y), dimensions={0}
  t = TYPE[3,4099] transpose(c), dimensions={1,0}
  ROOT r = (TYPE[4099], TYPE[3,4099]) tuple(y, t)
}"""


@pytest.mark.parametrize("name", ["f16", "bf16", "f32", "f64", "c64", "c128"])
def test_elements_of_every_probed_type(name: str) -> None:
    """The last element, which no whole vector holds; kinds that are not asked for are not found."""
    module = hlo.parse(WIDE.replace("TYPE", name))
    dtype = module.entry.parameters[0].shape.dtype.numpy
    x = np.ones(4099, np.float64).astype(dtype)
    x[-1] = 2.0 ** {"f16": 12, "f64": 800, "c128": 800}.get(name, 100)
    probed = compiled_nans(case_of(module, [x]), ("inf",))
    assert [(f.kind, f.index) for f in probed.findings] == [("inf", (4098,))]
    assert compiled_nans(case_of(module, [x]), ("denormal",)).findings == ()
    x[-1] = 2.0 ** {"f16": -10, "f64": -520, "c128": -520}.get(name, -65)
    if name[0] != "c":
        (small,) = compiled_nans(case_of(module, [x]), ("denormal",)).findings
        assert (small.kind, small.index) == ("denormal", (4098,))


UPDATES = """HloModule updates
body {
  s = (s32[], f32[600,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  a = f32[600,8] get-tuple-element(s), index=1
  one = s32[] constant(1)
  j = s32[] add(i, one)
  z = s32[] constant(0)
  f = f32[] convert(i)
  h = f32[] constant(333)
  d = f32[] subtract(h, f)
  l = f32[] log(d)
  row = f32[1,8] broadcast(l), dimensions={}
  b = f32[600,8] dynamic-update-slice(a, row, i, z)
  ROOT r = (s32[], f32[600,8]) tuple(j, b)
}
condition {
  s = (s32[], f32[600,8]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(600)
  ROOT less = pred[] compare(i, n), direction=LT
}
ENTRY e {
  a = f32[600,8] parameter(0)
  z = s32[] constant(0)
  s = (s32[], f32[600,8]) tuple(z, a)
  w = (s32[], f32[600,8]) while(s), condition=condition, body=body
  ROOT v = f32[600,8] get-tuple-element(w), index=1
}"""


def test_a_row_at_a_time() -> None:
    """Large results are looked at seldom until something is found, then in each run."""
    case = case_of(hlo.parse(UPDATES), [np.zeros((600, 8), np.float32)])
    first, second = compiled_nans(case).findings
    assert (first.kind, first.iteration, first.operands) == ("inf", 333, ("%d = 0.0",))
    assert (second.kind, second.iteration, second.operands) == ("nan", 334, ("%d = -1.0",))


def test_check_nans_of_a_run(tmp_path: Path) -> None:
    (tmp_path / "m.hlo").write_text(scan("l"))
    words = [str(tmp_path / "m.hlo"), "--check-nans", "--print-outputs=none"]
    outcome = call("hlo-run", *words, "--input=f32[4]=-1 0.125 -1 -1")
    assert outcome.code == 1
    assert outcome.out.startswith("first nan   %l = f32[4]{0} log(")
    fine = call("hlo-run", *words, "--input=f32[4]=-1 -1 -1 -3")
    assert (fine.code, fine.out) == (0, "nothing found\n")


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
