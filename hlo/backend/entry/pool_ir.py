"""The thread pool as LLVM IR: parallel loops without Python (docs/measurements.md 6).

    hlo_parallel(kernel, row, stride, units, chunks, threads, ends, piece, run)   run a kernel's
                                                                      units in chunks
    hlo_worker(index)                                                 a worker's life
    hlo_wake()                                                        wake sleeping workers
    hlo_awake(threads, ns)                                            how many may run the loops of
                                                                      a program of so many ns

One 64-bit word, generation << 32 | claimed at the end << 16 | claimed at the front, is all that
callers and workers agree on: a chunk is claimed by compare-and-swap on it, so that nobody can claim
a chunk of a loop that is over. The job lies in the same line, so that who sees the word has both,
and the caller, whose first chunk is claimed from the start, writes it without waiting for anybody:
each line that another processor wrote takes some 100 ns, and a loop of short steps is made of
these. Chunks that are done are counted on, not from zero, for the same reason. A loop of two chunks
took 0.2 us more than the longer of them (0.26 with a line for the job, a count from zero and
stores that others have to have seen). All claim at the front, or, where the step says so (ends),
every second worker at the end: a loop over what an earlier one wrote then finds most of it in its
own processor's cache (a 4 us stencil in a loop took twice as long split as not). Arrays that are
larger than these caches are read 10 to 15 % faster where both processors have read them before:
then a line stays in the cache that they share.
The caller closes the word before it changes the job, works too, and waits for claimed chunks only.
A worker spins before it sleeps on the generation, and one that falls asleep while a loop begins may
miss it: others do its part. A caller that waits long gives its processor up, for the worker that it
waits for may have none; one that finds the pool taken runs its loop alone.
To wake a worker costs more than a short program gains, but programs that follow each other closely
find the workers of the last one still spinning: a short program takes those that are awake. One
that finds all asleep wakes them if another one began within RECENT_NS before it, and if such
programs have taken WORTH_NS since that was done in vain.
A chunk of a run that can be stopped (its frame, else null) goes in pieces of so many units
(run_ir.py): once the run stops, the chunks that are left are claimed and not computed.
"""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from hlo.backend.entry import clock_ir, placing_ir, table_ir
from hlo.backend.entry.process import (
    FUTEX_SYSCALL,
    PIECES,
    POLL_STEP,
    POOL_LINE_BYTES,
    POOL_STATE,
    POOL_STATE_BYTES,
    WORKER,
    WORTH_NS,
)
from hlo.backend.ir.interface import NULL, Field, prototype
from hlo.backend.ir.ir_module import AWAKE, PARALLEL, WAKE
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.values import Value
from hlo.backend.ir.words import Word
from hlo.backend.isa.generic import Isa
from hlo.backend.isa.select import base_of
from hlo.machine import COMMON

CHUNK_BITS = 16  # Bits of the ticket for each of its ends.
ONE_AT_END, CHUNKS_MASK, ENDS_MASK = 1 << CHUNK_BITS, (1 << CHUNK_BITS) - 1, (1 << 32) - 1
CLOSED = 0x7FFF7FFF  # Marks a closed word: at both ends more than any number of chunks.
# Pauses before a worker sleeps, about 50 us on every machine: a process has one pool for all that
# it runs.
SPINS = 50 * COMMON.rates.pauses
# Short programs that begin within so many nanoseconds of each other come in a row. One that is
# estimated at less than what wakes the pool (planning/splitting.py: 150 us) may take several times
# as long alone.
RECENT_NS = 1_000_000
# Added to a number of threads: these take what workers are awake, and wake none.
QUIET = 1 << 32
FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE, ALL_WAITERS = 128, 129, (1 << 31) - 1
YIELD_SYSCALL = {"x86_64": 24, "aarch64": 124, "riscv64": 124}


class State:
    """What the pool's threads share: the ticket with the job, whether a caller owns the pool,
    chunks done since there is one, and sleepers and workers, in lines of their own; where lines are
    twice as long, or are fetched by pairs, what callers write is together, and what workers write.

    The job is in the ticket's line of 64 bytes. mode: the caller's floating-point mode, in which
    workers compute; pieces: units of a piece, twice, and whether workers claim at both ends.
    asked_ns: when a short program last found all workers asleep; alone_ns: what such programs have
    taken since they were woken, WORTH_NS where one has met them awake. avoided: the processor of
    which workers keep off (placing_ir.py), and one.
    """

    ticket = Field(0)
    generation = Field(4, "i32")
    kernel = Field(8, "ptr")
    row = Field(16, "ptr")
    units = Field(24)
    run = Field(32, "ptr")
    pieces = Field(40)
    stride = Field(48, "i32")
    chunks = Field(52, "i32")
    mode = Field(56, "i32")
    threads = Field(60, "i32")
    owner = Field(POOL_LINE_BYTES, "i32")
    asked_ns = Field(POOL_LINE_BYTES + 8)
    alone_ns = Field(POOL_LINE_BYTES + 16)
    avoided = Field(POOL_LINE_BYTES + 24, "i32")
    done = Field(2 * POOL_LINE_BYTES)
    sleepers = Field(3 * POOL_LINE_BYTES, "i32")
    workers = Field(3 * POOL_LINE_BYTES + 4, "i32")


