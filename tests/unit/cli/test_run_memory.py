"""hlo-run memory: a table or JSON on stdout, nothing run."""

import json
from pathlib import Path

from tests.support.command import call

TEXT = """HloModule m
ENTRY e {
  x = f32[8,16] parameter(0)
  s = f32[16,8] transpose(x), dimensions={1,0}
  c = f32[16,8] constant({...})
  ROOT r = f32[16,8] add(s, c)
}
"""


def test_table_and_json(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    table = call("hlo-run", "memory", str(path))
    assert (table.code, table.err) == (0, "")
    assert "live at the peak" in table.out
    assert "m.hlo:3" in table.out
    data = json.loads(call("hlo-run", "memory", str(path), "--json", "--threads=1").out)
    assert data["argument_bytes"] == 512
    assert data["constant_bytes"] == 512
    assert [b["region"] for b in data["buffers"]][:2] == ["argument 0", "result 0"]


def test_a_program_that_does_not_verify_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT.replace("f32[16,8] add", "f32[8,8] add"))
    outcome = call("hlo-run", "memory", str(path))
    assert outcome.code == 1
    assert "shape-mismatch" in outcome.err
