"""Linking code to this process: the native call's records of an executable.

Signature, FrameLayout, entry address --fast_call--> Python built-in functions
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

import numpy as np
from msgspec import Struct

from hlo.backend.entry import process
from hlo.backend.entry.layouts import Object, Record, Row
from hlo.backend.linking.native import NativeCall
from hlo.ir.shape import Shape, stored
from hlo.runtime.frames import FrameLayout
from hlo.runtime.native_calls import FastCall, Foreign, Native, Signature
from hlo.runtime.stops import raise_stopped

RELEASE_US = 2.0  # Programs from this estimate on let other Python threads run.


def fast_call(
    native: NativeCall,
    signature: Signature,
    layout: FrameLayout,
    entry: int,
    cost_us: float,
    *,
    waker: int = 0,
    watched: bool = False,
    tries: bool = False,
) -> FastCall:
    """Makes native functions once the executable knows its slow call and its frames.

    They take the leaves of the parameters, and give the leaves of the result, in a tuple if that is
    one. waker: the address of what wakes the program's threads. watched: the run may be stopped.
    tries: its runs show who best runs its loops.
    """
    parameters = [leaf for p in signature.parameters for leaf in p.shape.leaves()]
    outputs = [stored(leaf) for leaf in signature.result.leaves()]
    arguments, results = shape_rows(parameters), shape_rows(outputs)
    for row, shape in zip(arguments.words, parameters, strict=False):
        row[Row.kind.word : Row.given.word] = number_words(shape)
    results.words[:, Row.blocks_from.word] = _least_block(results.words[:, Row.bytes.word])
    for result, argument in signature.donated.items():
        results.words[result, Row.partner.word] = argument + 1
    flags = process.RELEASES if watched or cost_us >= RELEASE_US else 0
    flags |= process.WATCHED if watched else 0
    flags |= process.TUPLE if signature.result.is_tuple else 0
    takes_foreign = not flags & process.RELEASES
    record = _record(len(parameters), len(outputs), layout, entry, waker)
    record[Record.tries.word] = tries

    def made(
        slow: Callable[..., object], frames: int, given: frozenset[int], foreign: Foreign | None
    ) -> Native:
        own = record.copy().view(KeptRecord)
        sources, targets = arguments, results
        known = None
        if foreign is not None:
            known = foreign_words(foreign)
            sources = arguments.copy()
            sources.words[:, Row.kind.word] = 0
            own[Record.foreign.word] = known.ctypes.data if takes_foreign else 0
            targets = results.copy()
            if foreign.is_aligned:
                targets.words[:, Row.blocks_from.word] = 1
        if given:
            sources, targets = sources.copy(), targets.copy()
            sources.words[list(given), Row.given.word] = 1
            taken = [r for r, a in signature.donated.items() if a in given]
            targets.words[taken, Row.given.word] = 1
        own[Record.frames.word] = frames
        own[Record.slow.word] = id(slow)
        own[Record.flags.word] = flags | (process.GIVES if given else 0)
        own[Record.arguments.word] = sources.words.ctypes.data
        own[Record.results.word] = targets.words.ctypes.data
        own.kept = (slow, sources, targets, layout, known, foreign)
        return native.function(own)

    return FastCall(made, native.push_frame)


def _least_block(sizes: np.ndarray) -> int:
    """Results of so many bytes and more come from the free list."""
    small = sizes[sizes < process.BLOCK_BYTES]
    is_trimmed = int(small.sum()) >= process.TRIMMED_BYTES
    return process.KEPT_BYTES if is_trimmed else process.BLOCK_BYTES


def _record(
    parameters: int, outputs: int, layout: FrameLayout, entry: int, waker: int
) -> np.ndarray:
    """What all functions of a program know alike."""
    record = np.zeros(Record.words, np.int64)
    record[Record.nargs.word] = parameters
    record[Record.nresults.word] = outputs
    record[Record.entry.word] = entry
    record[Record.waker.word] = waker
    record[Record.stopped.word] = id(raise_stopped)
    record[Record.argument_slots.word] = layout.arguments.ctypes.data
    record[Record.argument_count.word] = len(layout.arguments)
    record[Record.result_slots.word] = layout.results.ctypes.data
    record[Record.result_count.word] = len(layout.results)
    return record


def foreign_words(foreign: Foreign) -> np.ndarray:
    """What the record says of another library's arrays; the objects must live as long."""
    objects = (foreign.type, foreign.description, foreign.dtype, foreign.weak, False)
    return np.array([id(thing) for thing in objects], np.int64)


def number_words(shape: Shape) -> tuple[int, int]:
    """What a scalar's row says of the objects it takes beside arrays: none of a type whose objects
    hold their bytes elsewhere than behind their first two words.
    """
    if shape.rank or shape.dtype.numpy is None:
        return 0, 0
    kind, probe = shape.dtype.numpy.type, np.ones((), np.int8).astype(shape.dtype.numpy)[()]
    held = ctypes.string_at(id(probe) + Object.content.offset, probe.nbytes)
    return (process.kind(shape.dtype), id(kind)) if held == probe.tobytes() else (0, 0)


class KeptRecord(np.ndarray):
    """The call record; `kept` holds what its words point to."""

    kept: tuple[object, ...]


class ShapeRows(Struct, frozen=True):
    """Rows of the call record for shapes, and the sizes that they point to."""

    words: np.ndarray
    sizes: np.ndarray

    def copy(self) -> ShapeRows:
        """Rows of its own, on the same sizes."""
        return ShapeRows(self.words.copy(), self.sizes)


def shape_rows(shapes: list[Shape]) -> ShapeRows:
    """The rows of shapes in order."""
    words = np.zeros((max(1, len(shapes)), Row.words), np.int64)
    sizes = np.array([d for s in shapes for d in s.dims] or [0], np.int64)
    position = 0
    for row, shape in zip(words, shapes, strict=False):
        row[:4] = (
            id(shape.dtype.numpy),
            shape.rank,
            sizes.ctypes.data + 8 * position,
            shape.size_bytes,
        )
        position += shape.rank
    return ShapeRows(words, sizes)
