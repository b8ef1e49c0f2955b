"""The thread pool as LLVM IR: parallel loops without Python (design B of BACKEND_FACTS.md 8).

    hlo_parallel(kernel, row, stride, units, chunks, threads, ends, piece, run)   run a kernel's
                                                                      units in chunks
    hlo_worker(index)                                                 a worker's life
    hlo_wake()                                                        wake sleeping workers

One 64-bit word, generation << 32 | claimed at the end << 16 | claimed at the front, is all that
callers and workers agree on: a chunk is claimed by compare-and-swap on it, so that nobody can claim
a chunk of a loop that is over. All claim at the front, or, where the step says so (ends), every
second worker at the end: a loop over what an earlier one wrote then finds most of it in its own
processor's cache (a line that another one wrote takes some 100 ns; a 4 us stencil in a loop took
twice as long split as not). Arrays that are larger than these caches are read 10 to 15 % faster
where both processors have read them before: then a line stays in the cache that they share.
The caller closes the word before it changes the job, works too, and waits for claimed chunks only.
A worker spins before it sleeps on the generation; a caller that waits long gives its processor up,
for the worker that it waits for may have none; one that finds the pool taken runs its loop alone.
A chunk of a run that can be stopped (its frame, else null) goes in pieces of so many units
(run_ir.py): once the run stops, the chunks that are left are claimed and not computed.
"""

from __future__ import annotations

from hlo.backend.entry.run_ir import PIECES, PIECES_TYPES, POLL_STEP
from hlo.backend.ir.named import Named
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.select import base_of
from hlo.machine import COMMON

CLOSED = 0x7FFF7FFF  # more of both than any number of chunks
# Pauses before a worker sleeps, about 50 us: the process has one pool for all that it runs.
SPINS = 50 * COMMON.rates.pauses
FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE = 128, 129
FUTEX_SYSCALL = {"x86_64": 202, "aarch64": 98}
YIELD_SYSCALL = {"x86_64": 24, "aarch64": 124}

# The job's fields, by byte offset.
KERNEL, ROW, STRIDE, UNITS, CHUNKS, RUN, MODE, PIECE = (8 * n for n in range(8))
THREADS = MODE + 4  # both are of 4 bytes, so that a job is one cache line

WORKER = "hlo_worker"
STATE = "hlo_pool_state"  # 6 cache lines: ticket, done, job, owner, sleepers
TICKET, DONE, JOB, OWNER, SLEEPERS = 0, 64, 128, 192, 256
STATE_BYTES = 320


def text(architecture: str) -> str:
    """The pool for a processor architecture as `platform.machine()` calls it."""
    isa = base_of(architecture)
    pause, get_mode, set_mode = Writer(), Writer(), Writer()
    isa.pause(pause)
    if mode := isa.float_mode:  # workers compute in the caller's floating-point mode
        for w, access in ((get_mode, mode.save), (set_mode, mode.set)):
            state = Value(f"@{STATE}", "ptr")
            access(w, Named(w).address("modeslot", state, w.int(JOB + MODE), "i8"))
    parts = pause.declarations | get_mode.declarations | set_mode.declarations
    return _TEMPLATE.format(
        declarations="\n".join(parts.values()),
        pause=pause.text(),
        get_mode=get_mode.text(),
        set_mode=set_mode.text(),
        futex=FUTEX_SYSCALL.get(architecture, 0),
        sched_yield=YIELD_SYSCALL.get(architecture, 0),
        state=STATE,
        state_bytes=STATE_BYTES,
        done=DONE,
        owner=OWNER,
        sleepers=SLEEPERS,
        kernel=JOB + KERNEL,
        row=JOB + ROW,
        stride=JOB + STRIDE,
        units=JOB + UNITS,
        chunks=JOB + CHUNKS,
        threads=JOB + THREADS,
        run=JOB + RUN,
        piece=JOB + PIECE,
        pieces=PIECES,
        pieces_types=PIECES_TYPES,
        poll=POLL_STEP,
        closed=CLOSED,
        spins=SPINS,
        wait=FUTEX_WAIT_PRIVATE,
        wake=FUTEX_WAKE_PRIVATE,
        worker=WORKER,
    )


