"""The object cache: damaged, half-written, unwritable and shared folders do no harm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hlo import cache
from hlo.backend.linking import compile as code
from tests.support.tiny_kernels import compiled, f32

ADD = """HloModule m
ENTRY e { x = f32[4] parameter(0)
  ROOT r = f32[4] add(x, x) }"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "objects"
    monkeypatch.setenv("HLO_CACHE_DIR", str(path))
    monkeypatch.setattr(code, "_memory", type(code._memory)())
    return path


def run() -> None:
    np.testing.assert_array_equal(compiled(ADD, cache=True)(f32(1, 2, 3, 4)), f32(2, 4, 6, 8))


def test_objects_are_found_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run()
    assert any(folder.iterdir())
    code._memory.clear()
    monkeypatch.setattr(code, "generated", _none_needed)
    run()


def _none_needed(modules: list[object]) -> list[bytes]:
    assert not modules, "every object is in the cache"
    return []


def test_folder_is_private(folder: Path) -> None:
    run()
    assert folder.stat().st_mode & 0o077 == 0


def test_folder_that_others_may_write_is_not_used(folder: Path) -> None:
    folder.mkdir(mode=0o777)
    folder.chmod(0o777)
    run()
    assert not any(folder.iterdir())


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty", "junk"])
def test_damaged_entries_are_made_anew(folder: Path, damage: str) -> None:
    run()
    code._memory.clear()
    for file in folder.iterdir():
        data = bytearray(file.read_bytes())
        if damage == "cut":
            data = data[: len(data) // 2]
        elif damage == "flipped":
            data[len(data) // 2] ^= 1
        elif damage == "empty":
            data = bytearray()
        else:
            data = bytearray(b"junk" * 10)
        file.write_bytes(data)
    run()


def test_half_written_temporary_files_are_not_read(folder: Path) -> None:
    run()
    (folder / ".new-killed").write_bytes(b"half")
    code._memory.clear()
    run()


def test_folder_that_cannot_be_written(folder: Path) -> None:
    folder.mkdir()
    folder.chmod(0o500)
    try:
        run()
    finally:
        folder.chmod(0o700)


def test_path_that_cannot_be_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("HLO_CACHE_DIR", str(tmp_path / "file" / "objects"))
    with cache.folder() as place:
        assert place is None
    run()


def test_sweep_drops_the_files_used_longest_ago(folder: Path) -> None:
    """And those alone: the user may have named a folder with files of his own."""
    folder.mkdir()
    names = [cache.key(str(n)) for n in range(7)] + [".new-0123456789abcdef"]
    others = ["photo.jpg", "key", cache.key("x")[1:], ".new-", "q" + cache.key("x")]
    for n, name in enumerate([*names, *others]):
        (folder / name).write_bytes(bytes(100))
        os.utime(folder / name, (n, n))
    with cache.folder() as place:
        assert place is not None
        cache.sweep(place, limit=400)
    assert sorted(f.name for f in folder.iterdir()) == sorted([*names[5:], *others])


def test_the_digest_says_when_the_folder_is_swept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """About one of SWEEP_EVERY files, whichever process writes it; so no process does at first."""
    swept: list[int] = []
    monkeypatch.setattr(cache, "sweep", swept.append)
    sweeps = []
    for n in range(4 * cache.SWEEP_EVERY):
        cache.store(cache.key(str(n)), b"body")
        sweeps.append(len(swept))
    assert sweeps[0] == 0
    assert 1 <= sweeps[-1] <= 16
    first = next(n for n, count in enumerate(sweeps) if count)
    cache.store(cache.key(str(first)), b"body")
    assert len(swept) == sweeps[-1] + 1  # the same file again: the same answer
    assert len(list(folder.iterdir())) == 4 * cache.SWEEP_EVERY


def test_store_and_load(folder: Path) -> None:
    assert cache.load("name") is None
    cache.store("name", b"body")
    assert cache.load("name") == b"body"


WRITER = """
import sys
from hlo import cache
for n in range(60):
    cache.store(f"k{n % 7}", bytes([n % 7]) * 20000)
    body = cache.load(f"k{(n * 3) % 7}")
    assert body is None or (len(body) == 20000 and len(set(body)) == 1)
"""


def test_two_processes_at_once(folder: Path) -> None:
    children = [subprocess.Popen([sys.executable, "-c", WRITER]) for _ in range(2)]
    assert [child.wait(timeout=60) for child in children] == [0, 0]
    assert cache.load("k3") == b"\x03" * 20000


def test_keys_tell_texts_apart() -> None:
    assert cache.key("ab", "c") != cache.key("a", "bc")


KILLED = """
import os
from hlo import cache
os.replace = lambda *a, **k: os.kill(os.getpid(), 9)
cache.store("k", b"body" * 1000)
"""


def test_process_killed_while_writing_leaves_no_entry(folder: Path) -> None:
    child = subprocess.run([sys.executable, "-c", KILLED], timeout=60)
    assert child.returncode == -9
    assert cache.load("k") is None
    cache.store("k", b"whole")
    assert cache.load("k") == b"whole"
