"""Object cache: object files on disk, keyed by IR, LLVM, CPU features and options.

One file per key in a folder that only the user may enter: a digest of what follows, then the
object. Written to a temporary name and renamed, so that a reader sees all or nothing; whatever
cannot be read, is damaged or cannot be written counts as absent. When the folder passes
LIMIT_BYTES, the files used longest ago go.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
import tempfile
from pathlib import Path

LIMIT_BYTES = 512 * 1024 * 1024
SWEEP_EVERY = 64  # writes between two looks at the folder's size
DIGEST_BYTES = 32
MAGIC = b"hlo-object-1\n"

_writes = 0


def key(*texts: str) -> str:
    """The name of what these texts determine."""
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")  # an argument may be any bytes
        digest.update(len(data).to_bytes(8, "little"))
        digest.update(data)
    return digest.hexdigest()


def folder() -> Path | None:
    """The cache's folder, made if need be; None where there is none that is ours alone."""
    chosen = os.environ.get("HLO_CACHE_DIR")
    if chosen == "":
        return None
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    path = Path(chosen) if chosen else Path(home) / "hlo" / "objects"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        status = path.stat()
    except OSError:
        return None
    if status.st_uid != os.getuid() or stat.S_IMODE(status.st_mode) & 0o022:
        return None  # others could put code there that we would run
    return path


def load(name: str) -> bytes | None:
    """The object stored under a key, if it is there and whole."""
    path = folder()
    if path is None:
        return None
    file = path / name
    try:
        data = file.read_bytes()
    except OSError:
        return None
    head = len(MAGIC) + DIGEST_BYTES
    digest, body = data[len(MAGIC) : head], data[head:]
    if data[: len(MAGIC)] != MAGIC or hashlib.sha256(body).digest() != digest:
        return None
    with contextlib.suppress(OSError):
        os.utime(file)  # used now: the sweep drops the oldest
    return body


def store(name: str, body: bytes) -> None:
    """Keep an object; quietly nothing where the disk does not allow it."""
    global _writes  # a counter of this process
    path = folder()
    if path is None:
        return
    temporary = ""
    try:
        handle, temporary = tempfile.mkstemp(prefix=".new-", dir=path)
        with os.fdopen(handle, "wb") as file:
            file.write(MAGIC + hashlib.sha256(body).digest() + body)
        os.replace(temporary, path / name)
    except OSError:
        if temporary:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
        return
    _writes += 1
    if _writes % SWEEP_EVERY == 1:
        sweep(path)


def sweep(path: Path, limit: int | None = None) -> None:
    """Drop the files used longest ago until three quarters of the limit are left."""
    limit = LIMIT_BYTES if limit is None else limit
    found: list[tuple[float, int, str]] = []
    with contextlib.suppress(OSError), os.scandir(path) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                status = entry.stat()
                found.append((status.st_mtime, status.st_size, entry.path))
    total = sum(size for _, size, _ in found)
    if total <= limit:
        return
    for _, size, file in sorted(found):
        with contextlib.suppress(OSError):
            os.unlink(file)
        total -= size
        if total <= limit * 3 // 4:
            return
