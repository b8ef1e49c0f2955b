"""Runs that can be stopped, as LLVM IR: how native code learns that it has to end.

    hlo_enter(entry, frame)                      a run without the interpreter's lock; its status
    hlo_poll_step(frame)                         asked between steps: 0, or why the run has to stop
    hlo_poll()                                   the same inside a kernel, of the thread's own run
    hlo_pieces(kernel, row, begin, end, piece, run, owner)   units, with a question in between

What a run has to know is in its frame's header (slots.py): everybody who works for it reads the
word SLOT_STOP, and its own thread writes it. That thread looks at a clock when it polls, and every
LOOK_NS the main thread takes the interpreter's lock and lets Python look at signals; a signal's
exception stays in the thread's state and is the run's. Kernels know no frame: a thread keeps its
run's under a key of the system, a worker of the pool the same with the lowest bit set, for it only
reads. When the interpreter exits, runs on other threads than the main one stop.
"""

from __future__ import annotations

from functools import partial

from hlo.backend.entry import clock_ir
from hlo.backend.entry.layouts import Frame
from hlo.backend.entry.process import (
    ENTER,
    EXITING,
    LATE,
    LEAVE,
    LIMIT,
    PIECES,
    POLL,
    POLL_NS,
    POLL_STEP,
    RAISED,
    RESTORE_THREAD,
    RUN_STATE,
    RUN_STATE_BYTES,
    SAVE_THREAD,
    RunState,
)
from hlo.backend.ir.interface import NULL, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word
from hlo.backend.isa.generic import FloatMode
from hlo.backend.isa.select import base_of

LOOK_NS = 50_000_000  # Between two looks of the main thread at signals.
NEVER = 2**63 - 1
# How long, and how often, an exit waits for runs to leave native code.
WAITED_US, WAITS = 1000, 100

_NOW = prototype("i64", "hlo_now")
_LOOK = prototype("i32", "hlo_look", "ptr", "i64")
_GET = prototype("ptr", "pthread_getspecific", "i32")
_SET = prototype("i32", "pthread_setspecific", "i32", "ptr")
_SELF = prototype("i64", "pthread_self")
_SLEEP = prototype("i32", "usleep", "i32")
_SIGNALS = prototype("i32", "PyErr_CheckSignals")
_LESSER = prototype("i64", "llvm.smin.i64", "i64", "i64")


def text(architecture: str) -> str:
    """The functions for a processor architecture as `platform.machine()` calls it."""
    unit = Unit()
    define(unit, architecture)
    return unit.text()


def define(unit: Unit, architecture: str) -> None:
    """The same in a unit with others."""
    mode = base_of(architecture).float_mode
    unit.data(RUN_STATE, f"global [{RUN_STATE_BYTES} x i8] zeroinitializer, align 64")
    unit.define(_NOW, _now, linkage="internal", attributes="noinline")
    unit.define(LIMIT, _limit)
    unit.define(LEAVE, _leave)
    unit.define(ENTER, _enter)
    unit.define(POLL_STEP, _poll_step)
    unit.define(POLL, _poll)
    look = partial(_look, mode)
    unit.define(_LOOK, look, linkage="internal", attributes="noinline cold")
    unit.define(PIECES, _pieces)


def _state(p: Procedure) -> Word:
    return p.symbol(RUN_STATE)


def _now(p: Procedure) -> None:
    p.ret(clock_ir.now(p, clock_ir.COARSE))


def _limit(p: Procedure, deadline: Word) -> None:
    """The next run of this thread ends at a time of the clock. 0: whenever it likes."""
    key = _state(p).load(RunState.limit_key)
    p.call(_SET, key, deadline.to("ptr"))
    p.ret()


def _leave(p: Procedure) -> None:
    """The interpreter exits: runs on other threads stop; this waits a moment until they have."""
    state = _state(p)
    state.store(RunState.exits, 1, "seq_cst")
    with p.loop(p.word(0, "i32")) as (again, done):
        (waits,) = again.words
        is_used = state.load(RunState.active, "seq_cst") > 0
        done.go_unless(is_used & waits.below(WAITS))
        p.call(_SLEEP, WAITED_US)
        again.go(waits + 1)
    p.ret()


