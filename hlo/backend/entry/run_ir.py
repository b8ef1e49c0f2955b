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

from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.select import base_of
from hlo.backend.planning.slots import (
    SLOT_DEADLINE,
    SLOT_FUEL,
    SLOT_MAIN,
    SLOT_NEXT,
    SLOT_STOP,
)

# Why a run stops. A host call that failed: its status is 1, and its error is known to the frame.
FAILED, RAISED, LATE, EXITING = 1, 2, 3, 4
LOOK_NS = 50_000_000  # between two looks of the main thread at signals
POLL_NS = 10_000  # of estimated work between two looks at the clock
NEVER = 2**63 - 1
CLOCK = 6  # Linux: CLOCK_MONOTONIC_COARSE, which costs a few ns; macOS: CLOCK_MONOTONIC
WAITED_US, WAITS = 1000, 100  # for runs to leave native code at exit

ENTER, POLL, POLL_STEP, PIECES = "hlo_enter", "hlo_poll", "hlo_poll_step", "hlo_pieces"
LIMIT, LEAVE = "hlo_limit", "hlo_leave"
PIECES_TYPES = "ptr, ptr, i64, i64, i64, ptr, i64"  # of its parameters
STATE = "hlo_run_state"
# The state's fields, by byte offset: the key of a thread's run, the key of the deadline that its
# next run has, the main thread, whether the interpreter exits, runs under way on other threads.
RUN_KEY, LIMIT_KEY, MAIN_THREAD, EXITS, ACTIVE = 0, 4, 8, 16, 20
STATE_BYTES = 64

SYMBOLS = (
    "pthread_getspecific", "pthread_setspecific", "pthread_self", "clock_gettime", "usleep",
)  # fmt: skip
PYTHON_SYMBOLS = ("PyEval_SaveThread", "PyEval_RestoreThread", "PyErr_CheckSignals")


def text(architecture: str) -> str:
    """The functions for a processor architecture as `platform.machine()` calls it."""
    w, kept = Writer(), 0
    if mode := base_of(architecture).float_mode:  # Python code runs in the usual one
        own, usual = Value("%mode", "ptr"), Value("%usual", "ptr")
        mode.save(w, own)
        w.emit("store", w.int(mode.usual, "i32"), usual)
        mode.set(w, usual)
        kept = len(w.records)
        mode.set(w, own)
    declared = "\n".join(w.declarations.values())
    lines = [str(record) for record in w.records]
    look = _look("\n".join(lines[:kept]), "\n".join(lines[kept:]))
    return "\n".join((_DECLARED, declared, _CLOCK, _ENTER, _POLLS, look, _PIECES))


def _slot(name: str, slot: int) -> str:
    return f"  %{name}.at = getelementptr i8, ptr %frame, i64 {8 * slot}"


def _state(name: str, offset: int) -> str:
    return f"  %{name}.at = getelementptr i8, ptr @{STATE}, i64 {offset}"


_DECLARED = f"""
@{STATE} = global [{STATE_BYTES} x i8] zeroinitializer, align 64
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)
declare i64 @pthread_self()
declare i32 @clock_gettime(i32, ptr)
declare i32 @usleep(i32)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare i32 @PyErr_CheckSignals()
declare i64 @llvm.smin.i64(i64, i64)
"""

_CLOCK = f"""
define internal i64 @hlo_now() noinline {{
  %time = alloca [2 x i64]
  %r = call i32 @clock_gettime(i32 {CLOCK}, ptr %time)
  %seconds = load i64, ptr %time
  %part.at = getelementptr i8, ptr %time, i64 8
  %part = load i64, ptr %part.at
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %part
  ret i64 %now
}}

; The next run of this thread ends at a time of the clock. 0: whenever it likes.
define void @{LIMIT}(i64 %deadline) {{
{_state("key", LIMIT_KEY)}
  %key = load i32, ptr %key.at
  %value = inttoptr i64 %deadline to ptr
  %r = call i32 @pthread_setspecific(i32 %key, ptr %value)
  ret void
}}

; The interpreter exits: runs on other threads stop, and this waits a moment until they have.
define void @{LEAVE}() {{
{_state("exits", EXITS)}
{_state("active", ACTIVE)}
  store atomic i32 1, ptr %exits.at seq_cst, align 4
  br label %wait
wait:
  %n = phi i32 [ 0, %0 ], [ %more, %pause ]
  %active = load atomic i32, ptr %active.at seq_cst, align 4
  %some = icmp sgt i32 %active, 0
  %early = icmp ult i32 %n, {WAITS}
  %both = and i1 %some, %early
  br i1 %both, label %pause, label %end
pause:
  %r = call i32 @usleep(i32 {WAITED_US})
  %more = add i32 %n, 1
  br label %wait
end:
  ret void
}}
"""

