"""Inputs beyond the limit: refused soon and in little memory, wherever a command reads."""

from __future__ import annotations

import io
import os
import struct
import threading
import tracemalloc
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hlo.errors import HloError
from hlo.tools.cases.arrays import load_npz
from hlo.tools.files import archives
from hlo.tools.files.input_size import limited
from hlo.tools.files.reading import read_bytes
from tests.support.command import call

GOOD = "HloModule m\nENTRY e { x = f32[4] parameter(0)\n  ROOT r = f32[4] negate(x) }\n"
# Every way by which a command reads; {} is the file.
READERS = {
    "opt": ("hlo-opt", "{}"),
    "tokens": ("hlo-opt", "{}", "--emit=tokens"),
    "pipeline": ("hlo-opt", "good.hlo", "--pipeline-file={}"),
    "check": ("hlo-opt", "check", "{}"),
    "eq": ("hlo-opt", "eq", "good.hlo", "{}"),
    "fmt": ("hlo-opt", "fmt", "{}"),
    "run": ("hlo-run", "{}"),
    "bench": ("hlo-run", "bench", "{}"),
    "memory": ("hlo-run", "memory", "{}"),
    "profile": ("hlo-run", "profile", "{}"),
    "inputs": ("hlo-run", "good.hlo", "--inputs={}"),
    "input": ("hlo-run", "good.hlo", "--input=@{}"),
    "compare": ("hlo-run", "good.hlo", "--compare={}"),
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("good.hlo").write_text(GOOD)
    return tmp_path


def sparse() -> str:
    with open("sparse.npz", "wb") as file:
        file.truncate(100 << 30)
    return "sparse.npz"


@pytest.fixture
def endless() -> Iterator[str]:
    """A pipe that never ends, as far as its reader knows."""
    os.mkfifo("pipe.npz")

    def feed() -> None:
        try:
            with open("pipe.npz", "wb", buffering=0) as pipe:
                while True:
                    pipe.write(b" " * 65536)
        except BrokenPipeError:
            pass

    thread = threading.Thread(target=feed, daemon=True)
    thread.start()
    yield "pipe.npz"
    thread.join(10)
    assert not thread.is_alive()


def assert_refused(name: str, file: str, *flags: str) -> None:
    command, *arguments = READERS[name]
    outcome = call(command, *(a.format(file) for a in arguments), *flags)
    assert outcome.code == 1
    assert "error[limit]" in outcome.err
    assert f"{file} has " in outcome.err
    assert "--max-input-size=none" in outcome.err
    assert "Traceback" not in outcome.err


@pytest.mark.parametrize("name", READERS)
def test_what_no_memory_holds(name: str) -> None:
    assert_refused(name, sparse())


@pytest.mark.parametrize("name", READERS)
def test_pipes_without_an_end(name: str, endless: str) -> None:
    assert_refused(name, endless, "--max-input-size=1M")


@pytest.mark.parametrize("command", ["hlo-opt", "hlo-run"])
def test_standard_input(command: str) -> None:
    text = f"// {' ' * 2000}\n{GOOD}".encode()
    assert call(command, "-", stdin=text).code == 0
    outcome = call(command, "-", "--max-input-size=1K", stdin=text)
    assert outcome.code == 1
    assert "standard input has more than 1,024 bytes" in outcome.err


@pytest.mark.parametrize(
    ("size", "code"),
    [("100", 0), ("1K", 0), ("99", 1), ("0", 1), ("none", 0), ("8T", 0), ("1.5", 2), ("-1", 2)],
)
def test_the_flag(size: str, code: int) -> None:
    Path("exact.hlo").write_text(GOOD.ljust(100))
    assert call("hlo-opt", "exact.hlo", f"--max-input-size={size}").code == code
    assert call("hlo-opt", "exact.hlo").code == 0  # the flag held for its command alone


@pytest.mark.skipif(not os.path.exists("/dev/zero"), reason="a device of Unix")
def test_memory_stays_near_the_limit() -> None:
    tracemalloc.start()
    try:
        with limited(4 << 20), pytest.raises(HloError, match="more than 4,194,304"):
            read_bytes("/dev/zero")
        assert tracemalloc.get_traced_memory()[1] < 6 << 20
    finally:
        tracemalloc.stop()


def zipped(method: int, *members: tuple[str, bytes]) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        for name, data in members:
            archive.writestr(name, data)
    return made.getvalue()


def npy(array: np.ndarray) -> bytes:
    made = io.BytesIO()
    np.save(made, array)
    return made.getvalue()


def saying(data: bytes, size: int) -> bytes:
    """The archive with a directory that gives this size for its members."""
    changed, at = bytearray(data), -1
    for head, place in ((b"PK\3\4", 22), (b"PK\1\2", 24)):
        while (at := data.find(head, at + 1)) >= 0:
            changed[at + place : at + place + 4] = struct.pack("<I", size)
    return bytes(changed)


def overlapping(count: int) -> bytes:
    """Many members of one directory that are the same bytes of the file."""
    data = zipped(zipfile.ZIP_DEFLATED, ("a.npy", npy(np.zeros(100_000, np.uint8))))
    start = data.index(b"PK\1\2")
    end = data.index(b"PK\5\6")
    entries = data[start:end] * count
    sizes = struct.pack("<HHII", count, count, len(entries), start)
    return data[:start] + entries + data[end : end + 8] + sizes + b"\0\0"


def header(text: str) -> bytes:
    data = text.encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(data)) + data


