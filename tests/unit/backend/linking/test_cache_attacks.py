"""Every file that a run keeps, damaged or replaced in every way: the result stays the right one."""

from __future__ import annotations

import logging
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from hlo import cache

ROOT = Path(__file__).resolve().parents[4]
# Enough work to wake the pool of threads, whose code is kept as well.
TEXT = """HloModule m
ENTRY e { x = f32[512,512] parameter(0)
  y = f32[512,512] tanh(x)
  c = f32[512,512] dot(y, x), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[512,512], f32[512,512]) tuple(c, y) }"""


def run(folder: Path, chosen: str | None = None) -> tuple[str, str]:
    """What the command says on stdout and stderr, with homes of its own that stay empty.

    chosen: what HLO_CACHE_DIR is, if not the folder.
    """
    homes = folder.with_name("homes")
    homes.mkdir(exist_ok=True)
    elsewhere = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "TMPDIR"), str(homes))
    command = [
        sys.executable,
        "cli.py",
        "run",
        "-",
        "--print-outputs=hash",
        "--random",
        "--threads=2",
    ]
    done = subprocess.run(
        command,
        input=TEXT,
        env={**os.environ, **elsewhere, "HLO_CACHE_DIR": str(folder) if chosen is None else chosen},
        cwd=ROOT,
        text=True,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert list(homes.iterdir()) == []
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, tuple[str, str]]:
    """A folder that a run filled, and what the run said."""
    folder = tmp_path_factory.mktemp("cache") / "objects"
    said = run(folder)
    assert len(list(folder.iterdir())) >= 4, "the program, its kernels, the call, the pool"
    return folder, said


