"""Parallel loops of what is compiled ahead of time: threads of its own, or the caller's."""

from __future__ import annotations

import ctypes
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo import driver
from hlo.backend.ahead.ahead_of_time import AheadOfTime
from hlo.backend.entry import own_threads_ir
from hlo.machine import NAMED
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.ahead_harness import IS_THERE
from tests.support.ahead_library import Library, aligned

MACHINE = NAMED["x86-64-v3"]
WIDE = """HloModule wide
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[700,600] parameter(0)
  y = f32[600,500] parameter(1)
  p = f32[700,500] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[700,500] tanh(p)
  zero = f32[] constant(0)
  s = f32[500] reduce(t, zero), dimensions={0}, to_apply=add
  w = f32[700,600] exponential(x)
  ROOT r = (f32[500], f32[700,500], f32[700,600]) tuple(s, t, w)
}"""
PART = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64)
RUN = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, PART, ctypes.c_void_p)

pytestmark = pytest.mark.skipif(
    not (IS_THERE and driver.host_machine().features.issuperset(MACHINE.features)),
    reason="no gcc, or no x86-64-v3",
)


class Host(ctypes.Structure):
    """struct hlo_parallel_for."""

    _fields_ = (("run", RUN), ("context", ctypes.c_void_p), ("threads", ctypes.c_int64))


def compiled(threads: str, mode: str = "strict", **more: int) -> AheadOfTime:
    return driver.compile_ahead(hlo.parse(WIDE), MACHINE, threads=threads, mode=mode, **more)


def arguments() -> list[np.ndarray]:
    return [np.asarray(a) for a in made_up_inputs(hlo.parse(WIDE), "normal", 1)]


def ran(run: Library, *more: object) -> bytes:
    memory, results = aligned(run.made.interface.arena_bytes), run.results()
    assert run(arguments(), results, memory.ctypes.data, *more) == 0
    return b"".join(r.tobytes() for r in results)


@pytest.fixture(scope="module")
def expected() -> bytes:
    run = driver.compile(hlo.parse(WIDE), machine=MACHINE, threads=1, cache=False)
    return b"".join(r.tobytes() for r in run(*arguments()))


@pytest.mark.parametrize("is_portable", [False, True])
def test_threads_of_its_own(
    is_portable: bool,  # noqa: FBT001
    expected: bytes,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By Linux's futex, and as on systems that have none."""
    if is_portable:
        condition = own_threads_ir.Condition()
        monkeypatch.setattr(own_threads_ir, "sleep_of", lambda *_: condition)
    made = compiled("pthreads", max_threads=4)
    assert ("pthread_cond_wait" in made.llvm) is is_portable
    run = Library(made, tmp_path, "-pthread")
    for count in (1, 4, 3, 0, 100):
        run.code.wide_set_threads(count)
        for _ in range(10):
            assert ran(run) == expected, count
    with ThreadPoolExecutor(3) as pool:
        assert set(pool.map(lambda _: ran(run), range(30))) == {expected}


def test_threads_of_the_caller(expected: bytes, tmp_path: Path) -> None:
    run = Library(compiled("callback", max_threads=4), tmp_path)
    assert "int wide_parallel(" in run.made.header
    seen: list[int] = []

    with ThreadPoolExecutor(4) as pool:

        def at_once(_: int, workers: int, part: object, task: int) -> None:
            assert callable(part)
            seen.append(workers)
            list(pool.map(lambda w: part(task, w), range(workers)))

        def none(_: int, workers: int, part: object, task: int) -> None:
            del workers, part, task

        for function, threads in ((at_once, 4), (at_once, 3), (at_once, 1), (none, 4)):
            host = Host(RUN(function), None, threads)
            assert ran(run, ctypes.byref(host)) == expected
    assert set(seen) == {4, 3}
    assert ran(run) == expected
    assert ran(run, None) == expected


def test_fast_mode_is_that_of_all_threads(tmp_path: Path) -> None:
    """Where denormals are zeros, whoever computes."""
    own = Library(compiled("pthreads", "fast"), tmp_path, "-pthread")
    hosted = compiled("callback", "fast")
    (tmp_path / "hosted").mkdir()
    run = Library(hosted, tmp_path / "hosted")
    with ThreadPoolExecutor(2) as pool:
        host = Host(
            RUN(lambda _, n, part, task: [*pool.map(lambda w: part(task, w), range(n))] and None),
            None,
            2,
        )
        assert ran(own) == ran(run) == ran(run, ctypes.byref(host))


def test_what_threads_need(tmp_path: Path) -> None:
    needs = {
        "none": {"memcpy", "memset"},
        "callback": {"memcpy", "memset"},
        "pthreads": {"memcpy", "memset", "syscall", "sysconf", "pthread_create", "pthread_detach",
                     "pthread_sigmask"},
    }  # fmt: skip
    for threads, allowed in needs.items():
        file = tmp_path / f"{threads}.o"
        file.write_bytes(compiled(threads).object)
        done = subprocess.run(["nm", "-u", file], capture_output=True, text=True, check=True)
        assert {line.split()[-1] for line in done.stdout.splitlines()} <= allowed


def test_what_is_refused() -> None:
    with pytest.raises(hlo.HloError, match="expected one of"):
        compiled("openmp")
    windows = replace(MACHINE, triple="x86_64-pc-windows-msvc")
    with pytest.raises(hlo.HloError, match="threads=pthreads"):
        driver.compile_ahead(hlo.parse(WIDE), windows, threads="pthreads")
