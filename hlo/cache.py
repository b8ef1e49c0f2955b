"""Object cache: files on disk, named by a digest of all that determines what they hold.

    name, bytes --store--> a file of our own folder --load--> the same bytes, or None

Among them are objects that are run as machine code, so that only a folder which belongs to this
user and which nobody else may write is used, and in it only regular files of the same kind; links
are not followed. A file is a digest of its name and of what follows, then the bytes. It is written
under a temporary name and renamed, so that a reader sees all or nothing; whatever cannot be read,
is damaged or cannot be written counts as absent. When the files pass LIMIT_BYTES, those used
longest ago go; what the cache did not write stays.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from hlo.hashing import DIGEST_BYTES, hasher
from hlo.source import shown

log = logging.getLogger(__name__)

LIMIT_BYTES = 512 * 1024 * 1024
SWEEP_EVERY = 64  # one of so many files that are written has the folder's size looked at

MAGIC = b"hlo-object-3\n"
HEAD_BYTES = len(MAGIC) + DIGEST_BYTES
OTHERS_WRITE = 0o022
TEMPORARY = ".new-"
OWN_NAME = rf"p?[0-9a-f]{{64}}|{re.escape(TEMPORARY)}[0-9a-f]{{16}}"
FILE_FLAGS = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK  # a FIFO shall not keep us waiting

_refused: set[str] = set()  # folders that were named in a warning


def key(*texts: str) -> str:
    """The name of what these texts determine."""
    digest = hasher()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")  # an argument may be any bytes
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def chosen_folder() -> Path | None:
    """Where the cache is to be: HLO_CACHE_DIR (empty: nowhere), else hlo/objects in the user's
    cache folder."""
    chosen = os.environ.get("HLO_CACHE_DIR")
    if chosen is not None:
        return Path(chosen) if chosen and "\0" not in chosen else None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home, "hlo", "objects") if os.path.isabs(home) else None


@contextlib.contextmanager
def folder() -> Iterator[int | None]:
    """The cache's folder, open, made if need be; None where there is none that is ours alone."""
    path = chosen_folder()
    handle = None if path is None else _opened(path)
    try:
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _opened(path: Path) -> int | None:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    try:
        try:
            handle = os.open(path, flags)
        except FileNotFoundError:
            _make(path)
            handle = os.open(path, flags)
    except OSError as error:
        log.debug("cache folder %s: %s", path, error)
        return None
    reason = _reason_against(handle, path)
    if reason:
        os.close(handle)
        if str(path) not in _refused:
            _refused.add(str(path))
            log.warning("the cache folder %s is not used: %s", shown(str(path)), reason)
        return None
    return handle


def _make(path: Path) -> None:
    """Folders that the user alone may enter, whatever the umask."""
    missing = [p for p in (path, *path.parents) if not p.exists()]
    for folder in reversed(missing):
        with contextlib.suppress(FileExistsError):  # another process was faster
            folder.mkdir(mode=0o700)


def _reason_against(handle: int, path: Path) -> str:
    """Why code from an open folder is not to be trusted; empty: it is ours alone."""
    status = os.fstat(handle)
    owner, mode = status.st_uid, stat.S_IMODE(status.st_mode)
    if owner != os.geteuid():
        return f"it belongs to user {owner}, expected {os.geteuid()}"
    if mode & OTHERS_WRITE:
        return f"others may write to it (mode {mode:04o}), expected 0700: chmod go-w"
    try:
        link = os.lstat(path)
    except OSError:  # gone meanwhile
        return ""
    if stat.S_ISLNK(link.st_mode) and link.st_uid not in (0, os.geteuid()):
        return f"it is a link of user {link.st_uid}, expected a folder"
    return ""


def load(name: str) -> bytes | None:
    """The object stored under a key, if it is there and whole."""
    with folder() as place:
        data = b"" if place is None else _content(name, place)
    head, body = data[:HEAD_BYTES], data[HEAD_BYTES:]
    return body if head == _head(name, body) else None


def _content(name: str, place: int) -> bytes:
    """What a file of ours in an open folder holds; nothing where there is no such file."""
    try:
        handle = os.open(name, os.O_RDONLY | FILE_FLAGS, dir_fd=place)
    except OSError:
        return b""
    try:
        status = os.fstat(handle)
        if not _is_own_file(status):
            return b""
        with open(handle, "rb", closefd=False) as file:
            data = file.read(status.st_size)
        with contextlib.suppress(OSError):
            os.utime(handle)  # used now: the sweep drops the oldest
        return data
    except OSError:
        return b""
    finally:
        os.close(handle)


def _is_own_file(status: os.stat_result) -> bool:
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_uid == os.geteuid()
        and not status.st_mode & OTHERS_WRITE
        and status.st_size <= LIMIT_BYTES
    )


def _head(name: str, body: bytes) -> bytes:
    """What a file begins with."""
    digest = hasher(f"{name}\n".encode())
    digest.update(body)
    return MAGIC + digest.digest()


def store(name: str, body: bytes) -> None:
    """Keep an object; quietly nothing where the disk does not allow it.

    The digest says whether the folder is swept, so that all processes together sweep once in
    SWEEP_EVERY files. A process that counted its own writes would sweep at its first one, or never
    if it writes few: to look at the files of a full cache takes longer than most compilations.
    """
    head = _head(name, body)
    with folder() as place:
        if place is None:
            return
        temporary = TEMPORARY + os.urandom(8).hex()
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | FILE_FLAGS
        try:
            with open(os.open(temporary, flags, 0o600, dir_fd=place), "wb") as file:
                file.write(head + body)
            os.replace(temporary, name, src_dir_fd=place, dst_dir_fd=place)
        except OSError as error:
            log.debug("cache: %s", error)
            with contextlib.suppress(OSError):
                os.unlink(temporary, dir_fd=place)
            return
        if head[-1] % SWEEP_EVERY == 0:
            sweep(place)


def sweep(place: int, limit: int | None = None) -> None:
    """Drop the files used longest ago until three quarters of the limit are left."""
    limit = LIMIT_BYTES if limit is None else limit
    found: list[tuple[float, int, str]] = []
    with contextlib.suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if not re.fullmatch(OWN_NAME, entry.name):
                continue
            with contextlib.suppress(OSError):
                status = entry.stat(follow_symlinks=False)
                found.append((status.st_mtime, status.st_size, entry.name))
    total = sum(size for _, size, _ in found)
    if total <= limit:
        return
    for _, size, name in sorted(found):
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=place)
        total -= size
        if total <= limit * 3 // 4:
            return