_TEMPLATE = """
@{state} = global [{state_bytes} x i8] zeroinitializer, align 64
{declarations}
declare i64 @syscall(i64, ...)
declare void @{pieces}({pieces_types})
declare i32 @{poll}(ptr)

define void @hlo_wake() {{
  %sleepers = getelementptr i8, ptr @{state}, i64 {sleepers}
  %asleep = load atomic i32, ptr %sleepers seq_cst, align 4
  %any = icmp sgt i32 %asleep, 0
  br i1 %any, label %wake, label %end
wake:
  %word = getelementptr i8, ptr @{state}, i64 4
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i64 {wake}, i64 2147483647, ptr null)
  br label %end
end:
  ret void
}}

define void @hlo_parallel(ptr %kernel, ptr %row, i64 %stride, i64 %units, i64 %chunks,
                          i64 %threads, i64 %ends, i64 %piece, ptr %of.run) {{
  %owner = getelementptr i8, ptr @{state}, i64 {owner}
  %several = icmp sgt i64 %threads, 1
  br i1 %several, label %take, label %serial
take:
  %taken = cmpxchg ptr %owner, i32 0, i32 1 acq_rel monotonic
  %own = extractvalue {{ i32, i1 }} %taken, 1
  br i1 %own, label %open, label %serial
serial:
  call void @{pieces}(ptr %kernel, ptr %row, i64 0, i64 %units, i64 %piece, ptr %of.run, i64 1)
  ret void
open:
  %old = load atomic i64, ptr @{state} monotonic, align 8
  %generation = lshr i64 %old, 32
  %next.generation = add i64 %generation, 1
  %high = shl i64 %next.generation, 32
  %shut = or i64 %high, {closed}
  store atomic i64 %shut, ptr @{state} seq_cst, align 8
  fence seq_cst
{get_mode}
  %f0 = getelementptr i8, ptr @{state}, i64 {kernel}
  store atomic ptr %kernel, ptr %f0 monotonic, align 8
  %f1 = getelementptr i8, ptr @{state}, i64 {row}
  store atomic ptr %row, ptr %f1 monotonic, align 8
  %f2 = getelementptr i8, ptr @{state}, i64 {stride}
  store atomic i64 %stride, ptr %f2 monotonic, align 8
  %f3 = getelementptr i8, ptr @{state}, i64 {units}
  store atomic i64 %units, ptr %f3 monotonic, align 8
  %f4 = getelementptr i8, ptr @{state}, i64 {chunks}
  store atomic i64 %chunks, ptr %f4 monotonic, align 8
  %f5 = getelementptr i8, ptr @{state}, i64 {threads}
  %threads.short = trunc i64 %threads to i32
  store atomic i32 %threads.short, ptr %f5 monotonic, align 4
  %f6 = getelementptr i8, ptr @{state}, i64 {piece}
  %piece.twice = shl i64 %piece, 1
  %piece.ends = or i64 %piece.twice, %ends
  store atomic i64 %piece.ends, ptr %f6 monotonic, align 8
  %f7 = getelementptr i8, ptr @{state}, i64 {run}
  store atomic ptr %of.run, ptr %f7 monotonic, align 8
  %done = getelementptr i8, ptr @{state}, i64 {done}
  store atomic i64 0, ptr %done monotonic, align 8
  %opening = add i64 %generation, 2
  %opened = shl i64 %opening, 32
  store atomic i64 %opened, ptr @{state} seq_cst, align 8
  call void @hlo_wake()
  br label %work
work:
  %ticket = load atomic i64, ptr @{state} acquire, align 8
  %chunk = and i64 %ticket, 65535
  %low = and i64 %ticket, 4294967295
  %back = lshr i64 %low, 16
  %taken.chunks = add i64 %chunk, %back
  %more = icmp ult i64 %taken.chunks, %chunks
  br i1 %more, label %claim, label %wait
claim:
  %following = add i64 %ticket, 1
  %tried = cmpxchg ptr @{state}, i64 %ticket, i64 %following acq_rel monotonic
  %claimed = extractvalue {{ i64, i1 }} %tried, 1
  br i1 %claimed, label %run, label %work
run:
  %b0 = mul i64 %chunk, %units
  %begin = udiv i64 %b0, %chunks
  %e0 = add i64 %b0, %units
  %end = udiv i64 %e0, %chunks
  call void @{pieces}(ptr %kernel, ptr %row, i64 %begin, i64 %end, i64 %piece, ptr %of.run, i64 1)
  %finished = atomicrmw add ptr %done, i64 1 acq_rel
  br label %work
wait:
  %waited = phi i64 [ 0, %work ], [ %longer, %again ], [ 0, %yield ], [ 0, %ask ]
  %sofar = load atomic i64, ptr %done acquire, align 8
  %all = icmp eq i64 %sofar, %chunks
  br i1 %all, label %leave, label %again
again:
{pause}
  %longer = add i64 %waited, 1
  %late = icmp uge i64 %longer, {spins}
  br i1 %late, label %yield, label %wait
yield:
  %y = call i64 (i64, ...) @syscall(i64 {sched_yield})
  %watched = icmp ne ptr %of.run, null
  br i1 %watched, label %ask, label %wait
ask:
  %why = call i32 @{poll}(ptr %of.run)
  br label %wait
leave:
  store atomic i32 0, ptr %owner release, align 4
  ret void
}}

define ptr @{worker}(ptr %argument) {{
start:
  %index = ptrtoint ptr %argument to i64
  %done = getelementptr i8, ptr @{state}, i64 {done}
  %sleepers = getelementptr i8, ptr @{state}, i64 {sleepers}
  %word = getelementptr i8, ptr @{state}, i64 4
  %is.odd = trunc i64 %index to i1
  %f0 = getelementptr i8, ptr @{state}, i64 {kernel}
  %f1 = getelementptr i8, ptr @{state}, i64 {row}
  %f2 = getelementptr i8, ptr @{state}, i64 {stride}
  %f3 = getelementptr i8, ptr @{state}, i64 {units}
  %f4 = getelementptr i8, ptr @{state}, i64 {chunks}
  %f5 = getelementptr i8, ptr @{state}, i64 {threads}
  %f6 = getelementptr i8, ptr @{state}, i64 {piece}
  %f7 = getelementptr i8, ptr @{state}, i64 {run}
  br label %look
look:
  %idle = phi i64 [ 0, %start ], [ 0, %run ], [ 0, %sleep ], [ %idler, %rest ], [ %idle, %claim ]
  %ticket = load atomic i64, ptr @{state} acquire, align 8
  %front = and i64 %ticket, 65535
  %low = and i64 %ticket, 4294967295
  %back = lshr i64 %low, 16
  %taken = add i64 %front, %back
  %chunks = load atomic i64, ptr %f4 monotonic, align 8
  %threads.short = load atomic i32, ptr %f5 monotonic, align 4
  %threads = zext i32 %threads.short to i64
  %more = icmp ult i64 %taken, %chunks
  %wanted = icmp ult i64 %index, %threads
  %both = and i1 %more, %wanted
  br i1 %both, label %claim, label %rest
claim:
  %kernel = load atomic ptr, ptr %f0 monotonic, align 8
  %table = load atomic ptr, ptr %f1 monotonic, align 8
  %stride = load atomic i64, ptr %f2 monotonic, align 8
  %units = load atomic i64, ptr %f3 monotonic, align 8
  %piece.ends = load atomic i64, ptr %f6 monotonic, align 8
  %of.run = load atomic ptr, ptr %f7 monotonic, align 8
  %piece = lshr i64 %piece.ends, 1
  %both.ends = trunc i64 %piece.ends to i1
  %at.end = and i1 %is.odd, %both.ends
  %step = select i1 %at.end, i64 65536, i64 1
  %following = add i64 %ticket, %step
  %tried = cmpxchg ptr @{state}, i64 %ticket, i64 %following acq_rel monotonic
  %claimed = extractvalue {{ i64, i1 }} %tried, 1
  br i1 %claimed, label %run, label %look
run:
{set_mode}
  %from.back = sub i64 %chunks, %back
  %last = sub i64 %from.back, 1
  %chunk = select i1 %at.end, i64 %last, i64 %front
  %offset = mul i64 %index, %stride
  %row = getelementptr i8, ptr %table, i64 %offset
  %b0 = mul i64 %chunk, %units
  %begin = udiv i64 %b0, %chunks
  %e0 = add i64 %b0, %units
  %end = udiv i64 %e0, %chunks
  call void @{pieces}(ptr %kernel, ptr %row, i64 %begin, i64 %end, i64 %piece, ptr %of.run, i64 0)
  %finished = atomicrmw add ptr %done, i64 1 acq_rel
  br label %look
rest:
{pause}
  %idler = add i64 %idle, 1
  %tired = icmp uge i64 %idler, {spins}
  br i1 %tired, label %sleep, label %look
sleep:
  %u0 = atomicrmw add ptr %sleepers, i32 1 seq_cst
  %g0 = lshr i64 %ticket, 32
  %r = call i64 (i64, ...) @syscall(i64 {futex}, ptr %word, i64 {wait}, i64 %g0, ptr null)
  %u1 = atomicrmw sub ptr %sleepers, i32 1 seq_cst
  br label %look
}}
"""
