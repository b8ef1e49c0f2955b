"""The pool: equal bits for every number of threads, several callers, forks."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.entry import pool_interface_ir, pool_ir, process
from hlo.backend.linking import native
from hlo.backend.planning.program import KernelStep
from hlo.backend.planning.steps import program_of
from hlo.backend.planning.team import Team
from hlo.machine import COMMON
from tests.support.tiny_kernels import compiled, planned

N = 3_000_000
LARGE = f"""HloModule m
ENTRY e {{
  a = f32[{N}] parameter(0)
  x = f32[{N}] parameter(1)
  m = f32[{N}] multiply(a, x)
  n = f32[{N}] add(m, x)
  ROOT r = f32[{N}] add(m, n)
}}"""


@pytest.fixture(scope="module")
def arguments() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    a, x = rng.standard_normal((2, N)).astype(np.float32)
    return a, x


def expected(arguments: tuple[np.ndarray, np.ndarray]) -> bytes:
    a, x = arguments
    m = a * x
    return (m + (m + x)).tobytes()


@pytest.mark.parametrize("threads", [1, 2, 3, 7])
def test_same_bits_for_every_thread_count(
    arguments: tuple[np.ndarray, np.ndarray], threads: int
) -> None:
    executable = compiled(LARGE, threads)
    for _ in range(5):
        assert executable(*arguments).tobytes() == expected(arguments)


def test_large_kernels_are_split_and_small_programs_wake_nobody() -> None:
    large = program_of(planned(LARGE), 3, COMMON)
    assert large.team is Team.WOKEN
    assert all(isinstance(s, KernelStep) and s.chunks > 1 for s in large.steps)
    small = program_of(planned(LARGE.replace(str(N), "3000")), 3, COMMON)
    assert small.team is Team.ALONE
    assert all(isinstance(s, KernelStep) and s.chunks == 1 for s in small.steps)


def shorter(size: int) -> str:
    return LARGE.replace(str(N), str(size))


def test_short_programs_take_who_is_awake() -> None:
    program = program_of(planned(shorter(60_000)), 2, COMMON)
    assert program.team is Team.AWAKE
    assert all(isinstance(s, KernelStep) and s.chunks > 1 for s in program.steps)


def test_products_of_wide_numbers_wake_the_pool_sooner() -> None:
    """A complex product is four, and vectors hold half as many f64."""

    def team(dtype: str) -> Team:
        text = f"""HloModule m
ENTRY e {{
  a = {dtype}[128,128] parameter(0)
  b = {dtype}[128,128] parameter(1)
  ROOT r = {dtype}[128,128] dot(a, b), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}"""
        return Compilation(driver.parse(text), threads=2, machine=COMMON).program.team

    assert team("f32") is Team.AWAKE
    assert team("c128") is Team.WOKEN


PROCESS = """
import numpy as np
import hlo
from hlo.backend.linking import native
from tests.unit.backend.test_threads import expected, shorter
short = hlo.compile(hlo.parse(shorter(60_000)), threads=2, cache=False)
parts = tuple(np.random.default_rng(0).standard_normal((2, 60_000)).astype(np.float32))
cells = native.runs()
for call in range(400):  # some of which are tried without the pool
    assert short(*parts).tobytes() == expected(parts), call
    assert cells._pool is None or call >= {asked} - 1, call
assert cells._pool is not None
"""


def test_the_pool_is_made_when_short_programs_ask_for_it_again_and_again() -> None:
    """Not for the first few, which would wait for it longer than they take."""
    code = PROCESS.format(asked=pool_interface_ir.ASKED)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def pool_words() -> dict[str, int]:
    """What the pool counts."""
    pool = native.pool()
    assert pool is not None
    fields = {"sleepers": 4, "workers": 4, "alone_ns": 8}
    words = {}
    for name, size in fields.items():
        at = pool._state + getattr(pool_ir.State, name).offset
        words[name] = int.from_bytes(ctypes.string_at(at, size), sys.byteorder)
    return words


def until_asleep() -> dict[str, int]:
    for _ in range(1000):
        words = pool_words()
        if words["sleepers"] == words["workers"] > 0:
            return words
        time.sleep(0.002)
    raise AssertionError(f"workers spin: {words}")


def test_a_short_program_by_itself_wakes_nobody(arguments: tuple[np.ndarray, np.ndarray]) -> None:
    short, parts = compiled(shorter(60_000), 2), tuple(x[:60_000] for x in arguments)
    for _ in range(3):
        until_asleep()
        time.sleep(0.01)
        assert short(*parts).tobytes() == expected(parts)
        assert pool_words()["sleepers"] == pool_words()["workers"]


def test_short_programs_in_a_row_have_one_budget_for_waking(
    arguments: tuple[np.ndarray, np.ndarray],
) -> None:
    """Whether workers are met awake is the machine's affair; what is spent on it is the pool's."""
    short, parts = compiled(shorter(60_000), 2), tuple(x[:60_000] for x in arguments)
    for _ in range(2000):
        assert short(*parts).tobytes() == expected(parts)
        assert 0 <= pool_words()["alone_ns"] <= process.WORTH_NS


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one processor is nobody's to leave")
def test_workers_keep_off_the_processor_of_who_wakes_them(
    arguments: tuple[np.ndarray, np.ndarray],
) -> None:
    executable, pool = compiled(LARGE, 2), native.pool()
    assert pool is not None
    (thread,) = struct.unpack("i", ctypes.string_at(pool._code.address(process.POOL_THREADS), 4))
    allowed = os.sched_getaffinity(0)
    try:
        for own in sorted(allowed)[:2]:
            os.sched_setaffinity(0, {own})  # of this thread
            until_asleep()
            assert executable(*arguments).tobytes() == expected(arguments)
            assert os.sched_getaffinity(thread) == allowed - {own}
    finally:
        os.sched_setaffinity(0, allowed)


def test_one_executable_from_several_threads(arguments: tuple[np.ndarray, np.ndarray]) -> None:
    executable = compiled(LARGE, 2)
    want = expected(arguments)
    wrong: list[int] = []

    def work() -> None:
        for n in range(6):
            if executable(*arguments).tobytes() != want:
                wrong.append(n)

    workers = [threading.Thread(target=work) for _ in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not wrong


def test_child_process_runs_without_its_parents_workers(
    arguments: tuple[np.ndarray, np.ndarray],
) -> None:
    executable = compiled(LARGE, 2)
    want = expected(arguments)
    assert executable(*arguments).tobytes() == want
    child = os.fork()
    if child == 0:
        os._exit(0 if executable(*arguments).tobytes() == want else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_pool_grows_once() -> None:
    pool = native.pool()
    assert pool is not None
    pool.grow(2)
    before = pool._workers
    pool.grow(2)
    assert pool._workers == before >= 1


def test_large_copies_are_split(arguments: tuple[np.ndarray, np.ndarray]) -> None:
    text = f"""HloModule m
    ENTRY e {{
      x = f32[{N}] parameter(0)
      y = f32[{N}] parameter(1)
      ROOT t = (f32[{N}], f32[{N}]) tuple(y, x)
    }}"""
    steps = program_of(planned(text), 2, COMMON).steps
    assert all(isinstance(s, KernelStep) and s.chunks > 1 for s in steps)
    first, second = compiled(text, 2)(*arguments)  # type: ignore[misc]  # a tuple
    assert first.tobytes() == arguments[1].tobytes()
    assert second.tobytes() == arguments[0].tobytes()
