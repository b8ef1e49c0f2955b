"""A program that is kept on disk starts without what made it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hlo.backend.linking import identity, toolchain
from hlo.process import tile_permission

PROGRAM = """
import sys
import numpy as np
import hlo
module = hlo.parse(sys.argv[1])
made = hlo.compile(module)(np.arange(4, dtype=np.float32))
print(made.tolist(), *sorted(sys.modules))
"""
TEXT = """HloModule kept
ENTRY main {
  x = f32[4] parameter(0)
  ROOT y = f32[4] add(x, x)
}
"""


def _run(folder: Path) -> list[str]:
    surroundings = {**os.environ, "HLO_CACHE_DIR": str(folder)}
    command = [sys.executable, "-c", PROGRAM, TEXT]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_kept_program_loads_neither_llvm_nor_the_compiler(tmp_path: Path) -> None:
    first, second = _run(tmp_path), _run(tmp_path)
    assert first[:4] == second[:4] == ["[0.0,", "2.0,", "4.0,", "6.0]"]
    makers = {"hlo.backend.linking.llvm", "hlo.passes", "hlo.verifier", "hlo.backend.kernels"}
    assert makers <= set(first)
    writers = {"hlo.backend.ir.writer", "hlo.backend.ir.records", "hlo.backend.isa"}
    assert writers <= set(first)
    assert not (makers | writers | {"hlo.interpreter", "hlo.printer"}) & set(second)


def test_a_system_without_a_list_of_features_asks_llvm(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    identity.identity.cache_clear()
    listed = identity.identity()
    for text in (None, "cpu:type:x86,ven0000", "cpu:type:x86:feature:,0001"):
        path = tmp_path / "modalias"
        if text is not None:
            path.write_text(text)
        monkeypatch.setattr(identity, "FEATURES", str(path))
        identity.identity.cache_clear()
        found = identity.identity()
        assert found != listed
        assert (toolchain.feature_text() in found) == (text is None or ":feature:" not in text)
    identity.identity.cache_clear()


@pytest.mark.parametrize("features", ["cpu:type:x86:feature:,0000,0258,0259\n", "+amx-tile,+sse2"])
def test_code_for_tiles_is_not_found_by_a_process_that_may_not_use_them(
    features: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small stack for signals is enough for Linux to refuse tiles, and their use ends it."""
    monkeypatch.setattr(identity, "_processor", lambda: features)
    found = set()
    for is_granted in (True, False):
        monkeypatch.setattr(tile_permission, "may_use_tiles", lambda granted=is_granted: granted)
        identity.identity.cache_clear()
        found.add(identity.identity())
    identity.identity.cache_clear()
    assert len(found) == 2