def _enter(p: Procedure, entry: Word, frame: Word) -> None:
    """Run an entry without the interpreter's lock; its status, or why it stopped."""
    state = _state(p)
    key, limit_key = state.load(RunState.run_key), state.load(RunState.limit_key)
    outer, limit = p.call(_GET, key), p.call(_GET, limit_key)
    is_limited = limit.ne(NULL)
    with p.when(is_limited):
        p.call(_SET, limit_key, NULL)
    deadline = is_limited.select(limit.to("i64"), p.word(NEVER))
    following = p.call(_LESSER, p.call(_NOW) + LOOK_NS, deadline)
    frame.store(Frame.stop, 0, "monotonic")
    frame.store(Frame.fuel, POLL_NS)
    frame.store(Frame.next, following)
    frame.store(Frame.deadline, deadline)
    thread_id = p.call(_SELF)
    is_main = thread_id.eq(state.load(RunState.main_thread))
    counted = (~is_main).to("i32")
    p.call(_SET, key, frame)
    state.update("add", RunState.active, counted, "seq_cst")
    thread = p.call(SAVE_THREAD)
    frame.store(Frame.main, is_main.select(thread, NULL))
    status = p.call_address("i32", entry, frame)
    state.update("sub", RunState.active, counted, "seq_cst")
    p.call(_SET, key, outer)
    p.call(RESTORE_THREAD, thread)
    stop = frame.load(Frame.stop, "monotonic")
    p.ret(stop.ne(0).select(stop.to("i32"), status))


def _poll_step(p: Procedure, frame: Word) -> None:
    """0, or why the run has to stop; asked by its own thread."""
    stop = frame.load(Frame.stop, "monotonic")
    with p.when(stop.ne(0)):
        p.ret(stop.to("i32"))
    frame.store(Frame.fuel, POLL_NS)
    now = p.call(_NOW)
    is_due = now >= frame.load(Frame.next)
    is_other = frame.load(Frame.main).eq(NULL)
    exits = _state(p).load(RunState.exits, "monotonic").ne(0)
    with p.when(exits & is_other):
        frame.store(Frame.stop, EXITING, "monotonic")
        p.ret(p.word(EXITING, "i32"))
    with p.when(is_due):
        p.ret(p.call(_LOOK, frame, now))
    p.ret(p.word(0, "i32"))


def _poll(p: Procedure) -> None:
    """The same of the thread's own run, if it has one. Workers do not look at the clock."""
    key = _state(p).load(RunState.run_key)
    run = p.call(_GET, key)
    is_worker = run.to("i64").to("i1")
    with p.when(is_worker):
        p.ret(run.item("i8", -1).load(Frame.stop, "monotonic").to("i32"))
    with p.when(run.eq(NULL)):
        p.ret(p.word(0, "i32"))
    p.ret(p.call(POLL_STEP, run))


def _look(mode: FloatMode | None, p: Procedure, frame: Word, now: Word) -> None:
    """Whether the time is over, then what Python says of signals, on the main thread. Python code
    runs in the usual floating-point mode.
    """
    own, usual = p.stack("i32", 4), p.stack("i32", 4)
    deadline = frame.load(Frame.deadline)
    with p.when(now >= deadline):
        frame.store(Frame.stop, LATE, "monotonic")
        p.ret(p.word(LATE, "i32"))
    thread = frame.load(Frame.main)
    with p.when(thread.ne(NULL)):
        if mode:
            mode.save(p.w, own)
            usual.put(p.word(mode.usual, "i32"))
            mode.set(p.w, usual)
        p.call(RESTORE_THREAD, thread)
        answer = p.call(_SIGNALS)
        frame.store(Frame.main, p.call(SAVE_THREAD))
        if mode:
            mode.set(p.w, own)
        with p.when(answer.ne(0)):
            frame.store(Frame.stop, RAISED, "monotonic")
            p.ret(p.word(RAISED, "i32"))
    following = p.call(_NOW) + LOOK_NS
    frame.store(Frame.next, p.call(_LESSER, following, deadline))
    p.ret(p.word(0, "i32"))


def _pieces(
    p: Procedure, kernel: Word, row: Word, begin: Word, end: Word, piece: Word, frame: Word,
    owner: Word,
) -> None:  # fmt: skip
    """Units in pieces. frame: null of a run that nobody stops. owner: 1 on the run's own thread."""
    with p.when(frame.eq(NULL)):
        p.call_address("void", kernel, row, begin, end)
        p.ret()
    is_owner = owner.to("i1")
    marked = p.join()
    marked.go_if(is_owner)
    p.call(_SET, _state(p).load(RunState.run_key), frame.item("i8", 1))
    marked.here()
    with p.loop(begin) as (again, leave):
        (first,) = again.words
        leave.go_unless(first < end)
        works = p.join()
        with p.when(is_owner):
            leave.go_unless(p.call(POLL_STEP, frame).eq(0))
            works.go()
        leave.go_unless(frame.load(Frame.stop, "monotonic").eq(0))
        works.here()
        following = p.call(_LESSER, first + piece, end)
        p.call_address("void", kernel, row, first, following)
        again.go(following)
    unmarked = p.join()
    unmarked.go_if(is_owner)
    p.call(_SET, _state(p).load(RunState.run_key), NULL)
    unmarked.here()
    p.ret()
