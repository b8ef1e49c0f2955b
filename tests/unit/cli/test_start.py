"""Interrupts while a command starts: no traceback, and none is lost."""

from __future__ import annotations

import signal
import subprocess
import sys

DURING_IMPORTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
class Interrupted:
    def find_spec(self, name, *_):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Interrupted())
from hlo.cli import start
start.opt()
"""
IN_A_CALLBACK = """
import os, signal, sys, time, weakref
signal.signal(signal.SIGINT, signal.default_int_handler)
from hlo.cli import main, start
class Held: pass
def callback(_):
    os.kill(os.getpid(), signal.SIGINT)
    sum(range(1000))
def exit_code(command, given):
    held = Held()
    kept = weakref.ref(held, callback)
    try:
        del held
        time.sleep(20)
    except KeyboardInterrupt:
        return 130
    return 0
main.exit_code = exit_code
start.opt()
"""
BEFORE_THE_COMMAND = """
import os, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)
from hlo.cli import main, start
def settle_streams():
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(20)
main.settle_streams = settle_streams
start.opt()
"""


def ended(program: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", program, "--version"], capture_output=True, text=True, check=False
    )
    return done.returncode, done.stderr


def test_an_interrupt_during_imports_is_the_systems() -> None:
    assert ended(DURING_IMPORTS) == (-signal.SIGINT, "")


def test_an_interrupt_before_the_command_is_the_systems() -> None:
    assert ended(BEFORE_THE_COMMAND) == (-signal.SIGINT, "")


def test_an_interrupt_in_a_callback_reaches_the_command() -> None:
    assert ended(IN_A_CALLBACK) == (130, "")
