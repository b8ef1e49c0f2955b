"""What hlo-opt says of passes while they run: after which, how often each rule."""

from __future__ import annotations

from pathlib import Path

from tests.support.attention_programs import attention
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
    assert "middle-end" not in table
    unknown = call("hlo-opt", *words, "--print-after=csee")
    assert (unknown.code, "csee is no pass" in unknown.err) == (2, True)


def test_times_of_code_by_kernel(tmp_path: Path) -> None:
    """Equal kernels are one row; lines and bytes are the kernel's, whatever the times are."""
    path = tmp_path / "m.hlo"
    path.write_text(
        """HloModule m
less {
  p = f32[] parameter(0)
  q = f32[] parameter(1)
  ROOT r = pred[] compare(p, q), direction=LT
}
ENTRY e {
  x = f32[512,64] parameter(0)
  a = f32[64,512] transpose(x), dimensions={1,0}
  s = f32[64,512] sort(a), dimensions={1}, to_apply=less
  ROOT b = (f32[64,512], f32[512,64]) tuple(s, x)
}
"""
    )
    err = call("hlo-opt", str(path), "--emit=asm", "--time-passes", "-o", str(tmp_path / "o")).err
    lines = err.splitlines()
    at = next(i for i, line in enumerate(lines) if line.startswith("kernel "))
    assert lines[at].split() == ["kernel", "lines", "read", "middle-end", "code", "bytes"]
    rows = [line.split() for line in lines[at + 1 :] if line.startswith("k")]
    assert {row[1] for row in rows} == {"(a)", "(s)"}
    assert all(int(row[2].replace(",", "")) > 9 and int(row[-1].replace(",", "")) for row in rows)
    assert next(line for line in lines[at:] if line.startswith("total of 2 "))


def test_functions_that_a_kernel_calls_are_timed_too(tmp_path: Path) -> None:
    """A block's work is in them: the kernel itself is a list of calls."""
    path = tmp_path / "m.hlo"
    path.write_text(attention(4, 600))
    flags = ["--emit=asm", "--time-passes", "--machine=znver5", "-o", str(tmp_path / "o")]
    err = call("hlo-opt", str(path), *flags).err
    rows = [line.split("(blocked_fusion)") for line in err.splitlines() if line.startswith("k0 ")]
    assert {row[0].strip() for row in rows} == {"k0", *(f"k0 part {n}" for n in range(3))}
