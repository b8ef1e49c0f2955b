"""The thread pool as LLVM IR: parallel loops without Python (docs/measurements.md 5).

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

from typing import Protocol

from msgspec import Struct

from hlo.backend.entry import table_ir
from hlo.backend.entry.process import (
    FUTEX_SYSCALL,
    PIECES,
    POLL_STEP,
    POOL_STATE,
    POOL_STATE_BYTES,
    WORKER,
)
from hlo.backend.ir.interface import NULL, Field, prototype
from hlo.backend.ir.ir_module import PARALLEL, WAKE
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
FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE, ALL_WAITERS = 128, 129, (1 << 31) - 1
YIELD_SYSCALL = {"x86_64": 24, "aarch64": 124, "riscv64": 124}


class State:
    """What the pool's threads share, in cache lines of their own: the ticket, whose upper half
    sleepers wait for, chunks done, the job, whether a caller owns the pool, sleepers.

    The job is one line. mode: the caller's floating-point mode, in which workers compute; pieces:
    units of a piece, twice, and whether workers claim at both ends.
    """

    ticket = Field(0)
    generation = Field(4, "i32")
    done = Field(64)
    kernel = Field(128, "ptr")
    row = Field(136, "ptr")
    stride = Field(144)
    units = Field(152)
    chunks = Field(160)
    run = Field(168, "ptr")
    mode = Field(176, "i32")
    threads = Field(180, "i32")
    pieces = Field(184)
    owner = Field(192, "i32")
    sleepers = Field(256, "i32")


WORKER_OF = prototype("ptr", WORKER, "ptr")


def text(architecture: str) -> str:
    """The pool for a processor architecture as `platform.machine()` calls it."""
    unit = Unit()
    define(unit, base_of(architecture), Futex.of(architecture), is_watched=True)
    return unit.text()


def define(unit: Unit, isa: Isa, sleep: Sleep, *, is_watched: bool) -> None:
    """The pool's functions. is_watched: runs can be stopped, by run_ir's functions."""
    system = _System(isa, sleep, is_watched)
    unit.data(POOL_STATE, f"global [{POOL_STATE_BYTES} x i8] zeroinitializer, align 64")
    unit.define(WAKE, system.wake)
    unit.define(PARALLEL, system.parallel)
    unit.define(WORKER_OF, system.worker)


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

    def wake(self, p: Procedure) -> None:
        """Wake the workers that sleep."""
        state = p.symbol(POOL_STATE)
        with p.when(state.load(State.sleepers, "seq_cst") > 0):
            self.sleep.wake(p, state)
        p.ret()

    def parallel(self, p: Procedure, *parameters: Word) -> None:
        """A loop on the caller's thread and on those that come to help."""
        kernel, row, stride, units, chunks, threads, ends, piece, run = parameters
        state = p.symbol(POOL_STATE)
        serial = p.join()
        serial.go_unless(threads > 1)
        serial.go_unless(state.swap(State.owner, 0, 1))

        generation = state.load(State.ticket, "monotonic") >> 32
        closed = ((generation + 1) << 32) | CLOSED
        state.store(State.ticket, closed, "seq_cst")
        p.fence("seq_cst")
        if mode := self.isa.float_mode:
            mode.save(p.w, state.at(State.mode))
        state.store(State.kernel, kernel, "monotonic")
        state.store(State.row, row, "monotonic")
        state.store(State.stride, stride, "monotonic")
        state.store(State.units, units, "monotonic")
        state.store(State.chunks, chunks, "monotonic")
        state.store(State.threads, threads.to("i32"), "monotonic")
        state.store(State.pieces, (piece << 1) | ends, "monotonic")
        state.store(State.run, run, "monotonic")
        state.store(State.done, 0, "monotonic")
        state.store(State.ticket, (generation + 2) << 32, "seq_cst")
        p.call(WAKE)

        with p.loop() as (again, all_claimed):
            ticket = state.load(State.ticket, "acquire")
            chunk, back = _claims(ticket)
            all_claimed.go_unless((chunk + back).below(chunks))
            again.go_unless(state.swap(State.ticket, ticket, ticket + 1))
            begin, end = bounds(chunk, units, chunks)
            self._units(p, kernel, row, begin, end, piece, run, owner=1)
            state.update("add", State.done, 1, "acq_rel")
            again.go()
        self._wait(p, chunks, run)
        state.store(State.owner, 0, "release")
        p.ret()
        serial.here()
        self._units(p, kernel, row, p.word(0), units, piece, run, owner=1)
        p.ret()

    def _wait(self, p: Procedure, chunks: Word, run: Word) -> None:
        """Until all chunks are done."""
        state = p.symbol(POOL_STATE)
        with p.loop(p.word(0)) as (again, done):
            (waited,) = again.words
            done.go_if(state.load(State.done, "acquire").eq(chunks))
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
        index = argument.to("i64")
        is_odd = index.to("i1")
        with p.loop(p.word(0)) as (look, _):
            (idle,) = look.words
            ticket = state.load(State.ticket, "acquire")
            front, back = _claims(ticket)
            chunks = state.load(State.chunks, "monotonic")
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
            row = table_ir.slot(table, index * stride)
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
