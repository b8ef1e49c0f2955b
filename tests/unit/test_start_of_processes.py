"""What a fresh process is asked for before it imports the rest of this package."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from hlo.process.idle_threads import TWO_MS, VARIABLE

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
import gc, os, sys
from hlo.cli import main
try:
    main.opt(["--version"])
except SystemExit:
    print(gc.get_threshold()[0])
    print(os.environ["OPENBLAS_THREAD_TIMEOUT"])
"""


def said(program: str, **more: str) -> list[str]:
    surroundings = {k: v for k, v in os.environ.items() if k != VARIABLE} | more
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=surroundings)
    return done.stdout.splitlines()


@pytest.mark.parametrize("first", ["import hlo; hlo.parse", "from hlo import driver"])
def test_modules_are_imported_while_the_collector_rests(first: str) -> None:
    """NumPy before them; for how long its threads look for work is left alone."""
    assert said(LIBRARY.format(first)) == [
        "numpy True None",
        "hlo.driver False None",
        "hlo.ir.graph False None",
        "end True None",
    ]


def test_commands_say_how_long_idle_threads_look_for_work_unless_somebody_has() -> None:
    assert said(COMMAND)[-1] == TWO_MS
    assert said(COMMAND, **{VARIABLE: "28"})[-1] == "28"


def test_names_without_arrays_need_no_numpy() -> None:
    assert said(LIBRARY.format("import hlo; hlo.HloError, hlo.PrintOptions")) == ["end True None"]


def test_commands_collect_seldom() -> None:
    assert int(said(COMMAND)[-2]) > 10_000