_ENTER = f"""
define i32 @{ENTER}(ptr %entry, ptr %frame) {{
{_state("key", RUN_KEY)}
{_state("limit.key", LIMIT_KEY)}
{_state("main.thread", MAIN_THREAD)}
{_state("active", ACTIVE)}
{_slot("stop", SLOT_STOP)}
{_slot("fuel", SLOT_FUEL)}
{_slot("next", SLOT_NEXT)}
{_slot("deadline", SLOT_DEADLINE)}
{_slot("main", SLOT_MAIN)}
  %key = load i32, ptr %key.at
  %limit.key = load i32, ptr %limit.key.at
  %outer = call ptr @pthread_getspecific(i32 %key)
  %limit = call ptr @pthread_getspecific(i32 %limit.key)
  %limited = icmp ne ptr %limit, null
  br i1 %limited, label %taken, label %begin
taken:
  %r0 = call i32 @pthread_setspecific(i32 %limit.key, ptr null)
  br label %begin
begin:
  %limit.ns = ptrtoint ptr %limit to i64
  %deadline = select i1 %limited, i64 %limit.ns, i64 {NEVER}
  %now = call i64 @hlo_now()
  %look = add i64 %now, {LOOK_NS}
  %next = call i64 @llvm.smin.i64(i64 %look, i64 %deadline)
  store atomic i64 0, ptr %stop.at monotonic, align 8
  store i64 {POLL_NS}, ptr %fuel.at
  store i64 %next, ptr %next.at
  store i64 %deadline, ptr %deadline.at
  %self = call i64 @pthread_self()
  %main.thread = load i64, ptr %main.thread.at
  %is.main = icmp eq i64 %self, %main.thread
  %is.other = xor i1 %is.main, true
  %counted = zext i1 %is.other to i32
  %r1 = call i32 @pthread_setspecific(i32 %key, ptr %frame)
  %r2 = atomicrmw add ptr %active.at, i32 %counted seq_cst
  %thread = call ptr @PyEval_SaveThread()
  %main = select i1 %is.main, ptr %thread, ptr null
  store ptr %main, ptr %main.at
  %status = call i32 %entry(ptr %frame)
  %r3 = atomicrmw sub ptr %active.at, i32 %counted seq_cst
  %r4 = call i32 @pthread_setspecific(i32 %key, ptr %outer)
  call void @PyEval_RestoreThread(ptr %thread)
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %stopped = icmp ne i64 %stop, 0
  %why = trunc i64 %stop to i32
  %result = select i1 %stopped, i32 %why, i32 %status
  ret i32 %result
}}
"""

_POLLS = f"""
define i32 @{POLL_STEP}(ptr %frame) {{
{_slot("stop", SLOT_STOP)}
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %goes = icmp eq i64 %stop, 0
  br i1 %goes, label %on, label %stopped
stopped:
  %why = trunc i64 %stop to i32
  ret i32 %why
on:
{_slot("fuel", SLOT_FUEL)}
{_slot("next", SLOT_NEXT)}
{_slot("main", SLOT_MAIN)}
{_state("exits", EXITS)}
  store i64 {POLL_NS}, ptr %fuel.at
  %now = call i64 @hlo_now()
  %next = load i64, ptr %next.at
  %due = icmp sge i64 %now, %next
  %main = load ptr, ptr %main.at
  %other = icmp eq ptr %main, null
  %exits = load atomic i32, ptr %exits.at monotonic, align 4
  %exiting = icmp ne i32 %exits, 0
  %leaves = and i1 %exiting, %other
  br i1 %leaves, label %leave, label %stay
leave:
  store atomic i64 {EXITING}, ptr %stop.at monotonic, align 8
  ret i32 {EXITING}
stay:
  br i1 %due, label %look, label %end
look:
  %found = call i32 @hlo_look(ptr %frame, i64 %now)
  ret i32 %found
end:
  ret i32 0
}}

define i32 @{POLL}() {{
{_state("key", RUN_KEY)}
  %key = load i32, ptr %key.at
  %run = call ptr @pthread_getspecific(i32 %key)
  %number = ptrtoint ptr %run to i64
  %is.worker = trunc i64 %number to i1
  br i1 %is.worker, label %worker, label %other
worker:
  %frame = getelementptr i8, ptr %run, i64 -1
{_slot("stop", SLOT_STOP)}
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %why = trunc i64 %stop to i32
  ret i32 %why
other:
  %none = icmp eq ptr %run, null
  br i1 %none, label %free, label %owner
free:
  ret i32 0
owner:
  %found = call i32 @{POLL_STEP}(ptr %run)
  ret i32 %found
}}
"""


