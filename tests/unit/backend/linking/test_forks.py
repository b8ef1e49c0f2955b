"""A fork beside threads that compile: the child compiles and runs, or says at once why not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hlo.errors import HloError
from hlo.process.forking import Gate

ROOT = Path(__file__).parents[4]

FORKS = """
import os, signal, sys, threading, time
import numpy as np, hlo
count, warm = int(sys.argv[1]), sys.argv[2] == "warm"
def text(k):
    return (f"HloModule m\\nENTRY e {{ p = f32[{k},8] parameter(0)\\n"
            f"d = f32[{k},{k}] dot(p, p), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}\\n"
            f"ROOT r = f32[{k},{k}] exponential(d) }}")
def compiled(k):
    return hlo.compile(hlo.parse(text(k)), cache=False, threads=2)
large = ("HloModule m\\nENTRY e { p = f32[1048576] parameter(0)\\n"
         "ROOT r = f32[1048576] exponential(p) }")
ones = np.ones(1048576, np.float32)
before = hlo.compile(hlo.parse(large), threads=2) if warm else None
over = threading.Event()
def work(n):
    k = n
    while not over.is_set():
        compiled(2 + k % 61)
        k += 3
threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
for thread in threads:
    thread.start()
def child(n):
    signal.alarm(60)  # a child that waits for ever ends by a signal
    try:
        made = compiled(70 + n)
    except hlo.HloError as error:
        return 3 if error.code == "forked" else 4
    out = made(np.zeros((70 + n, 8), np.float32))
    if out.shape != (70 + n, 70 + n) or not (out == 1).all():
        return 5
    if before is not None:
        if abs(float(before(ones)[7]) - 2.7182817) > 1e-5:
            return 6
        if len(os.listdir("/proc/self/task")) < 2 and len(os.sched_getaffinity(0)) > 1:
            return 7  # the pool's threads are made anew
    return 0
children = []
for n in range(count):
    time.sleep(0.002 + 0.011 * (n % 5))
    pid = os.fork()
    if pid == 0:
        code = 9
        try:
            code = child(n)
        finally:
            os._exit(code)
    children.append(pid)
ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
over.set()
for thread in threads:
    thread.join()
print(sorted(set(ends)))
"""


def ends(count: int, state: str) -> str:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", FORKS, str(count), state]
    environment = {**os.environ, "HLO_CACHE_DIR": ""}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=600, env=environment
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("state", ["warm", "cold"])
def test_children_of_forks_beside_compiling_threads(state: str) -> None:
    """warm: threads compile on; cold: they are the first, and import what that takes."""
    assert ends(8, state) in ("[0]", "[0, 3]", "[3]")


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.parametrize("state", ["warm", "cold"])
def test_many_children(state: str) -> None:
    """`pytest -m slow tests/unit/backend/linking/test_forks.py`"""
    assert ends(200, state) in ("[0]", "[0, 3]")


def test_a_child_of_a_disturbed_fork_refuses_at_once() -> None:
    gate = Gate()
    gate.is_broken = True
    with pytest.raises(HloError, match="forked while another thread") as caught, gate.inside():
        pass
    assert caught.value.code == "forked"
    assert "spawn" in caught.value.help


def test_the_gate_waits_for_others_and_not_for_itself() -> None:
    gate = Gate()
    with gate.inside(), gate.inside():
        assert gate.close(0.0)  # this thread's own calls do not keep it from forking
        gate.open()
    gate.depths[-1] = 1  # another thread
    assert not gate.close(0.0)
    gate.open()
    gate.reset()
    assert gate.close(0.0)