WORKER_OF = prototype("ptr", WORKER, "ptr")


def text(architecture: str) -> str:
    """The pool for a processor architecture as `platform.machine()` calls it."""
    unit = Unit()
    placing_ir.define(unit)
    isa, sleep = base_of(architecture), Futex.of(architecture)
    system = define(unit, isa, sleep, is_watched=True, is_placed=True)
    unit.define(AWAKE, system.awake)
    return unit.text()


def define(
    unit: Unit, isa: Isa, sleep: Sleep, *, is_watched: bool, is_placed: bool = False
) -> _System:
    """The pool's functions, but for what only processes' own pools have: to take who is awake.

    is_watched: runs can be stopped, by run_ir's functions. is_placed: workers keep off the
    processor of who wakes them (placing_ir.py).
    """
    system = _System(isa, sleep, is_watched, is_placed)
    align = 2 * POOL_LINE_BYTES
    unit.data(POOL_STATE, f"global [{POOL_STATE_BYTES} x i8] zeroinitializer, align {align}")
    unit.define(WAKE, system.wake)
    unit.define(PARALLEL, system.parallel)
    unit.define(WORKER_OF, system.worker)
    return system


class Sleep(Protocol):
    """How threads wait for each other that have nothing to do."""

    def until(self, p: Procedure, state: Word, seen: Word) -> None:
        """Sleep while the generation is the one that was seen."""

    def wake(self, p: Procedure, state: Word) -> None:
        """Wake all that sleep."""

    def give_way(self, p: Procedure) -> None:
        """Let another thread have the processor."""


class Futex(Struct):
    """Linux's calls, by their numbers."""

    wait: int
    sched_yield: int

    @staticmethod
    def of(architecture: str) -> Futex:
        """Those of a processor architecture; 0 of one without a pool."""
        return Futex(FUTEX_SYSCALL.get(architecture, 0), YIELD_SYSCALL.get(architecture, 0))

    def until(self, p: Procedure, state: Word, seen: Word) -> None:
        still = (p.word(FUTEX_WAIT_PRIVATE), seen, NULL)
        self._call(p, self.wait, state.at(State.generation), *still)

    def wake(self, p: Procedure, state: Word) -> None:
        everybody = (p.word(FUTEX_WAKE_PRIVATE), p.word(ALL_WAITERS), NULL)
        self._call(p, self.wait, state.at(State.generation), *everybody)

    def give_way(self, p: Procedure) -> None:
        self._call(p, self.sched_yield)

    def _call(self, p: Procedure, number: int, *arguments: Value) -> None:
        """A call of the system."""
        p.w.call_variadic("i64", "syscall", p.word(number), *arguments)


