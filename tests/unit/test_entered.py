"""Tables that modules enter their parts into: what is looked for is imported, and no more."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from hlo.entered import Entered


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

    table.fill_from(sources())
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
