"""write_file: a file that is written whole or not at all, and stays the file that it was.

    path, bytes --a new file beside it, renamed into place--> file
                --a file elsewhere, copied over what is there--> the same inode

Links are followed to the file that they name. A file that is there keeps mode, owner and group. One
that has further names (hard links), attributes of its own (access lists), an owner that we may not
give, or a folder that takes no new files, stays the same inode: it is overwritten once its new
bytes are known and room is reserved for them, and gets the old ones back if that fails. A file that
nobody may write is refused, to root as well, whom the kernel would let: the permission was taken
away on purpose. Devices, pipes and open descriptors (/dev/stdout, /dev/fd/3) are written directly.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO

from hlo.errors import HloError

Write = Callable[[IO[bytes]], object]

_DESCRIPTOR = re.compile(r"/dev/fd/(\d+)|/proc/self/fd/(\d+)")
_STANDARD = {"/dev/stdout": 1, "/dev/stderr": 2}
_ANY_WRITE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


def write_file(path: str, write: Write) -> None:
    """Have `write` put a file's bytes on a stream; HloError code "file" where that cannot be."""
    with _told(path):
        descriptor = _descriptor(path)
        if descriptor is not None:
            with os.fdopen(os.dup(descriptor), "wb") as stream:
                write(stream)
            return
        target, status = _target(path)
        if status is None:
            _replace(target, None, write)
        elif not stat.S_ISREG(status.st_mode):
            with open(target, "wb") as stream:
                write(stream)
        elif _keeps_inode(target, status) or not _replace(target, status, write):
            _overwrite(target, write)


def check_writable(path: str) -> None:
    """Raises what `write_file` would find wrong with the path, before the work for its bytes."""
    with _told(path):
        if path == "-" or _descriptor(path) is not None:
            return
        target, status = _target(path)
        if status is None and not os.access(os.path.dirname(target), os.W_OK | os.X_OK):
            os.stat(os.path.dirname(target))  # says that it is absent, if it is
            raise PermissionError(None, "its folder takes no new files")


@contextmanager
def _told(path: str) -> Iterator[None]:
    """What the system refuses, as an error that names the path."""
    try:
        yield
    except IsADirectoryError:
        raise HloError("file", f"{path} is a directory, expected a file name") from None
    except OSError as error:
        reason = error.strerror or str(error)
        raise HloError("file", f"{path} cannot be written: {reason}") from None


def _descriptor(path: str) -> int | None:
    """The open descriptor that a path is another name of."""
    match = _DESCRIPTOR.fullmatch(path)
    return int(match[1] or match[2]) if match else _STANDARD.get(path)


def _target(path: str) -> tuple[str, os.stat_result | None]:
    """The file behind all links, and what it is; None if it is yet to be made."""
    if "\0" in path or not os.path.basename(path):
        raise HloError("file", f"{path!r} is no file name")
    target = os.path.realpath(path)
    try:
        status = os.stat(target)
    except FileNotFoundError:
        return target, None
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError
    if not os.access(target, os.W_OK) or not status.st_mode & _ANY_WRITE:
        raise PermissionError(None, "it is read-only")
    return target, status


def _keeps_inode(target: str, status: os.stat_result) -> bool:
    """Whether a new file in its place would lose what the file is."""
    if status.st_nlink > 1:
        return True
    try:
        own = os.listxattr(target)
    except (OSError, AttributeError):  # a file system, or a system, without them
        return False
    return any(not name.startswith("security.") for name in own)  # labels come with the folder


def _replace(target: str, status: os.stat_result | None, write: Write) -> bool:
    """Write a new file and rename it; False, with nothing done, where the old one has to stay.

    status: the old file's.
    """
    private = stat.S_IRUSR | stat.S_IWUSR
    try:
        handle, name = _new_file(os.path.dirname(target), 0o666 if status is None else private)
    except PermissionError:
        if status is None:
            raise
        return False
    try:
        with os.fdopen(handle, "wb") as stream:
            if status is not None and not _takes_over(stream.fileno(), status):
                os.unlink(name)
                return False
            write(stream)
            stream.flush()
        os.replace(name, target)
    except BaseException:
        if os.path.lexists(name):
            os.unlink(name)
        raise
    return True


def _new_file(folder: str, mode: int) -> tuple[int, str]:
    """A new file, open, of a name that is short: the target's may be as long as names can be."""
    while True:
        name = os.path.join(folder, f".hlo-{os.urandom(8).hex()}")
        try:
            return os.open(name, os.O_RDWR | os.O_CREAT | os.O_EXCL, mode), name
        except FileExistsError:
            continue


def _takes_over(handle: int, status: os.stat_result) -> bool:
    """Give a new file the owner, group and mode of an old one; False if that is not allowed."""
    try:
        now = os.fstat(handle)
        if (now.st_uid, now.st_gid) != (status.st_uid, status.st_gid):
            os.fchown(handle, status.st_uid, status.st_gid)
        os.fchmod(handle, stat.S_IMODE(status.st_mode))
    except PermissionError:
        return False
    return True


def _overwrite(target: str, write: Write) -> None:
    """Put new bytes into the file that is there; a failure leaves the old ones."""
    import shutil  # for files that stay the same inode
    import tempfile

    with tempfile.TemporaryFile() as made, tempfile.TemporaryFile() as old:
        write(made)
        with open(target, "r+b", buffering=0) as file:
            shutil.copyfileobj(file, old)
            try:
                _reserve(file.fileno(), made.seek(0, os.SEEK_END))
                _copy(made, file.fileno())
            except BaseException:
                _copy(old, file.fileno())
                raise


def _reserve(handle: int, size: int) -> None:
    """Room on the disk for so many bytes, where the file system can say that it has it."""
    if not size or not hasattr(os, "posix_fallocate"):
        return
    try:
        os.posix_fallocate(handle, 0, size)
    except OSError as error:
        if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
            raise


def _copy(source: IO[bytes], handle: int) -> None:
    """All of one file's bytes as all that another one holds. Nothing is left in a buffer."""
    source.seek(0)
    os.lseek(handle, 0, os.SEEK_SET)
    size = 0
    while chunk := memoryview(source.read(1 << 20)):
        size += len(chunk)
        while chunk:
            chunk = chunk[os.write(handle, chunk) :]
    os.ftruncate(handle, size)
