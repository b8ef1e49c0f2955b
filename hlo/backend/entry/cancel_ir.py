"""Cancelling, as LLVM IR: how calls of what is compiled ahead of time end early.

    hlo_enter(entry, frame, word)     a run that ends once the word, an int32 of the host's, is set
    hlo_poll_step(frame)              0, or CANCELLED
    hlo_poll()                        the same inside a kernel, of the thread's own run
    hlo_pieces(kernel, row, begin, end, piece, run, owner)   units, with a question in between

The questions are those of a run in process (run_ir.py), with other answers. Whoever finds the word
not 0 says so in the frame, where it stays: what was left out then, nobody takes for a result.
Kernels know no frame: each thread that works for a run keeps its frame in a variable of its own.
"""

from __future__ import annotations

from hlo.backend.entry.layouts import Frame
from hlo.backend.entry.process import PIECES, POLL, POLL_NS, POLL_STEP
from hlo.backend.ir.interface import NULL, Field, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word
from hlo.backend.planning.slots import SLOT_CANCEL

CANCELLED = 5  # the call's status
ENTER = prototype("i32", "hlo_enter", "ptr", "ptr", "ptr")
SYMBOLS = tuple(function.symbol for function in (ENTER, POLL, POLL_STEP, PIECES))
_RUN = "hlo_run"
_WORD = Field(0, "i32")
_LESSER = prototype("i64", "llvm.smin.i64", "i64", "i64")


def text() -> str:
    """The functions."""
    unit = Unit()
    unit.data(_RUN, "thread_local(initialexec) global ptr null, align 8")
    unit.define(ENTER, _enter)
    unit.define(POLL_STEP, _poll_step)
    unit.define(POLL, _poll)
    unit.define(PIECES, _pieces)
    return unit.text()


def _enter(p: Procedure, entry: Word, frame: Word, word: Word) -> None:
    frame.store(Frame.stop, 0, "monotonic")
    frame.put(word, SLOT_CANCEL)
    why = p.call(POLL_STEP, frame)
    with p.when(why.ne(0)):
        p.ret(why)
    place = p.symbol(_RUN)
    outer = place.get("ptr")
    place.put(frame)
    status = p.call_address("i32", entry, frame)
    place.put(outer)
    stop = frame.load(Frame.stop, "monotonic")
    p.ret(stop.ne(0).select(stop.to("i32"), status))


def _poll_step(p: Procedure, frame: Word) -> None:
    frame.store(Frame.fuel, POLL_NS)
    stop = frame.load(Frame.stop, "monotonic")
    with p.when(stop.ne(0)):
        p.ret(stop.to("i32"))
    word = frame.get("ptr", SLOT_CANCEL)
    goes_on = p.join()
    goes_on.go_if(word.eq(NULL))
    goes_on.go_if(word.load(_WORD, "monotonic").eq(0))
    frame.store(Frame.stop, CANCELLED, "monotonic")
    p.ret(p.word(CANCELLED, "i32"))
    goes_on.here()
    p.ret(p.word(0, "i32"))


def _poll(p: Procedure) -> None:
    run = p.symbol(_RUN).get("ptr")
    with p.when(run.eq(NULL)):
        p.ret(p.word(0, "i32"))
    p.ret(p.call(POLL_STEP, run))


def _pieces(
    p: Procedure, kernel: Word, row: Word, begin: Word, end: Word, piece: Word, frame: Word,
    owner: Word,
) -> None:  # fmt: skip
    """frame: null of a run that nobody ends. Whose thread it is does not matter."""
    del owner
    with p.when(frame.eq(NULL)):
        p.call_address("void", kernel, row, begin, end)
        p.ret()
    place = p.symbol(_RUN)
    outer = place.get("ptr")
    place.put(frame)
    with p.loop(begin) as (again, leave):
        (first,) = again.words
        leave.go_unless(first < end)
        leave.go_unless(p.call(POLL_STEP, frame).eq(0))
        following = p.call(_LESSER, first + piece, end)
        p.call_address("void", kernel, row, first, following)
        again.go(following)
    place.put(outer)
    p.ret()
