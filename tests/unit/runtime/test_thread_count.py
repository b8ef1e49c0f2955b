"""How many threads a program may use."""

from __future__ import annotations

import pytest

from hlo.errors import HloError
from hlo.runtime import threads


def test_asked_number_is_capped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "allowed_threads", lambda: 4)
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    assert threads.thread_count(2) == 2
    assert threads.thread_count(9) == 4
    assert threads.thread_count() == 4


def test_environment_gives_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "allowed_threads", lambda: 4)
    monkeypatch.setenv(threads.VARIABLE, "3")
    assert threads.thread_count() == 3
    assert threads.thread_count(1) == 1


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_environment_must_be_a_number(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(threads.VARIABLE, text)
    with pytest.raises(HloError, match="HLO_NUM_THREADS"):
        threads.thread_count()


def test_zero_threads_are_refused() -> None:
    with pytest.raises(HloError, match="an integer from 1"):
        threads.thread_count(0)


def test_allowed_threads_is_positive() -> None:
    assert threads.allowed_threads() >= 1


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"cpu.max": b"150000 100000\n"}, 2),
        ({"cpu.max": b"max 100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": b"-1\n", "cpu/cpu.cfs_period_us": b"100000\n"}, None),
        ({"cpu/cpu.cfs_quota_us": b"300000\n", "cpu/cpu.cfs_period_us": b"100000\n"}, 3),
        ({}, None),
    ],
)
def test_a_cgroups_quota_is_whole_processors(monkeypatch, files, expected) -> None:
    def text(name: str) -> bytes:
        if name not in files:
            raise FileNotFoundError(name)
        return files[name]

    monkeypatch.setattr(threads, "_text", text)
    assert threads._cgroup_quota() == expected
