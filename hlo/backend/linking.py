"""Linking a program's table to memory: the frame's layout, the native call's record.

Program --frame_layout--> FrameLayout; Signature, FrameLayout --record--> int64 words
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hlo.backend import call_ir
from hlo.backend.cells import Region
from hlo.backend.constants import Constants
from hlo.backend.native import NativeCall
from hlo.backend.packing import aligned
from hlo.backend.program import HEADER_SLOTS, SLOT_THREADS, Program
from hlo.ir.shape import Shape
from hlo.runtime.executable import Signature
from hlo.runtime.frames import FrameLayout

RELEASE_US = 2.0  # programs from this estimate on let other Python threads run


def frame_layout(program: Program, held: Constants) -> FrameLayout:
    """What every slot of the program's table holds."""
    cells = program.plan.cells
    arena: list[tuple[int, int, int]] = []
    fixed: list[tuple[int, int]] = []
    arguments: list[tuple[int, int]] = []
    results: list[tuple[int, int]] = []
    scratch_base = aligned(program.plan.arena_bytes)
    for slot, number in enumerate(program.table, HEADER_SLOTS):
        if number < 0:
            thread = -1 - number
            offset = scratch_base + thread * program.scratch_bytes
            arena.append((slot, offset, number))
            continue
        cell = cells[number]
        match cell.region:
            case Region.ARENA:
                arena.append((slot, cell.offset, number))
            case Region.ARGUMENT:
                arguments.append((slot, cell.index))
            case Region.RESULT:
                results.append((slot, cell.index))
            case Region.DONATED:
                results.append((slot, cell.result))
            case Region.CONSTANT:
                fixed.append((slot, held.addresses.get(number, 0)))
    used = {number for _, _, number in arena}
    sizes = {n: cells[n].size if n >= 0 else program.scratch_bytes for n in used}
    head = [0] * HEADER_SLOTS
    head[SLOT_THREADS] = program.threads
    columns = np.array(arena, np.int64).reshape(-1, 3)
    constant = np.array(fixed, np.uint64).reshape(-1, 2)
    return FrameLayout(
        HEADER_SLOTS + len(program.table),
        scratch_base + program.threads * program.scratch_bytes,
        columns[:, 0].copy(),
        columns[:, 1].copy(),
        columns[:, 2].copy(),
        sizes,
        constant[:, 0].astype(np.int64),
        constant[:, 1].copy(),
        np.array(arguments, np.int64).reshape(-1, 2),
        np.array(results, np.int64).reshape(-1, 2),
        tuple(head),
    )


def fast_call(
    native: NativeCall, signature: Signature, layout: FrameLayout, entry: int, cost_us: float
) -> Callable[[Callable[..., object], int], Callable[..., object]]:
    """Makes the native function once the executable knows its slow call and its frame."""

    def made(slow: Callable[..., object], frame: int) -> Callable[..., object]:
        parameters = [p.shape for p in signature.parameters]
        is_tuple = signature.result.is_tuple
        outputs = list(signature.result.elements) if is_tuple else [signature.result]
        argument_rows, result_rows = shape_rows(parameters), shape_rows(outputs)
        record = np.zeros(call_ir.RECORD_WORDS, np.int64).view(Record)
        flags = (call_ir.RELEASES if cost_us >= RELEASE_US else 0) | call_ir.TUPLE * is_tuple
        record[call_ir.NARGS] = len(parameters)
        record[call_ir.NRESULTS] = len(outputs)
        record[call_ir.FRAME] = frame
        record[call_ir.ENTRY] = entry
        record[call_ir.SLOW] = id(slow)
        record[call_ir.FLAGS] = flags
        record[call_ir.ARGUMENT_SLOTS] = layout.arguments.ctypes.data
        record[call_ir.ARGUMENT_COUNT] = len(layout.arguments)
        record[call_ir.RESULT_SLOTS] = layout.results.ctypes.data
        record[call_ir.RESULT_COUNT] = len(layout.results)
        record[call_ir.ARGUMENTS] = argument_rows.words.ctypes.data
        record[call_ir.RESULTS] = result_rows.words.ctypes.data
        record.kept = (slow, argument_rows, result_rows, layout)
        return native.function(record)

    return made


class Record(np.ndarray):
    """The call record; `kept` holds what its words point to."""

    kept: tuple[object, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ShapeRows:
    """Rows of the call record for shapes, and the sizes that they point to."""

    words: np.ndarray
    sizes: np.ndarray


def shape_rows(shapes: list[Shape]) -> ShapeRows:
    """The rows of shapes in order."""
    words = np.zeros((max(1, len(shapes)), call_ir.ROW_WORDS), np.int64)
    sizes = np.array([d for s in shapes for d in s.dims] or [0], np.int64)
    position = 0
    for row, shape in zip(words, shapes, strict=False):
        row[:] = (
            id(shape.dtype.numpy),
            shape.rank,
            sizes.ctypes.data + 8 * position,
            shape.size_bytes,
        )
        position += shape.rank
    return ShapeRows(words, sizes)
