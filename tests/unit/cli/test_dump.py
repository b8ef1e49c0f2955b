"""--dump-to: every stage is a file, and what is printed is what was asked for."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.command import call

FILE = str(Path(__file__).parents[3] / "examples" / "softmax.hlo")
STAGES = ["schedule.txt", "buffers.txt", "loops.txt", "program.txt", "llvm.ll", "asm.s"]


@pytest.mark.parametrize("asked", [(), ("-p", "default"), ("--emit=optimized",), ("--emit=asm",)])
def test_every_stage_is_a_file(asked: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "stages"
    done = call("hlo-opt", FILE, *asked, f"--dump-to={folder}")
    assert done.code == 0, done.err
    assert done.out == call("hlo-opt", FILE, *asked).out
    names = [name.partition("-")[2] for name in sorted(p.name for p in folder.iterdir())]
    assert names[:2] == ["input.hlo", "fusion.hlo"]
    assert [name for name in names if name in STAGES] == STAGES
    assert all(path.stat().st_size for path in folder.iterdir())


def test_a_folder_without_a_name_is_an_error() -> None:
    done = call("hlo-opt", FILE, "--dump-to=")
    assert (done.code, done.out) == (1, "")
    assert "'' is no folder's name" in done.err
