"""Linking code to this process: the native call's record of an executable.

Signature, FrameLayout, entry address --fast_call--> a Python built-in function
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from hlo.backend.codegen import call_ir
from hlo.backend.linking.native import NativeCall
from hlo.ir.shape import Shape
from hlo.runtime.executable import Signature
from hlo.runtime.frames import FrameLayout

RELEASE_US = 2.0  # programs from this estimate on let other Python threads run


def fast_call(
    native: NativeCall, signature: Signature, layout: FrameLayout, entry: int, cost_us: float
) -> Callable[[Callable[..., object], int], Callable[..., object]]:
    """Makes the native function once the executable knows its slow call and its frame.

    It takes the leaves of the parameters, and gives the leaves of the result, in a tuple if that is
    one.
    """

    def made(slow: Callable[..., object], frame: int) -> Callable[..., object]:
        parameters = [leaf for p in signature.parameters for leaf in p.shape.leaves()]
        is_tuple = signature.result.is_tuple
        outputs = list(signature.result.leaves())
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
