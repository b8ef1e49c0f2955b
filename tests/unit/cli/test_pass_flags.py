"""What hlo-opt says of passes while they run: after which, how often each rule."""

from __future__ import annotations

from pathlib import Path

from tests.support.command import call

TEXT = """HloModule m
ENTRY e { p = f32[2,3] parameter(0)
  t = f32[3,2] transpose(p), dimensions={1,0}
  ROOT u = f32[2,3] transpose(t), dimensions={1,0} }
"""


def test_modules_after_a_pass_and_counts_of_rules(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    words = [str(path), "--passes=algsimp,dce,cse", "-o", str(tmp_path / "o")]
    outcome = call("hlo-opt", *words, "--print-after=cse", "--print-after=dce")
    assert outcome.code == 0
    heads = [line for line in outcome.err.splitlines() if line.startswith("; ")]
    assert heads == ["; after dce", "; after cse"]
    table = call("hlo-opt", *words, "--time-passes").err
    assert "2 rewrites by 2 rules" in table
    assert table.splitlines()[-1].split()[1] == "1"
    unknown = call("hlo-opt", *words, "--print-after=csee")
    assert (unknown.code, "csee is no pass" in unknown.err) == (2, True)
