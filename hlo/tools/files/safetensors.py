"""Safetensors files: named arrays behind a JSON header, read without copies of their own library.

    8 bytes: the header's length n | n bytes: JSON, name -> dtype, shape, where | the arrays' bytes

Source: the format as huggingface.co/docs/safetensors describes it.
"""

from __future__ import annotations

import json
import math

import numpy as np

from hlo.errors import HloError
from hlo.ir.dtype import DTYPES
from hlo.process.memory import numpy_problem

HEAD = 8
LONGEST_HEADER = 100_000_000
TYPES = {
    "BOOL": "pred", "F16": "f16", "F32": "f32", "F64": "f64", "BF16": "bf16", "I8": "s8",
    "I16": "s16", "I32": "s32", "I64": "s64", "U8": "u8", "U16": "u16", "U32": "u32", "U64": "u64",
    "F8_E4M3": "f8e4m3fn", "F8_E5M2": "f8e5m2", "F8_E8M0": "f8e8m0fnu", "C64": "c64",
}  # fmt: skip


def is_safetensors(data: bytes) -> bool:
    """Whether bytes begin as such a file does."""
    size = int.from_bytes(data[:HEAD], "little")
    return 2 <= size <= min(LONGEST_HEADER, len(data) - HEAD) and data[HEAD : HEAD + 1] == b"{"


def safetensors(data: bytes, name: str) -> dict[str, np.ndarray]:
    """The arrays of a file by name. Raises HloError "file" where the header cannot be true."""
    size = int.from_bytes(data[:HEAD], "little")
    try:
        header = json.loads(data[HEAD : HEAD + size])
    except (ValueError, RecursionError) as error:
        raise HloError("file", f"{name} is no readable safetensors file: {error}") from None
    if not isinstance(header, dict):
        raise HloError("file", f"{name}: its header is no object, expected names and arrays")
    body = memoryview(data)[HEAD + size :]
    return {
        key: _array(body, row, f"{name}: {key}")
        for key, row in header.items()
        if key != "__metadata__"
    }


def _array(body: memoryview, row: object, name: str) -> np.ndarray:
    fields = row if isinstance(row, dict) else {}
    kind = fields.get("dtype")
    dims, offsets = (_sizes(fields.get(key), name) for key in ("shape", "data_offsets"))
    if not isinstance(kind, str) or kind not in TYPES:
        raise HloError("file", f"{name} is of type {kind}, expected one of {', '.join(TYPES)}")
    if len(offsets) != 2:
        raise HloError("file", f"{name} lies at {offsets}, expected a start and an end")
    numpy = DTYPES[TYPES[kind]].numpy
    assert numpy is not None, "an array's type"
    start, end = offsets
    problem = numpy_problem(dims, numpy.itemsize)
    if problem or end - start != math.prod(dims) * numpy.itemsize or end > len(body):
        found = problem or f"{end - start} bytes of {len(body)}"
        raise HloError("file", f"{name} has {found}, expected those of {kind}{dims}")
    return np.frombuffer(body[start:end], numpy).reshape(dims)


def _sizes(value: object, name: str) -> list[int]:
    """A list of sizes or places."""
    sizes: list[int] = value if isinstance(value, list) else [value]  # type: ignore[list-item]  # below
    if not all(isinstance(n, int) and 0 <= n < 1 << 62 for n in sizes):
        raise HloError("file", f"{name} has {value}, expected a list of numbers from 0")
    return sizes
