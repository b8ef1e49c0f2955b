"""Tables that modules enter their parts into: what is looked for is imported, and no more."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hlo.process.entered import Entered


def filled() -> tuple[Entered[str, int], list[str]]:
    """A table of three sources, and which of them have run."""
    table: Entered[str, int] = Entered()
    ran: list[str] = []

    def sources() -> Iterator[None]:
        for source, names in (("common", "ab"), ("empty", ""), ("rare", "c")):
            ran.append(source)
            for name in names:
                table.enter(name, ord(name))
            yield

    table.fill_from(sources)
    return table, ran


def test_sources_run_until_the_key_is_there() -> None:
    table, ran = filled()
    assert ran == []
    assert table["b"] == table.get("b") == ord("b")
    assert ran == ["common"]
    assert "c" in table
    assert ran == ["common", "empty", "rare"]


def test_what_is_nowhere_is_missing() -> None:
    table, ran = filled()
    assert "x" not in table
    assert table.get("x", 1) == 1
    with pytest.raises(KeyError):
        table["x"]
    assert ran == ["common", "empty", "rare"]


def test_all_of_it_is_all_of_it() -> None:
    for whole in (list, len, dict, sorted, lambda table: list(table.items())):
        table, ran = filled()
        assert len(ran) == 0
        whole(table)
        assert ran == ["common", "empty", "rare"]


def test_an_entry_of_the_users_stays() -> None:
    """A source that would run later puts nothing in its place."""
    table, _ = filled()
    table["c"] = 0
    assert dict(table) == {"a": ord("a"), "b": ord("b"), "c": 0}


def test_two_entries_for_a_key_are_a_fault() -> None:
    table, _ = filled()
    table.enter("c", 0)
    with pytest.raises(AssertionError, match="two entries"):
        list(table)


def test_threads_find_what_another_thread_enters() -> None:
    for _ in range(50):
        table, ran = filled()
        with ThreadPoolExecutor(8) as pool:
            assert list(pool.map(table.__getitem__, "cabcabca")) == list(map(ord, "cabcabca"))
        assert ran == ["common", "empty", "rare"]


def interrupted(break_off: Callable[[], None]) -> Entered[str, int]:
    """A table whose second source calls that the first time, between its two entries, as modules
    that are imported enter what they have once.
    """
    table: Entered[str, int] = Entered()
    modules = {"a": 1, "b": 2, "d": 4}

    def imported(names: str) -> None:
        for name in names:
            if name in modules:
                table.enter(name, modules.pop(name))

    def sources() -> Iterator[None]:
        imported("a")
        yield
        imported("b")
        if "d" in modules:
            break_off()
        imported("d")
        yield

    table.fill_from(sources, lambda key: imported(key) if key == "b" else None)
    return table


def test_sources_start_again_after_an_interrupt() -> None:
    interrupts = iter([KeyboardInterrupt])

    def interrupt() -> None:
        for kind in interrupts:
            raise kind

    for key in "bd":
        interrupts = iter([KeyboardInterrupt])
        table = interrupted(interrupt)
        with pytest.raises(KeyboardInterrupt):
            table["d"]
        assert table[key] == "abcd".index(key) + 1
        assert dict(table) == {"a": 1, "b": 2, "d": 4}


def test_a_module_that_an_interrupt_broke_off_enters_again() -> None:
    table: Entered[str, int] = Entered()
    interrupts = iter([KeyboardInterrupt])

    def sources() -> Iterator[None]:
        table.enter("a", 1)
        for kind in interrupts:
            raise kind
        table.enter("b", 2)
        yield

    table.fill_from(sources)
    with pytest.raises(KeyboardInterrupt):
        table["b"]
    assert dict(table) == {"a": 1, "b": 2}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_child_starts_the_sources_that_another_thread_was_running() -> None:
    begun, over = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        if threading.current_thread() is other:
            over.wait()

    table = interrupted(wait)
    other = threading.Thread(target=lambda: table["d"])
    other.start()
    begun.wait()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if dict(table) == {"a": 1, "b": 2, "d": 4} else 2
        finally:
            os._exit(code)
    over.set()
    other.join()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert dict(table) == {"a": 1, "b": 2, "d": 4}
