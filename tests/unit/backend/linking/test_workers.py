"""Workers: jobs that threads do, meanwhile or at the end, and what becomes of errors."""

import threading

import pytest

from hlo.backend.linking.workers import Workers, in_parallel


def alive() -> list[str]:
    return [t.name for t in threading.enumerate() if t.name == "hlo-code"]


@pytest.mark.parametrize("threads", [0, 1, 3])
def test_all_jobs_are_done_once(threads: int) -> None:
    done: list[int] = []
    workers = Workers()
    workers.start(threads)
    for number in range(20):
        workers.put(number, lambda n=number: done.append(n))  # type: ignore[misc]  # bound now
    workers.finish()
    assert sorted(done) == list(range(20))
    assert not alive()


def test_threads_begin_before_the_end() -> None:
    begun = threading.Event()
    workers = Workers()
    workers.put(1, begun.set)
    workers.start(1)
    assert begun.wait(10.0), "nobody has called finish"
    workers.finish()


def test_alone_the_longest_comes_first() -> None:
    done: list[int] = []
    workers = Workers()
    for us in (3, 9, 1):
        workers.put(us, lambda n=us: done.append(n))  # type: ignore[misc]  # bound now
    workers.finish()
    assert done == [9, 3, 1]


def fail() -> None:
    raise ValueError("a job's")


def test_an_error_of_a_thread_is_raised_in_the_end() -> None:
    workers = Workers()
    workers.put(1, fail)
    workers.start(1)
    while workers._waiting:
        pass
    with pytest.raises(ValueError, match="a job's"):
        workers.finish()
    assert not alive()


def test_what_is_abandoned_is_not_done() -> None:
    done: list[int] = []
    workers = Workers()
    workers.put(1, lambda: done.append(1))
    workers.abandon()
    assert not done
    workers.start(1)
    assert not [t for t in workers._others if t.join(10.0) or t.is_alive()]


def test_modules_come_in_their_order_beside_others_of_the_program() -> None:
    others: list[int] = []
    workers = Workers()
    workers.put(5, lambda: others.append(1))
    assert in_parallel(lambda n: bytes([n]), [1, 1000, 10], workers) == [b"\0", b"\1", b"\2"]
    assert others == [1]
