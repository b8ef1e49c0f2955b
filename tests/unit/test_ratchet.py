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
        lambda files, threads: [_share(f.stem, reached[f.stem]) for f in files],
    )  # fmt: skip
    return reached


def _share(name: str, reached: float) -> Share:
    return Share(name, 0.99 * reached, reached, 1.01 * reached)


FILES = [Path("one.hlo"), Path("two.hlo")]


def test_what_is_kept_rises_and_never_falls(reach: dict[str, float]) -> None:
    reach.update(one=0.5, two=0.8)
    ratchet.keep(FILES, 1, again=False)
    reach.update(one=0.6, two=0.7)
    ratchet.keep(FILES, 1, again=False)
    assert ratchet.kept() == {"one": 0.594, "two": 0.792}
    ratchet.keep(FILES, 1, again=True)
    assert ratchet.kept() == {"one": 0.594, "two": 0.693}


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


def test_a_word_that_is_no_command_is_a_commit(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """python -m benchmarks.ratchet OLD NEW: the programs of examples/, or those that are given."""
    asked: list[tuple[str, str, int]] = []

    def between(old: str, new: str, files: list[Path], threads: int) -> int:
        asked.append((old, new, len(files)))
        return threads - threads

    monkeypatch.setattr(ratchet, "between", between)
    (tmp_path / "one.hlo").write_text("")
    for words in (["v1", "v2"], ["v1", "v2", str(tmp_path)]):
        monkeypatch.setattr("sys.argv", ["ratchet", *words])
        assert ratchet.main() == 0
    assert asked == [("v1", "v2", len(list(ratchet.EXAMPLES.glob("*.hlo")))), ("v1", "v2", 1)]
    monkeypatch.setattr("sys.argv", ["ratchet", "v1"])
    with pytest.raises(SystemExit):
        ratchet.main()


def test_what_is_kept_stands_in_lines_by_name() -> None:
    for file in sorted((Path(ratchet.__file__).parent / "kept").glob("*.txt")):
        names = [line.split()[0] for line in file.read_text().splitlines()]
        assert names == sorted(set(names)), file.name
