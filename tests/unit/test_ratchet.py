"""The ratchet keeps what is best, and says what falls: without any timing."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import ratchet
from benchmarks.ratchet import Share


@pytest.fixture
def reach(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, float]:
    """What programs reach of their limits, by name; the tests say it."""
    reached: dict[str, float] = {}
    monkeypatch.setattr(ratchet, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(
        ratchet, "shares",
        lambda files, threads: [Share(f.stem, 1.0, reached[f.stem], 0.01) for f in files],
    )  # fmt: skip
    return reached


FILES = [Path("one.hlo"), Path("two.hlo")]


def test_what_is_kept_rises_and_never_falls(reach: dict[str, float]) -> None:
    reach.update(one=0.5, two=0.8)
    ratchet.keep(FILES, 1, again=False)
    reach.update(one=0.6, two=0.7)
    ratchet.keep(FILES, 1, again=False)
    assert ratchet.kept() == {"one": 0.6, "two": 0.8}
    ratchet.keep(FILES, 1, again=True)
    assert ratchet.kept() == {"one": 0.6, "two": 0.7}


def test_what_falls_is_said(reach: dict[str, float], capsys: pytest.CaptureFixture[str]) -> None:
    reach.update(one=0.5, two=0.8)
    ratchet.keep(FILES[:1], 1, again=False)
    assert ratchet.check(FILES, 1) == 0
    assert "not kept" in capsys.readouterr().out
    reach.update(one=0.49)  # within what a machine's noise is
    assert ratchet.check(FILES, 1) == 0
    reach.update(one=0.4)
    assert ratchet.check(FILES, 1) == 1
    assert "fell" in capsys.readouterr().out
