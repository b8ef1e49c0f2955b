"""Host loops: parallel loops whose threads the host of an ahead-of-time program supplies.

    hlo_parallel(kernel, row, stride, units, chunks, threads, ends, piece, frame)   as the pool's
    hlo_part(task, worker)                    what the host calls, on any of its threads

The frame leads to the host's function, or to none: then the loop runs on the caller's thread. Parts
claim chunks until none is left, so that any number of them does all, and the caller comes last.
"""

from __future__ import annotations

from functools import partial

from hlo.backend.entry import table_ir
from hlo.backend.entry.pool_ir import bounds
from hlo.backend.entry.process import PIECES
from hlo.backend.ir.interface import NULL, Field, prototype
from hlo.backend.ir.ir_module import PARALLEL
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word
from hlo.backend.isa.generic import Isa
from hlo.backend.planning.slots import SLOT_HOST_LOOPS

PART = prototype("void", "hlo_part", "ptr", "i64")
TASK_BYTES = 72
_HOST = ("ptr", "ptr", "i64")


class Host:
    """What the caller hands over: run(context, workers, part, task) calls part(task, w) for
    workers w of 0, 1, .., each on one thread at a time, and returns when all of them have."""

    run = Field.of(_HOST, 0)
    context = Field.of(_HOST, 1)
    threads = Field.of(_HOST, 2)


class Task:
    """A loop. claimed: chunks; mode: the caller's floating-point mode; piece: units between two
    questions whether the run of a frame goes on."""

    claimed = Field(0)
    kernel = Field(8, "ptr")
    row = Field(16, "ptr")
    stride = Field(24)
    units = Field(32)
    chunks = Field(40)
    mode = Field(48, "i32")
    piece = Field(56)
    frame = Field(64, "ptr")


def text(isa: Isa, *, is_watched: bool = False) -> str:
    """The module of the loop and its parts. is_watched: runs can be stopped."""
    unit = Unit()
    unit.define(PARALLEL, partial(_parallel, isa, is_watched=is_watched))
    unit.define(PART, partial(_part, isa, is_watched=is_watched))
    return unit.text()


def _parallel(isa: Isa, p: Procedure, *parameters: Word, is_watched: bool) -> None:
    kernel, row, stride, units, chunks, threads, _, piece, frame = parameters
    task = p.stack(f"[{TASK_BYTES} x i8]", 16)
    host = frame.get("ptr", SLOT_HOST_LOOPS)
    alone = p.join()
    alone.go_if(host.eq(NULL))
    alone.go_unless(threads > 1)
    task.store(Task.claimed, 0, "monotonic")
    for field, value in (
        (Task.kernel, kernel), (Task.row, row), (Task.stride, stride), (Task.units, units),
        (Task.chunks, chunks), (Task.piece, piece), (Task.frame, frame),
    ):  # fmt: skip
        task.store(field, value)
    if mode := isa.float_mode:
        mode.save(p.w, task.at(Task.mode))
    workers = (threads < chunks).select(threads, chunks)
    run = host.load(Host.run)
    p.call_address("void", run, host.load(Host.context), workers, p.symbol(PART.symbol), task)
    p.call(PART, task, 0)
    p.ret()
    alone.here()
    if is_watched:
        p.call(PIECES, kernel, row, 0, units, piece, frame, 1)
    else:
        p.call_address("void", kernel, row, p.word(0), units)
    p.ret()


def _part(isa: Isa, p: Procedure, task: Word, worker: Word, *, is_watched: bool) -> None:
    kernel, row, stride, units, chunks = (
        task.load(field) for field in (Task.kernel, Task.row, Task.stride, Task.units, Task.chunks)
    )
    own = table_ir.slot(row, worker * stride)
    mode, before = isa.float_mode, p.stack("i32", 4)
    if mode:
        mode.save(p.w, before)
        mode.set(p.w, task.at(Task.mode))
    with p.loop() as (again, done):
        chunk = task.update("add", Task.claimed, 1, "acq_rel")
        done.go_unless(chunk.below(chunks))
        begin, end = bounds(chunk, units, chunks)
        if is_watched:
            piece, frame = task.load(Task.piece), task.load(Task.frame)
            p.call(PIECES, kernel, own, begin, end, piece, frame, 0)
        else:
            p.call_address("void", kernel, own, begin, end)
        again.go()
    if mode:
        mode.set(p.w, before)
    p.ret()
