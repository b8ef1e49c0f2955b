"""Outputs: a file stays the file that it was, and a write that fails changes nothing."""

import errno
import os
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import IO

import numpy as np
import pytest

from hlo.errors import HloError
from hlo.tools.files import writing
from hlo.tools.files.npz import write_npz
from hlo.tools.files.reading import write_text
from hlo.tools.files.writing import check_writable, write_file
from tests.support.command import Outcome, call

PROGRAM = "HloModule m\nENTRY e { p = f32[2] parameter(0)\n ROOT n = f32[2] negate(p) }\n"
NEW = "new\n"


def changed_by_fmt(path: Path) -> Outcome:
    return call("hlo-opt", "fmt", "-i", str(path))


def changed_by_opt(path: Path) -> Outcome:
    source = path.parent.parent / "source.hlo"
    source.write_text(PROGRAM)
    return call("hlo-opt", str(source), "-o", str(path))


def changed_by_run(path: Path) -> Outcome:
    source = path.parent.parent / "source.hlo"
    source.write_text(PROGRAM)
    return call("hlo-run", str(source), "--engine=interpreter", f"--outputs={path}")


def changed_by_dump(path: Path) -> Outcome:
    """Of the files in the folder, the one that every pipeline dumps."""
    source = path.parent.parent / "source.hlo"
    source.write_text(PROGRAM)
    dumped = path.parent / "00-input.hlo"
    if not os.path.lexists(dumped):
        dumped.symlink_to(path.name)
    return call("hlo-opt", str(source), "--passes=dce", f"--dump-to={path.parent}")


WRITERS = {
    "fmt -i": changed_by_fmt,
    "-o": changed_by_opt,
    "--outputs": changed_by_run,
    "--dump-to": changed_by_dump,
}
Changed = Callable[[Path], Outcome]


@pytest.fixture(params=WRITERS)
def changed(request: pytest.FixtureRequest) -> Changed:
    return WRITERS[request.param]


@pytest.fixture
def target(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    folder.mkdir()
    path = folder / "target.hlo"
    path.write_text(PROGRAM)
    return path


def names(path: Path) -> set[str]:
    return set(os.listdir(path.parent))


def assert_rewritten(path: Path, outcome: Outcome) -> None:
    assert outcome.code == 0, outcome.err
    assert path.read_bytes() != PROGRAM.encode()


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o644, 0o755, 0o2664, 0o222])
def test_mode_survives(changed: Changed, target: Path, mode: int) -> None:
    target.chmod(mode)
    if not os.access(target, os.R_OK):
        pytest.skip("only root reads what has no permission to be read")
    assert_rewritten(target, changed(target))
    assert stat.S_IMODE(target.stat().st_mode) == mode


@pytest.mark.skipif(os.name != "posix" or os.getuid() != 0, reason="only root gives files away")
def test_owner_survives(changed: Changed, target: Path) -> None:
    os.chown(target, 1234, 2345)
    target.chmod(0o4755)
    assert_rewritten(target, changed(target))
    status = target.stat()
    assert (status.st_uid, status.st_gid) == (1234, 2345)
    assert stat.S_IMODE(status.st_mode) == 0o4755


