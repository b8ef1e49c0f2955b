"""Reading and writing files so that bad ones are a clear error and good ones are never lost.

Outputs are written to a temporary file beside the target and renamed, so a full disk or a killed
process leaves the old file as it was.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

import numpy as np

from hlo.errors import HloError


def read_text(path: str) -> str:
    """The text of a file, `-` for standard input. Bytes that are not UTF-8 are read as Latin-1."""
    return decode(sys.stdin.buffer.read() if path == "-" else read_bytes(path))


def decode(data: bytes) -> str:
    """UTF-8, or Latin-1 where it is not: any byte may stand in a comment or a string."""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def read_bytes(path: str) -> bytes:
    """The bytes of a regular file; HloError code "file" otherwise."""
    try:
        return Path(path).read_bytes()
    except IsADirectoryError:
        raise HloError("file", f"{path} is a directory, expected a file") from None
    except FileNotFoundError:
        raise HloError("file", f"{path} does not exist, expected a file") from None
    except OSError as error:
        raise HloError("file", f"{path} cannot be read: {error.strerror}") from None


def write_text(path: str, text: str) -> None:
    """Write a text file whole or not at all; `-` is standard output."""
    if path == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_atomically(path, lambda stream: stream.write(text.encode("utf-8", "surrogateescape")))


def write_bytes(path: str, data: bytes) -> None:
    """Write a binary file whole or not at all."""
    write_atomically(path, lambda stream: stream.write(data))


def write_npz(path: str, arrays: Mapping[str, np.ndarray]) -> None:
    """Write arrays whole or not at all; a type NumPy cannot store keeps its bits and its name."""
    stored = {}
    for name, array in arrays.items():
        plain, suffix = storable(array)
        stored[name + suffix] = plain
    write_atomically(path, lambda stream: np.savez(stream, **stored))  # type: ignore[arg-type]  # arrays by name


def storable(array: np.ndarray) -> tuple[np.ndarray, str]:
    """The array as NumPy can store it, and its name's suffix `:dtype` where bits stand for it."""
    if array.dtype.kind in "biufc":
        return array, ""
    return array.view(np.dtype(f"u{array.dtype.itemsize}")), f":{array.dtype.name}"


def write_atomically(path: str, write: Callable[[IO[bytes]], object]) -> None:
    """Call `write` on a temporary file beside `path`, then rename it into place."""
    target = Path(path)
    try:
        if target.exists() and not target.is_file():
            with target.open("wb") as stream:  # a device such as /dev/stdout: nothing to rename
                write(stream)
            return
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
    except IsADirectoryError:
        raise HloError("file", f"{path} is a directory, expected a file name") from None
    except OSError as error:
        raise HloError("file", f"{path} cannot be written: {error.strerror}") from None
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
        os.chmod(name, 0o666 & ~_umask())
        os.replace(name, target)
    except OSError as error:
        Path(name).unlink(missing_ok=True)
        raise HloError("file", f"{path} cannot be written: {error.strerror or error}") from None
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
