"""Archives of arrays (npz): unpacked member by member, never to more than inputs may have.

A small archive can say, or hold, petabytes. So the sizes that its directory gives are added up
before any member is read, and zipfile gives no more of a member than its directory says. It does
so piece by piece for the two methods that NumPy writes; others are refused.
"""

from __future__ import annotations

import io
import math
import zipfile
from collections.abc import Iterator
from typing import IO

import numpy as np

from hlo.errors import HloError
from hlo.tools.files.input_size import check_size

MOST_MEMBERS = 100_000
ENTRY = b"PK\1\2"  # begins each member's entry in the directory (PKWARE APPNOTE 4.3.12)
METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
SUFFIX = ".npy"
HEADERS = {  # by version; 3 is for names of fields, which no array of HLO has
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def unpacked(data: bytes, name: str) -> Iterator[tuple[str, np.ndarray]]:
    """The arrays of an npz file and their names.

    Raises HloError, and what zipfile, zlib and NumPy raise for damaged files.
    """
    entries = data.count(ENTRY)
    if entries > MOST_MEMBERS:
        raise HloError("file", f"{name} has {entries:,} members, expected at most {MOST_MEMBERS:,}")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()
        check_size(sum(member.file_size for member in members), f"{name}, unpacked,")
        for member in members:
            _check_method(member, name)
            with archive.open(member) as stream:
                _check_header(stream, member, name)
                array = np.lib.format.read_array(stream, allow_pickle=False)
            yield member.filename.removesuffix(SUFFIX), array


def _check_method(member: zipfile.ZipInfo, name: str) -> None:
    if member.compress_type not in METHODS:
        raise HloError(
            "file",
            f"{name}: {member.filename} is packed by method {member.compress_type}, expected "
            "stored or deflated, as numpy.savez and numpy.savez_compressed write",
        )


def _check_header(stream: IO[bytes], member: zipfile.ZipInfo, name: str) -> None:
    """NumPy makes the array that a header describes before it reads the first element."""
    reader = HEADERS.get(np.lib.format.read_magic(stream))
    if reader is not None:
        dims, _, dtype = reader(stream)
        wanted = math.prod(dims) * dtype.itemsize
        if wanted > member.file_size:
            raise HloError(
                "file",
                f"{name}: {member.filename} has {member.file_size:,} bytes, expected "
                f"{wanted:,} and more, as its header says",
            )
    stream.seek(0)
