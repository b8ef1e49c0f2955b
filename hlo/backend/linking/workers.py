"""Workers: threads that make machine code of what they are given, meanwhile or at the end.

    put(us, job), ..., start(threads), ..., finish(): the caller works too, until all is done

LLVM runs beside Python, which holds its lock while kernels are planned: what is ready by then is
compiled on the other processors.
"""

from __future__ import annotations

import heapq
import itertools
import os
import threading
from collections.abc import Callable, Sequence

from hlo.progress import tell

# Microseconds of all modules but the longest that are worth a thread.
THREAD_US = 700
Job = Callable[[], None]


class Worker(threading.Thread):
    """A thread that begins at once, and whose error is raised by `check`, when it has ended. Not
    of concurrent.futures, which takes as long to import as LLVM takes for a module.
    """

    def __init__(self, work: Callable[[], None]) -> None:
        super().__init__(name="hlo-code")
        self._work = work
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._work()
        except BaseException as error:  # raised in the thread that waits
            self._error = error

    def check(self) -> None:
        """Raise what ended it."""
        if self._error is not None:
            raise self._error


class Workers:
    """Jobs, the longest of those that wait first, and the threads that do them."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, int, Job]] = []
        self._order = itertools.count()
        self._others: list[Worker] = []
        self._changed = threading.Condition()
        self._is_over = False

    def put(self, us: int, job: Job) -> None:
        """A job of about so many microseconds."""
        with self._changed:
            heapq.heappush(self._waiting, (-us, next(self._order), job))
            self._changed.notify()

    def start(self, threads: int) -> None:
        """Have so many threads beside the caller's."""
        while len(self._others) < threads:
            self._others.append(Worker(self._work))

    def finish(self) -> None:
        """Do what waits, beside the threads, and wait for these. Raises what ended one of them."""
        self._end()
        try:
            self._work()
        finally:
            self._leave()
        for other in self._others:
            other.check()

    def abandon(self) -> None:
        """Forget what waits."""
        with self._changed:
            self._waiting.clear()
        self._end()
        self._leave()

    def _end(self) -> None:
        with self._changed:
            self._is_over = True
            self._changed.notify_all()

    def _leave(self) -> None:
        for other in self._others:
            other.join()

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job()

    def _next(self) -> Job | None:
        with self._changed:
            while not self._waiting:
                if self._is_over:
                    return None
                self._changed.wait()
            return heapq.heappop(self._waiting)[2]


def in_parallel(
    code: Callable[[int], bytes], costs: Sequence[int], workers: Workers | None = None
) -> list[bytes]:
    """What a function makes of modules by number, on as many threads as there are processors.

    costs: of the modules, in microseconds. workers: who have others to finish besides.
    """
    made: dict[int, bytes] = {}
    tell("machine code", 0, len(costs))
    workers = workers or Workers()

    def job(number: int) -> None:
        made[number] = code(number)
        tell("machine code", len(made), len(costs))

    for number, us in enumerate(costs):
        workers.put(us, lambda n=number: job(n))  # type: ignore[misc]  # bound now
    if sum(costs) - max(costs, default=0) > THREAD_US:
        workers.start(min(len(costs), len(os.sched_getaffinity(0))) - 1)
    workers.finish()
    tell("machine code", len(made), len(costs))
    return [made[n] for n in range(len(costs))]
