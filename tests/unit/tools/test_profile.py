"""profile and bench as commands: groups, JSON, the trace, other programs, NaNs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.backend.profiling.limits import measured_limits
from hlo.errors import HloError
from tests.support.command import call

TEXT = """HloModule m
ENTRY e {
  x = f32[64,64] parameter(0)
  a = f32[64,64] dot(x, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="f/dot" source_file="f.py" source_line=7}
  b = f32[64,64] tanh(a), metadata={op_name="f/tanh" source_file="f.py" source_line=8}
  ROOT c = f32[64,64] dot(b, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}, metadata={op_name="f/dot" source_file="f.py" source_line=9}
}"""  # noqa: E501  # metadata as XLA writes it


def test_steps_by_name_and_line(tmp_path: Path) -> None:
    path, trace, inputs = tmp_path / "m.hlo", tmp_path / "t.json", tmp_path / "x.npz"
    path.write_text(TEXT)
    np.savez(inputs, x=np.ones((64, 64), np.float32))
    words = ["profile", str(path), f"--inputs={inputs}", f"--trace={trace}", "--threads=1"]
    outcome = call("hlo-run", *words, "--by=op_name", "--json")
    assert (outcome.code, outcome.err) == (0, "")
    found = {row["name"]: row for row in json.loads(outcome.out)["rows"]}
    assert set(found) == {"f/dot", "f/tanh"}
    assert found["f/dot"]["flops"] >= 2 * 64**3
    events = [e for e in json.loads(trace.read_text())["traceEvents"] if e["ph"] == "X"]
    sources = sorted(e["args"]["source"] for e in events)
    assert sources == ["f.py:8", "f.py:9"]  # the first product finishes with tanh
    assert "f.py:9" in call("hlo-run", *words, "--by=source").out


@pytest.mark.skipif(hlo.driver.host_machine().architecture != "x86_64", reason="of x86-64")
def test_a_lesser_machine_is_profiled_beside_its_own_limits(tmp_path: Path) -> None:
    path, trace = tmp_path / "m.hlo", tmp_path / "t.json"
    path.write_text(TEXT)
    words = ["profile", str(path), "--machine=x86-64-v2", "--threads=1"]
    outcome = call("hlo-run", *words, "--plan", "--mode=fast", f"--trace={trace}")
    assert outcome.code == 0, outcome.err
    assert " x 4 lanes" in outcome.out
    assert " 8 lanes" not in outcome.out
    assert json.loads(trace.read_text())["traceEvents"]
    module, ones = hlo.parse(TEXT), np.ones((64, 64), np.float32)
    lesser = hlo.profile(module, ones, threads=1, machine="x86-64-v2").limits
    assert lesser is not measured_limits(1)
    with pytest.raises(HloError, match="expected x86_64") as caught:
        hlo.profile(module, ones, machine="neoverse-n1")
    assert caught.value.code == "machine"


def test_bench_of_two_modules_says_that_outputs_are_nan(tmp_path: Path) -> None:
    (tmp_path / "a.hlo").write_text(TEXT)
    (tmp_path / "b.hlo").write_text(TEXT.replace("tanh(a)", "log(a)"))
    files = [str(tmp_path / name) for name in ("b.hlo", "a.hlo")]
    outcome = call("hlo-run", "bench", *files, f"--against={files[1]}", "--seconds=0.05")
    assert outcome.code == 0
    assert "rival/ours" in outcome.out
    (warned,) = [line for line in outcome.err.splitlines() if "NaN" in line]
    assert warned.startswith(f"warning: {files[0]}: outputs have NaNs")


def test_groups_add_up() -> None:
    found = hlo.profile(hlo.parse(TEXT), np.ones((64, 64), np.float32))
    for by in ("opcode", "op_name", "source"):
        grouped = found.grouped(by)
        assert abs(sum(r.us for r in grouped.rows) - sum(r.us for r in found.rows)) < 1e-6
