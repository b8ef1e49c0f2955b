"""The rounds in which what the machine can do is measured."""

from __future__ import annotations

import signal
import threading

import pytest

from hlo.backend.profiling.limits import timed_round


def test_an_interrupt_waits_for_the_parts() -> None:
    """They read memory, which is freed when the round is left."""
    paused, ended = threading.Event(), []

    def part(thread: int) -> None:
        if thread == 0:
            signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
        paused.wait(0.05)  # nobody sets it
        ended.append(thread)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            timed_round(part, 2)
    finally:
        signal.signal(signal.SIGINT, before)
    assert sorted(ended) == [0, 1]


def test_parts_do_not_wait_for_one_that_never_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    """An interrupt between two starts: the first would wait for the second for ever."""
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def interrupted_start(thread: threading.Thread) -> None:
        if started:
            raise KeyboardInterrupt
        started.append(thread)
        start(thread)

    ran: list[int] = []
    monkeypatch.setattr(threading.Thread, "start", interrupted_start)
    with pytest.raises(KeyboardInterrupt):
        timed_round(ran.append, 2)
    assert not started[0].is_alive()
    assert ran == []