@pytest.fixture
def folder(
    made: tuple[Path, tuple[str, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """A copy of it, which the cache of this process looks at."""
    copy = tmp_path / "objects"
    shutil.copytree(made[0], copy)
    monkeypatch.setenv("HLO_CACHE_DIR", str(copy))
    monkeypatch.setattr(cache, "_refused", set())
    return copy


def flipped(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[len(data) * 2 // 3] ^= 0x40
    file.write_bytes(data)


def swapped(file: Path) -> None:
    """The whole and undamaged content of another key."""
    other = next(
        f for f in sorted(file.parent.iterdir()) if f.stat().st_size != file.stat().st_size
    )
    shutil.copy(other, file)


def linked(file: Path) -> None:
    """To what is all right, but lies elsewhere, where others may write it."""
    aside = file.parent.with_name(f"aside-{file.name}")
    file.rename(aside)
    file.symlink_to(aside)


def replaced_by(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def damage(file: Path) -> None:
        file.unlink()
        make(file)

    return damage


def sparse(file: Path) -> None:
    with file.open("r+b") as stream:
        stream.truncate(100 << 30)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "flipped": flipped,
    "cut": lambda f: os.truncate(f, f.stat().st_size - 3),
    "cut to its head": lambda f: os.truncate(f, cache.HEAD_BYTES),
    "longer": lambda f: f.write_bytes(f.read_bytes() + b"\0"),
    "empty": lambda f: os.truncate(f, 0),
    "pickle": lambda f: f.write_bytes(b"\x80\x04\x8c\x02os\x8c\x05_exit\x93K\x03\x85R."),
    "swapped": swapped,
    "linked": linked,
    "writable by all": lambda f: f.chmod(0o666),
    "sparse": sparse,
    "a folder": replaced_by(Path.mkdir),
    "a pipe": replaced_by(os.mkfifo),
    "zeros": replaced_by(lambda f: f.symlink_to("/dev/zero")),
    "a link to nothing": replaced_by(lambda f: f.symlink_to("/nowhere/at/all")),
    "a link to itself": replaced_by(lambda f: f.symlink_to(f)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_no_damaged_file_is_loaded(folder: Path, damage: str) -> None:
    names = [file.name for file in folder.iterdir()]
    assert all(cache.load(name) for name in names)
    for file in sorted(folder.iterdir()):
        DAMAGES[damage](file)
        assert cache.load(file.name) is None


@pytest.mark.parametrize("damage", ["flipped", "swapped", "linked", "a folder", "a pipe", "zeros"])
def test_runs_with_damaged_files(
    made: tuple[Path, tuple[str, str]], folder: Path, damage: str
) -> None:
    names = [file.name for file in folder.iterdir()]
    for name in sorted(names):
        DAMAGES[damage](folder / name)
    assert run(folder) == made[1]
    if damage != "a folder":  # which a rename does not replace
        assert all(cache.load(name) for name in names)
        assert not any(file.is_symlink() for file in folder.iterdir())


def test_no_folder_keeps_nothing(made: tuple[Path, tuple[str, str]], tmp_path: Path) -> None:
    assert run(tmp_path / "objects", chosen="") == made[1]
    assert [path.name for path in tmp_path.iterdir()] == ["homes"]


def test_every_flipped_byte_and_every_cut_is_found(folder: Path) -> None:
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        places = [*range(cache.HEAD_BYTES), *range(cache.HEAD_BYTES, len(data), 61)]
        for at in places:
            changed = bytearray(data)
            changed[at] ^= 1 << at % 8
            file.write_bytes(changed)
            assert cache.load(file.name) is None, at
            file.write_bytes(data[:at])
            assert cache.load(file.name) is None, at
        file.write_bytes(data)
        assert cache.load(file.name) == data[cache.HEAD_BYTES :]


def refused(caplog: pytest.LogCaptureFixture, name: str) -> bool:
    """Whether the folder is left alone, with one warning however often it is asked for."""
    caplog.clear()
    with caplog.at_level(logging.WARNING, cache.__name__):
        for _ in range(3):
            cache.store("0" * 64, b"body")
            found = cache.load(name)
    assert len(caplog.records) == (found is None)
    return found is None


@pytest.mark.parametrize("mode", [0o777, 0o770, 0o702, 0o1777])
def test_folders_that_others_may_write_are_refused(
    folder: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    names = sorted(file.name for file in folder.iterdir())
    folder.chmod(mode)
    assert refused(caplog, names[0])
    assert f"{mode:04o}" in caplog.text
    assert sorted(file.name for file in folder.iterdir()) == names


@pytest.mark.parametrize("mode", [0o700, 0o755])
def test_folders_that_others_may_read_are_used(
    folder: Path, caplog: pytest.LogCaptureFixture, mode: int
) -> None:
    name = next(folder.iterdir()).name
    folder.chmod(mode)
    assert not refused(caplog, name)


@pytest.mark.parametrize("kind", [stat.S_ISDIR, stat.S_ISREG])
def test_what_others_own_is_not_loaded(
    folder: Path, monkeypatch: pytest.MonkeyPatch, kind: Callable[[int], bool]
) -> None:
    real = os.fstat

    def foreign(handle: int) -> os.stat_result:
        found = real(handle)
        if not kind(found.st_mode):
            return found
        row = list(found)
        row[4] += 1
        return os.stat_result(row)

    name = next(folder.iterdir()).name
    assert cache.load(name)
    monkeypatch.setattr(os, "fstat", foreign)
    assert cache.load(name) is None


@pytest.mark.parametrize("is_ours", [True, False])
def test_links_to_the_folder(
    folder: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
    is_ours: bool,  # noqa: FBT001
) -> None:
    """The user may keep the folder on another disk; another's link leads nowhere."""
    name = next(folder.iterdir()).name
    link = folder.with_name("link\x1b[2J")
    link.symlink_to(folder)
    monkeypatch.setenv("HLO_CACHE_DIR", str(link))
    if not is_ours:
        row = list(link.lstat())
        row[4] = os.geteuid() + 1
        monkeypatch.setattr(os, "lstat", lambda path: os.stat_result(row))
    assert refused(caplog, name) is not is_ours
    assert "\x1b" not in caplog.text


@pytest.mark.parametrize("old", ["umask", "relative", "none"])
def test_folders_that_are_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: str) -> None:
    """Nobody else may enter them; a home that is no absolute path makes none."""
    monkeypatch.delenv("HLO_CACHE_DIR", raising=False)
    monkeypatch.chdir(tmp_path)
    homes = {"umask": str(tmp_path / "a" / "b"), "relative": "a", "none": ""}
    monkeypatch.setenv("XDG_CACHE_HOME", homes[old])
    monkeypatch.setenv("HOME", "" if old == "none" else str(tmp_path))
    if old == "none":
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    mask = os.umask(0)
    try:
        cache.store("0" * 64, b"body")
    finally:
        os.umask(mask)
    assert (cache.load("0" * 64) == b"body") is (old == "umask")
    made = [path for path in tmp_path.rglob("*") if path.is_dir()]
    assert len(made) == (4 if old == "umask" else 0)
    assert all(stat.S_IMODE(path.stat().st_mode) == 0o700 for path in made)
