"""What a fresh process is asked for before it imports the rest of this package."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hlo.idle_threads import TWO_MS, VARIABLE

LIBRARY = """
import gc, os, sys
def seen():
    return os.environ.get("OPENBLAS_THREAD_TIMEOUT")
class Finder:
    def find_spec(self, name, path=None, target=None):
        if name in ("numpy", "hlo.driver", "hlo.ir.graph"):
            print(name, gc.isenabled(), seen())
sys.meta_path.insert(0, Finder())
{}
print("end", gc.isenabled(), seen())
"""
COMMAND = """
import gc, sys
from hlo.cli import main
try:
    main.opt(["--version"])
except SystemExit:
    print(gc.get_threshold()[0])
"""


def said(program: str, **more: str) -> list[str]:
    surroundings = {k: v for k, v in os.environ.items() if k != VARIABLE} | more
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    return done.stdout.splitlines()


@pytest.mark.parametrize("first", ["import hlo; hlo.parse", "from hlo import driver"])
def test_modules_are_imported_while_the_collector_rests(first: str) -> None:
    """NumPy before them, whose threads are told how long they look for work."""
    assert said(LIBRARY.format(first)) == [
        f"numpy True {TWO_MS}",
        "hlo.driver False None",
        "hlo.ir.graph False None",
        "end True None",
    ]


def test_who_has_said_it_is_left_alone() -> None:
    """Or has imported NumPy before."""
    assert said(LIBRARY.format("import hlo; hlo.parse"), **{VARIABLE: "28"})[0] == "numpy True 28"
    found = said(LIBRARY.format("import numpy, hlo; hlo.parse"))
    assert (found[0], found[-1]) == ("numpy True None", "end True None")


def test_names_without_arrays_need_no_numpy() -> None:
    assert said(LIBRARY.format("import hlo; hlo.HloError, hlo.PrintOptions")) == ["end True None"]


def test_commands_collect_seldom() -> None:
    assert int(said(COMMAND)[-1]) > 10_000