def test_an_owner_that_cannot_be_given_keeps_the_inode(
    target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    number = target.stat().st_ino
    monkeypatch.setattr(os, "fchmod", refused)
    write_text(str(target), NEW)
    assert target.read_text() == NEW
    assert target.stat().st_ino == number
    assert names(target) == {"target.hlo"}


@pytest.mark.parametrize("length", [1, 3])
def test_symbolic_links_survive(changed: Changed, target: Path, length: int) -> None:
    path = target
    for n in range(length):
        link = path.parent / f"link{n}"
        link.symlink_to(path.name if n % 2 else path)
        path = link
    assert_rewritten(target, changed(path))
    assert path.is_symlink()
    assert not target.is_symlink()


def test_a_dangling_link_makes_its_target(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("target")
    write_text(str(link), NEW)
    assert link.is_symlink()
    assert (tmp_path / "target").read_text() == NEW


def test_a_circle_of_links_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(HloError, match="cannot be written"):
        write_text(str(tmp_path / "a"), NEW)


def test_hard_links_survive(changed: Changed, target: Path) -> None:
    other = target.parent.parent / "other"
    os.link(target, other)
    assert_rewritten(target, changed(target))
    assert other.samefile(target)
    assert other.read_bytes() == target.read_bytes()


def test_attributes_survive(changed: Changed, target: Path) -> None:
    try:
        os.setxattr(target, "user.kept", b"1")
    except (OSError, AttributeError):
        pytest.skip("no attributes here")
    assert_rewritten(target, changed(target))
    assert os.getxattr(target, "user.kept") == b"1"


def test_read_only_files_are_refused(changed: Changed, target: Path) -> None:
    target.chmod(0o444)
    outcome = changed(target)
    assert outcome.code == 1
    assert "is read-only" in outcome.err
    assert target.read_text() == PROGRAM


def test_a_new_file_has_the_usual_mode(tmp_path: Path) -> None:
    old = os.umask(0o027)
    try:
        write_text(str(tmp_path / "new"), NEW)
    finally:
        os.umask(old)
    assert stat.S_IMODE((tmp_path / "new").stat().st_mode) == 0o640


def test_names_as_long_as_names_can_be(tmp_path: Path) -> None:
    write_text(str(tmp_path / ("n" * 255)), NEW)
    with pytest.raises(HloError, match="too long"):
        write_text(str(tmp_path / ("n" * 256)), NEW)


@pytest.mark.parametrize("name", ["", "new/", "no/such", "a\0b", "."])
def test_what_is_no_file_name(tmp_path: Path, name: str) -> None:
    path = f"{tmp_path}/{name}" if name else ""
    for act in (check_writable, lambda p: write_text(p, NEW)):
        with pytest.raises(HloError) as caught:
            act(path)
        assert caught.value.code == "file"
    assert os.listdir(tmp_path) == []


# -- a full disk -------------------------------------------------------------------------------


def full(stream: IO[bytes]) -> None:
    stream.write(b"half")
    raise OSError(errno.ENOSPC, "No space left on device")


def interrupted(stream: IO[bytes]) -> None:
    stream.write(b"half")
    raise KeyboardInterrupt


@pytest.mark.parametrize("is_linked", [False, True], ids=["renamed", "overwritten"])
def test_a_failing_write_changes_nothing(target: Path, *, is_linked: bool) -> None:
    if is_linked:
        os.link(target, target.parent / "other")
    before = names(target)
    with pytest.raises(HloError, match="No space left"):
        write_file(str(target), full)
    with pytest.raises(KeyboardInterrupt):
        write_file(str(target), interrupted)
    assert target.read_text() == PROGRAM
    assert names(target) == before


@pytest.mark.parametrize("call_number", range(2))
def test_a_disk_that_fills_while_overwriting(
    target: Path, monkeypatch: pytest.MonkeyPatch, call_number: int
) -> None:
    """Room could not be reserved, or was promised and is not there: the old bytes come back."""
    os.link(target, target.parent / "other")
    wrote, copied = os.write, writing._copy  # the step that fails

    def no_room(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    def copy(source: IO[bytes], handle: int) -> None:
        monkeypatch.undo()
        wrote(handle, b"half of the new bytes, and longer than the old ones" * 9)
        monkeypatch.setattr(writing, "_copy", copied)
        no_room()

    if call_number:
        monkeypatch.setattr(writing, "_copy", copy)
    else:
        monkeypatch.setattr(os, "posix_fallocate", no_room)
    with pytest.raises(HloError, match="No space left"):
        write_text(str(target), NEW)
    assert target.read_text() == PROGRAM


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full")
@pytest.mark.parametrize("flag", ["-o", "--outputs"])
def test_the_full_device(tmp_path: Path, flag: str) -> None:
    path = tmp_path / "p.hlo"
    path.write_text(PROGRAM)
    name = "hlo-opt" if flag == "-o" else "hlo-run"
    outcome = call(name, str(path), flag, "/dev/full")
    assert outcome.code == 1
    assert "No space left" in outcome.err


# -- what is no regular file -------------------------------------------------------------------


def test_devices_and_descriptors_are_written_directly(tmp_path: Path) -> None:
    write_text(os.devnull, NEW)
    assert stat.S_ISCHR(os.stat(os.devnull).st_mode)
    path = tmp_path / "log"
    with path.open("wb") as stream:
        stream.write(b"before\n")
        stream.flush()
        number = path.stat().st_ino
        write_text(f"/dev/fd/{stream.fileno()}", NEW)
        write_text(f"/proc/self/fd/{stream.fileno()}", NEW)
        stream.write(b"after\n")
    assert path.read_bytes() == b"before\n" + 2 * NEW.encode() + b"after\n"
    assert path.stat().st_ino == number
    with pytest.raises(HloError, match="Bad file descriptor"):
        write_text("/dev/fd/987", NEW)


def test_a_pipe_takes_arrays(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    read: list[bytes] = []
    reader = threading.Thread(target=lambda: read.append(pipe.read_bytes()))
    reader.start()
    write_npz(str(pipe), {"x": np.arange(3)})
    reader.join()
    (tmp_path / "x.npz").write_bytes(read[0])
    assert np.load(tmp_path / "x.npz")["x"].tolist() == [0, 1, 2]
    assert stat.S_ISFIFO(pipe.stat().st_mode)


# -- before the work ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["folder", "read-only", "absent folder"])
def test_outputs_are_checked_before_the_work(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "p.hlo"
    path.write_text(PROGRAM)
    target = tmp_path / "target"
    if kind == "folder":
        target.mkdir()
    elif kind == "read-only":
        target.write_text("")
        target.chmod(0o444)
    else:
        target = target / "file"
    outcome = call("hlo-run", str(path), f"--outputs={target}")
    assert outcome.code == 1
    assert outcome.out == ""
    assert "inputs: made up" not in outcome.err
    assert call("hlo-opt", str(path), "-o", str(target)).code == 1
