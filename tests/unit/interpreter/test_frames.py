"""Room for deep calls: Python's limit is the process's, and is what it was when a run has ended."""

from __future__ import annotations

import ast
import contextlib
import sys
import threading

import numpy as np
import pytest

import hlo
from hlo.interpreter.frames import SHALLOW, call_depth, room_for
from hlo.ir.module import Module
from tests.support.growing_modules import FAMILIES
from tests.support.source_files import FILES, ROOT, nodes_of

X = np.arange(4, dtype=np.float32)


def nested(depth: int) -> Module:
    return hlo.parse(FAMILIES["calls_once"].text(depth - 1))


def test_depths_are_counted() -> None:
    assert call_depth(nested(7)) == 7
    assert call_depth(hlo.parse(FAMILIES["calls_twice"].text(40))) == 41
    assert call_depth(hlo.parse(FAMILIES["elementwise_chain"].text(3))) == 1


def test_shallow_modules_leave_the_limit_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    set_to: list[int] = []
    monkeypatch.setattr(sys, "setrecursionlimit", set_to.append)
    hlo.evaluate(nested(SHALLOW), X)
    assert not set_to
    hlo.evaluate(nested(SHALLOW + 1), X)
    assert len(set_to) == 1  # it was not set, so it is not set back


@pytest.mark.parametrize("depth", [SHALLOW + 1, 290, 400])
def test_the_limit_is_what_it_was(depth: int) -> None:
    before = sys.getrecursionlimit()
    with contextlib.suppress(hlo.HloError):  # of 400 calls: more than the reference takes
        hlo.evaluate(nested(depth), X)
    assert sys.getrecursionlimit() == before


def test_runs_side_by_side_keep_their_room() -> None:
    """One that ends leaves the other's; the last one sets the limit back."""
    before = sys.getrecursionlimit()
    entered, left = threading.Event(), threading.Event()
    module = nested(200)
    seen = []

    def other() -> None:
        with room_for(module):
            entered.set()
            left.wait(60)
            seen.append(sys.getrecursionlimit())

    thread = threading.Thread(target=other)
    with room_for(module):
        thread.start()
        assert entered.wait(60)
    assert sys.getrecursionlimit() > before
    left.set()
    thread.join()
    assert seen[0] > before
    assert sys.getrecursionlimit() == before


def test_a_limit_that_somebody_else_sets_meanwhile_stays() -> None:
    before = sys.getrecursionlimit()
    try:
        with room_for(nested(200)):
            sys.setrecursionlimit(before + 4321)
        assert sys.getrecursionlimit() == before + 4321
    finally:
        sys.setrecursionlimit(before)


# What is the process's, or the interpreter's, and not a library's to set; who sets it back.
PROCESS_WIDE = {
    "setrecursionlimit": {"hlo/interpreter/frames.py"},
    "setswitchinterval": set(), "chdir": set(), "umask": set(), "setlocale": set(),
    "setrlimit": set(), "set_int_max_str_digits": set(), "putenv": set(), "seterr": set(),
    "simplefilter": set(), "stack_size": set(),
}  # fmt: skip


def test_nothing_else_of_the_process_is_set() -> None:
    found: dict[str, set[str]] = {name: set() for name in PROCESS_WIDE}
    for path in FILES:
        text = path.read_text()
        if not any(name in text for name in PROCESS_WIDE):
            continue  # nor in its tree
        for node in nodes_of(text):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if name in found:
                    found[name].add(path.relative_to(ROOT).as_posix())
    assert found == PROCESS_WIDE
