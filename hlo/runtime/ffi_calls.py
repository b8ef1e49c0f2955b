"""Templates of call frames: what a native call of a handler copies and fills in.

    shapes, attributes --frame_template--> bytes, pointers within them, where addresses go

All that a call changes lies in one piece: the frame, the lists of its buffers, the buffers. What it
does not (types, dimensions, attributes) stays where it is.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from msgspec import Struct

from hlo.ir.shape import Shape
from hlo.runtime.ffi_frames import (
    BUFFER,
    I64,
    INT,
    STAGES,
    TOKEN,
    TYPES,
    Buffer,
    CallFrame,
    P,
    Values,
    call_frame,
)

MOST_BYTES = 16384  # of a template, which lies on the stack: some 250 buffers
EXECUTE_STAGE = STAGES.index("execute")


class Template(Struct, frozen=True):
    """A call frame of a handler that each call copies.

    memory: the frame and what changes with it. pointers: int64[n, 2], places in it and what they
    point at; buffers: int64[n, 2], places in it and the leaf whose address goes there; copies:
    int64[n, 3], result and operand leaves and bytes: of results that begin as operands. Leaves are
    counted through operands, then results. keeps: what it points at.
    """

    memory: np.ndarray
    pointers: np.ndarray
    buffers: np.ndarray
    copies: np.ndarray
    keeps: object


def frame_template(
    api: Any,
    operands: Sequence[Shape],
    results: Sequence[Shape],
    attributes: Mapping[str, Any],
    context: int,
    shared: Mapping[int, int],
) -> Template | None:
    """The template of calls with these leaves; None where they are too many.

    shared: result leaf -> operand leaf whose memory it is to have.
    """
    leaves = (*operands, *results)
    lists = ctypes.sizeof(CallFrame)
    first = lists + 8 * len(leaves)
    memory = np.zeros(first + ctypes.sizeof(Buffer) * len(leaves), np.uint8)
    if memory.size > MOST_BYTES:
        return None
    frame, kept = call_frame(api, EXECUTE_STAGE, (), (), attributes, context)
    types = (INT * max(1, len(leaves)))(*([BUFFER] * len(leaves)))
    frame.arguments = Values(ctypes.sizeof(Values), None, len(operands), types, None)
    frame.results = Values(ctypes.sizeof(Values), None, len(results), types, None)
    parts = [bytes(frame)]
    places = [first + ctypes.sizeof(Buffer) * n for n in range(len(leaves))]
    for leaf in leaves:
        dims = (I64 * max(1, leaf.rank))(*leaf.dims) if leaf.is_array else None
        kind = TYPES[leaf.dtype.numpy.name] if leaf.is_array and leaf.dtype.numpy else TOKEN
        rank = leaf.rank if leaf.is_array else 0
        parts.append(bytes(Buffer(ctypes.sizeof(Buffer), None, kind, None, rank, dims)))
        kept.append(dims)
    memory[:lists] = np.frombuffer(parts[0], np.uint8)
    memory[first:] = np.frombuffer(b"".join(parts[1:]), np.uint8)
    values = Values.values.offset
    pointers = [
        (CallFrame.arguments.offset + values, lists),
        (CallFrame.results.offset + values, lists + 8 * len(operands)),
        *((lists + 8 * n, place) for n, place in enumerate(places)),
    ]
    count = len(operands)
    taken = {operand: count + result for result, operand in shared.items()}
    data = Buffer.data.offset
    rows = [
        (place + data, taken.get(n, n))
        for n, (place, leaf) in enumerate(zip(places, leaves, strict=True))
        if leaf.is_array
    ]
    copies = [(count + r, o, operands[o].size_bytes) for r, o in shared.items()]
    return Template(
        memory, _table(pointers, 2), _table(rows, 2), _table(copies, 3), (frame, kept, types, P)
    )


def _table(rows: Sequence[tuple[int, ...]], width: int) -> np.ndarray:
    return np.array(rows, np.int64).reshape(-1, width)