def _look(usual_mode: str, run_mode: str) -> str:
    """Whether the time is over, then what Python says of signals, on the main thread."""
    return f"""
define internal i32 @hlo_look(ptr %frame, i64 %now) noinline cold {{
  %mode = alloca i32
  %usual = alloca i32
{_slot("stop", SLOT_STOP)}
{_slot("next", SLOT_NEXT)}
{_slot("deadline", SLOT_DEADLINE)}
{_slot("main", SLOT_MAIN)}
  %deadline = load i64, ptr %deadline.at
  %late = icmp sge i64 %now, %deadline
  br i1 %late, label %over, label %signals
over:
  store atomic i64 {LATE}, ptr %stop.at monotonic, align 8
  ret i32 {LATE}
signals:
  %main = load ptr, ptr %main.at
  %is.main = icmp ne ptr %main, null
  br i1 %is.main, label %lock, label %later
lock:
{usual_mode}
  call void @PyEval_RestoreThread(ptr %main)
  %answer = call i32 @PyErr_CheckSignals()
  %thread = call ptr @PyEval_SaveThread()
  store ptr %thread, ptr %main.at
{run_mode}
  %raised = icmp ne i32 %answer, 0
  br i1 %raised, label %signalled, label %later
signalled:
  store atomic i64 {RAISED}, ptr %stop.at monotonic, align 8
  ret i32 {RAISED}
later:
  %then = call i64 @hlo_now()
  %look = add i64 %then, {LOOK_NS}
  %next = call i64 @llvm.smin.i64(i64 %look, i64 %deadline)
  store i64 %next, ptr %next.at
  ret i32 0
}}
"""


# run: the frame, or null of a run that nobody stops. owner: 1 on the run's own thread.
_PIECES = f"""
define void @{PIECES}(ptr %kernel, ptr %row, i64 %begin, i64 %end, i64 %piece, ptr %frame,
                      i64 %owner) {{
start:
  %free = icmp eq ptr %frame, null
  br i1 %free, label %whole, label %watched
whole:
  call void %kernel(ptr %row, i64 %begin, i64 %end)
  ret void
watched:
{_slot("stop", SLOT_STOP)}
{_state("key", RUN_KEY)}
  %key = load i32, ptr %key.at
  %is.owner = trunc i64 %owner to i1
  br i1 %is.owner, label %next, label %mark
mark:
  %own = getelementptr i8, ptr %frame, i64 1
  %r0 = call i32 @pthread_setspecific(i32 %key, ptr %own)
  br label %next
next:
  %from = phi i64 [ %begin, %watched ], [ %begin, %mark ], [ %to, %run ]
  %more = icmp slt i64 %from, %end
  br i1 %more, label %ask, label %leave
ask:
  br i1 %is.owner, label %ask.owner, label %ask.worker
ask.owner:
  %found = call i32 @{POLL_STEP}(ptr %frame)
  %goes = icmp eq i32 %found, 0
  br i1 %goes, label %run, label %leave
ask.worker:
  %stop = load atomic i64, ptr %stop.at monotonic, align 8
  %works = icmp eq i64 %stop, 0
  br i1 %works, label %run, label %leave
run:
  %after = add i64 %from, %piece
  %to = call i64 @llvm.smin.i64(i64 %after, i64 %end)
  call void %kernel(ptr %row, i64 %from, i64 %to)
  br label %next
leave:
  br i1 %is.owner, label %done, label %unmark
unmark:
  %r1 = call i32 @pthread_setspecific(i32 %key, ptr null)
  br label %done
done:
  ret void
}}
"""
