"""Own threads: the pool of an object that was compiled ahead of time, and the threads in it.

    hlo_threads(most) -> how many a call uses; as many have been made
    NAME_set_threads(count)                       from now on calls use so many at most

The pool is the one of the process (pool_ir). Its threads are made by the first calls that want
them, at most one for each processor that is there unless the host says otherwise, and live as long
as the process. They sleep by Linux's futex; elsewhere by a mutex and a condition of pthreads.
"""

from __future__ import annotations

from msgspec import Struct

from hlo.backend.entry import pool_ir
from hlo.backend.entry.pool_ir import Futex, Sleep, State
from hlo.backend.entry.process import FUTEX_SYSCALL, WORKER
from hlo.backend.ir.interface import NULL, Field, prototype
from hlo.backend.ir.procedure import Procedure, Unit
from hlo.backend.ir.words import Word
from hlo.backend.isa.select import base_of

CREW = "hlo_crew"
CREW_BYTES = 64
THREADS = prototype("i64", "hlo_threads", "i64")
_GROW = prototype("void", "hlo_grow", "i64")
_MUTEX, _CONDITION = "hlo_pool_mutex", "hlo_pool_condition"
_PTHREAD_BYTES = 64  # Room for a mutex or a condition of any system.
_SIGNAL_BYTES = 128  # Room for a set of signals.


class Crew:
    """The words of memory by which an object's threads know each other.

    limit: threads that calls use at most, 0: not known yet; made: workers; making: whether a
    thread makes some.
    """

    limit = Field(0, "i32")
    made = Field(4, "i32")
    making = Field(8, "i32")


class System(Struct, frozen=True):
    """Numbers of a system: sysconf's of the processors that are there, and those by which signals
    are blocked and set."""

    processors: int
    block: int
    set_mask: int


LINUX, APPLE = System(84, 0, 2), System(58, 1, 3)
SYSTEMS = {
    "linux": LINUX,
    "macosx": APPLE,
    "darwin": APPLE,
    "ios": APPLE,
    "freebsd": System(58, 1, 3),
}

_SYSCONF = prototype("i32", "sysconf", "i32")  # the lower half of a long
_CREATE = prototype("i32", "pthread_create", "ptr", "ptr", "ptr", "ptr")
_DETACH = prototype("i32", "pthread_detach", "ptr")
_SIGNALS = prototype("i32", "pthread_sigmask", "i32", "ptr", "ptr")
_YIELD = prototype("i32", "sched_yield")
_LOCK = prototype("i32", "pthread_mutex_lock", "ptr")
_UNLOCK = prototype("i32", "pthread_mutex_unlock", "ptr")
_WAIT = prototype("i32", "pthread_cond_wait", "ptr", "ptr")
_BROADCAST = prototype("i32", "pthread_cond_broadcast", "ptr")
_BEGIN_MUTEX = prototype("i32", "pthread_mutex_init", "ptr", "ptr")
_BEGIN_CONDITION = prototype("i32", "pthread_cond_init", "ptr", "ptr")


class Condition(Struct):
    """Sleeping by pthreads. The generation has changed before anybody is woken."""

    def until(self, p: Procedure, state: Word, seen: Word) -> None:
        mutex, condition = p.symbol(_MUTEX), p.symbol(_CONDITION)
        p.call(_LOCK, mutex)
        with p.loop() as (again, done):
            now = state.load(State.generation, "acquire")
            done.go_unless(now.eq(seen.to("i32")))
            p.call(_WAIT, condition, mutex)
            again.go()
        p.call(_UNLOCK, mutex)

    def wake(self, p: Procedure, state: Word) -> None:
        del state
        p.call(_LOCK, p.symbol(_MUTEX))
        p.call(_BROADCAST, p.symbol(_CONDITION))
        p.call(_UNLOCK, p.symbol(_MUTEX))

    def give_way(self, p: Procedure) -> None:
        p.call(_YIELD)


def is_known(system: str) -> bool:
    """Whether threads can be made on a system, by its word in a triple."""
    return system in SYSTEMS


def sleep_of(architecture: str, system: str) -> Sleep:
    """How threads sleep there."""
    has_futex = system == "linux" and architecture in FUTEX_SYSCALL
    return Futex.of(architecture) if has_futex else Condition()


def text(set_threads: str, architecture: str, system: str, *, is_watched: bool = False) -> str:
    """The module of the pool and of its threads. set_threads: how its setter is called; is_watched:
    runs can be stopped."""
    unit = Unit()
    unit.data(CREW, f"global [{CREW_BYTES} x i8] zeroinitializer, align 64")
    sleep = sleep_of(architecture, system)
    made = _Threads(SYSTEMS[system], isinstance(sleep, Condition))
    if made.has_condition:
        for name in (_MUTEX, _CONDITION):
            unit.data(name, f"global [{_PTHREAD_BYTES} x i8] zeroinitializer, align 16")
    pool_ir.define(unit, base_of(architecture), sleep, is_watched=is_watched)
    unit.define(_GROW, made.grow, attributes="noinline cold")
    unit.define(THREADS, made.threads)
    unit.define(prototype("void", set_threads, "i32"), _set_threads)
    return unit.text()


def _set_threads(p: Procedure, count: Word) -> None:
    one = p.word(1, "i32")
    p.symbol(CREW).store(Crew.limit, (count > 1).select(count, one), "monotonic")
    p.ret()


class _Threads(Struct):
    """The functions for a system. has_condition: threads sleep by pthreads."""

    system: System
    has_condition: bool

    def threads(self, p: Procedure, most: Word) -> None:
        crew = p.symbol(CREW)
        limit = crew.load(Crew.limit, "monotonic")
        known = p.join("i32")
        known.go_if(limit > 0, limit)
        there = p.call(_SYSCONF, self.system.processors)
        there = (there > 1).select(there, p.word(1, "i32"))
        crew.store(Crew.limit, there, "monotonic")
        (found,) = known.here(there)
        wanted = found.to("i64")
        wanted = (wanted < most).select(wanted, most)
        workers = crew.load(Crew.made, "monotonic").to("i64")
        with p.when(wanted > workers + 1):
            p.call(_GROW, wanted)
        p.ret(wanted)

    def grow(self, p: Procedure, wanted: Word) -> None:
        """Workers up to the wanted number of threads, where the system gives them. Signals are the
        host's threads' to take."""
        crew = p.symbol(CREW)
        before, all = (p.stack(f"[{_SIGNAL_BYTES} x i8]", 16) for _ in range(2))
        place = p.stack("ptr", 8)
        with p.when(~crew.swap(Crew.making, 0, 1)):
            p.ret()
        made = crew.load(Crew.made, "monotonic")
        if self.has_condition:
            with p.when(made.eq(0)):
                p.call(_BEGIN_MUTEX, p.symbol(_MUTEX), NULL)
                p.call(_BEGIN_CONDITION, p.symbol(_CONDITION), NULL)
        with p.counted(p.word(_SIGNAL_BYTES // 8)) as k:
            all.put(p.word(-1), k)
        p.call(_SIGNALS, self.system.block, all, before)
        with p.loop(made) as (again, done):
            (workers,) = again.words
            more = workers + 1
            index = more.to("i64")
            done.go_unless(index < wanted)
            status = p.call(_CREATE, place, NULL, p.symbol(WORKER), index.to("ptr"))
            done.go_unless(status.eq(0))
            p.call(_DETACH, place.get("ptr"))
            crew.store(Crew.made, more, "monotonic")
            again.go(more)
        p.call(_SIGNALS, self.system.set_mask, before, NULL)
        crew.store(Crew.making, 0, "release")
        p.ret()