class _System(Struct):
    """The pool's functions for an instruction set and a system."""

    isa: Isa
    sleep: Sleep
    is_watched: bool
    is_placed: bool = False

    def wake(self, p: Procedure) -> None:
        """Wake the workers that sleep."""
        state = p.symbol(POOL_STATE)
        with p.when(state.load(State.sleepers, "seq_cst") > 0):
            if self.is_placed:
                placing_ir.keep_off(p, state, State.avoided)
            self.sleep.wake(p, state)
        p.ret()

    def awake(self, p: Procedure, threads: Word, ns: Word) -> None:
        """Of at most `threads`, how many may run the loops of a program that begins now and takes
        so many ns alone.
        """
        state, taken = p.symbol(POOL_STATE), threads + QUIET
        with p.when(state.load(State.sleepers, "seq_cst") < state.load(State.workers, "seq_cst")):
            state.store(State.alone_ns, WORTH_NS, "monotonic")
            p.ret(taken)
        now_ns = clock_ir.now(p)
        asked_ns = state.load(State.asked_ns, "monotonic")
        state.store(State.asked_ns, now_ns, "monotonic")
        alone_ns = state.load(State.alone_ns, "monotonic") + ns
        is_worth = alone_ns.above(WORTH_NS - 1)
        alone_ns = is_worth.select(p.word(WORTH_NS), alone_ns)
        with p.when(is_worth & (now_ns - asked_ns).below(RECENT_NS)):
            state.store(State.alone_ns, 0, "monotonic")
            p.call(WAKE)
            p.ret(taken)
        state.store(State.alone_ns, alone_ns, "monotonic")
        p.ret(p.word(1))

    def parallel(self, p: Procedure, *parameters: Word) -> None:
        """A loop on the caller's thread and on those that come to help.

        threads: at most so many; with QUIET added, none is woken.
        """
        kernel, row, stride, units, chunks, threads, ends, piece, run = parameters
        state = p.symbol(POOL_STATE)
        serial = p.join()
        serial.go_unless(threads > 1)
        serial.go_unless(state.swap(State.owner, 0, 1))

        generation = (state.load(State.ticket, "monotonic") >> 32) + 1
        state.store(State.ticket, (generation << 32) | CLOSED, "monotonic")
        p.fence("release")
        if mode := self.isa.float_mode:
            mode.save(p.w, state.at(State.mode))
        state.store(State.kernel, kernel, "monotonic")
        state.store(State.row, row, "monotonic")
        state.store(State.units, units, "monotonic")
        state.store(State.run, run, "monotonic")
        state.store(State.pieces, (piece << 1) | ends, "monotonic")
        state.store(State.stride, stride.to("i32"), "monotonic")
        state.store(State.chunks, chunks.to("i32"), "monotonic")
        state.store(State.threads, threads.to("i32"), "monotonic")
        before = state.load(State.done, "monotonic")
        state.store(State.ticket, ((generation + 1) << 32) + 1, "release")
        with p.when(threads < QUIET):
            p.call(WAKE)

        all_claimed = p.join("i64")
        with p.loop(p.word(0), p.word(1)) as (work, _):
            chunk, own = work.words
            begin, end = bounds(chunk, units, chunks)
            self._units(p, kernel, row, begin, end, piece, run, owner=1)
            with p.loop() as (claim, _):
                ticket = state.load(State.ticket, "acquire")
                front, back = _claims(ticket)
                all_claimed.go_unless((front + back).below(chunks), own)
                claim.go_unless(state.swap(State.ticket, ticket, ticket + 1))
                work.go(front, own + 1)
        (own,) = all_claimed.here()
        self._wait(p, before + (chunks - own), run)
        state.store(State.owner, 0, "release")
        p.ret()
        serial.here()
        self._units(p, kernel, row, p.word(0), units, piece, run, owner=1)
        p.ret()

    def _wait(self, p: Procedure, count: Word, run: Word) -> None:
        """Until workers have done so many chunks."""
        state = p.symbol(POOL_STATE)
        with p.loop(p.word(0)) as (again, done):
            (waited,) = again.words
            done.go_if(state.load(State.done, "acquire").eq(count))
            self.isa.pause(p.w)
            longer = waited + 1
            again.go_unless(longer.at_least(SPINS), longer)
            self.sleep.give_way(p)
            if self.is_watched:
                again.go_unless(run.ne(NULL), 0)
                p.call(POLL_STEP, run)
            again.go(0)

    def worker(self, p: Procedure, argument: Word) -> None:
        """A worker's life. argument: its number, from 1 on."""
        state = p.symbol(POOL_STATE)
        state.update("add", State.workers, 1, "seq_cst")
        index = argument.to("i64")
        if self.is_placed:
            placing_ir.begin(p, index)
        is_odd = index.to("i1")
        with p.loop(p.word(0)) as (look, _):
            (idle,) = look.words
            ticket = state.load(State.ticket, "acquire")
            front, back = _claims(ticket)
            chunks = state.load(State.chunks, "monotonic").to("i64")
            threads = state.load(State.threads, "monotonic").to("i64")
            has_work = (front + back).below(chunks) & index.below(threads)
            rest = p.join()
            rest.go_unless(has_work)

            kernel, table, stride, units, pieces, run = (
                state.load(field, "monotonic")
                for field in (
                    State.kernel, State.row, State.stride, State.units, State.pieces, State.run
                )
            )  # fmt: skip
            at_end = is_odd & pieces.to("i1")
            claim = at_end.select(p.word(ONE_AT_END), p.word(1))
            look.go_unless(state.swap(State.ticket, ticket, ticket + claim), idle)
            if mode := self.isa.float_mode:
                mode.set(p.w, state.at(State.mode))
            chunk = at_end.select(chunks - back - 1, front)
            row = table_ir.slot(table, index * stride.to("i64"))
            begin, end = bounds(chunk, units, chunks)
            self._units(p, kernel, row, begin, end, pieces >> 1, run, owner=0)
            state.update("add", State.done, 1, "acq_rel")
            look.go(0)

            rest.here()
            self.isa.pause(p.w)
            idler = idle + 1
            look.go_unless(idler.at_least(SPINS), idler)
            state.update("add", State.sleepers, 1, "seq_cst")
            self.sleep.until(p, state, ticket >> 32)
            state.update("sub", State.sleepers, 1, "seq_cst")
            look.go(0)

    def _units(
        self, p: Procedure, kernel: Word, row: Word, begin: Word, end: Word, piece: Word,
        run: Word, *, owner: int,
    ) -> None:  # fmt: skip
        """A range of a kernel's units. owner: 1 on the run's own thread."""
        if self.is_watched:
            p.call(PIECES, kernel, row, begin, end, piece, run, owner)
        else:
            p.call_address("void", kernel, row, begin, end)


def _claims(ticket: Word) -> tuple[Word, Word]:
    """Chunks that are claimed at the front, and at the end."""
    return ticket & CHUNKS_MASK, (ticket & ENDS_MASK) >> CHUNK_BITS


def bounds(chunk: Word, units: Word, chunks: Word) -> tuple[Word, Word]:
    """The units of a chunk."""
    first = chunk * units
    return first // chunks, (first + units) // chunks
