"""Files as they are packed: gzip, zip, or plain, told by their first bytes.

bytes, name --unpacked--> (name, bytes) of each file, never more than inputs may have
"""

from __future__ import annotations

import gzip
import io
import zipfile
from collections.abc import Iterator

from hlo.errors import HloError
from hlo.tools.files.archives import ENTRY, MOST_MEMBERS
from hlo.tools.files.input_size import check_size, read_limited

GZIP, ZIP = b"\x1f\x8b", b"PK\x03\x04"
DEEPEST = 3  # packed in packed


def unpacked(data: bytes, name: str, depth: int = 0) -> Iterator[tuple[str, bytes]]:
    """What the bytes are when nothing packs them any more. Calls itself for DEEPEST levels."""
    if not data.startswith((GZIP, ZIP)):
        yield name, data
        return
    if depth == DEEPEST:
        raise HloError("limit", f"{name}: packed {depth + 1} times, expected at most {DEEPEST}")
    for inner, content in _members(data, name):
        yield from unpacked(content, inner, depth + 1)


def _members(data: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    try:
        if data.startswith(GZIP):
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as stream:
                content = read_limited(stream, f"{name}, unpacked,")  # type: ignore[arg-type]  # a stream
                yield name.removesuffix(".gz"), content
        else:
            yield from _zip_members(data, name)
    except HloError:
        raise
    except Exception as error:  # zipfile and each decompressor have errors of their own
        raise HloError("file", f"{name} cannot be unpacked: {error}") from None


def _zip_members(data: bytes, name: str) -> Iterator[tuple[str, bytes]]:
    if data.count(ENTRY) > MOST_MEMBERS:
        raise HloError("file", f"{name} has more than {MOST_MEMBERS:,} members")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        check_size(sum(member.file_size for member in members), f"{name}, unpacked,")
        for member in members:
            with archive.open(member) as stream:
                yield f"{name}/{member.filename}", read_limited(stream, member.filename)