ZEROS = npy(np.zeros(16 << 20, np.uint8))
LONG = "{'descr': '<f8', 'fortran_order': False, 'shape': (%s,), }"
BOMBS: dict[str, tuple[str, Callable[[], bytes]]] = {
    "deflated": ("limit", lambda: zipped(zipfile.ZIP_DEFLATED, ("x.npy", ZEROS))),
    "several": ("limit", lambda: zipped(8, *[(f"{n}.npy", ZEROS[: 1 << 19]) for n in range(9)])),
    "lying": ("file", lambda: saying(zipped(zipfile.ZIP_DEFLATED, ("x.npy", ZEROS)), 1000)),
    "lying large": ("limit", lambda: saying(zipped(8, ("x.npy", ZEROS[:1000])), 0xFFFFFFF0)),
    "bzip2": ("file", lambda: saying(zipped(zipfile.ZIP_BZIP2, ("x.npy", ZEROS)), 1000)),
    "LZMA": ("file", lambda: saying(zipped(zipfile.ZIP_LZMA, ("x.npy", ZEROS)), 1000)),
    "overlapping": ("limit", lambda: overlapping(3000)),
    "shape": ("file", lambda: zipped(8, ("x.npy", header(LONG % 10**9)))),
    "no bytes": ("file", lambda: zipped(8, ("x.npy", header(LONG % 10**17)))),
    "members": ("file", lambda: b"PK\1\2" * (archives.MOST_MEMBERS + 1)),
}


@pytest.mark.parametrize("name", BOMBS)
def test_bombs(name: str) -> None:
    """Refused in no more memory than a few times the limit."""
    code, make = BOMBS[name]
    Path("bomb.npz").write_bytes(make())
    tracemalloc.start()
    try:
        with limited(4 << 20), pytest.raises(HloError) as caught:
            load_npz("bomb.npz")
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code == code
    assert held < 12 << 20
    assert call("hlo-run", "good.hlo", "--inputs=bomb.npz", "--max-input-size=4M").code == 1


def test_archives_within_the_limit() -> None:
    """Both of NumPy's forms; the limit is on what is unpacked."""
    array = np.zeros(1 << 20, np.float32)
    for save in (np.savez, np.savez_compressed):
        save("a.npz", x=array, y=array[:3])
        found = load_npz("a.npz")
        assert {name: a.size for name, a in found.items()} == {"x": 1 << 20, "y": 3}
        with limited(1 << 22), pytest.raises(HloError, match=r"has 4,19[45],"):
            load_npz("a.npz")
