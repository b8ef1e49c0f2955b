"""Names of compiled code for Linux's perf."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from hlo.backend.linking import perf_map

PROGRAM = """
import numpy as np
import hlo
text = "HloModule named\\nENTRY e {\\n x = f32[64] parameter(0)\\n ROOT wave = f32[64] tanh(x)\\n}"
hlo.compile(hlo.parse(text))(np.ones(64, np.float32))
import os
print(os.getpid())
"""


@pytest.mark.skipif(sys.platform != "linux", reason="perf is Linux's")
def test_kernels_bear_the_names_of_instructions() -> None:
    for _ in range(2):  # the second time from the caches
        environment = {**os.environ, "HLO_PERF_MAP": "1"}
        command = [sys.executable, "-c", PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        path = Path(f"{perf_map.FOLDER}/perf-{done.stdout.strip()}.map")
        rows = [line.split(" ", 2) for line in path.read_text().splitlines()]
        path.unlink()
        places = sorted((int(at, 16), int(size, 16)) for at, size, _ in rows)
        assert all(at > 0 and size > 0 for at, size in places)
        assert all(a + size <= b for (a, size), (b, _) in pairwise(places))
        names = {name for _, _, name in rows}
        assert {"hlo_run_listed", "hlo_call"} <= names
        assert any(name.startswith("named:wave tanh") for name in names)


def test_a_file_that_cannot_be_written_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(perf_map, "FOLDER", str(tmp_path / "nowhere"))
    with pytest.warns(UserWarning, match="HLO_PERF_MAP"):
        perf_map.write([], lambda name: 0, {})


@pytest.mark.skipif(not hasattr(os, "O_NOFOLLOW"), reason="links of other systems")
def test_links_are_not_followed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.write_text("kept")
    (tmp_path / f"perf-{os.getpid()}.map").symlink_to(precious)
    monkeypatch.setattr(perf_map, "FOLDER", str(tmp_path))
    with pytest.warns(UserWarning, match="cannot be written"):
        perf_map.write([], lambda name: 0, {})
    assert precious.read_text() == "kept"
