"""Calls that a word of the caller's ends, driven from C."""

from __future__ import annotations

import shutil
import struct
import subprocess
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.backend.ahead.ahead_of_time import AheadOfTime
from hlo.machine import NAMED, Machine
from tests.support.ahead_harness import IS_THERE
from tests.support.ahead_targets import RUNNERS, harness_of
from tests.support.ahead_wasm import WasmHarness

MACHINE = NAMED["x86-64-v3"]
ENDED = "5 5 the caller's word has ended the call: there are no results"
# A loop for ever around a kernel in parallel parts, unless n is 0, and one kernel of a minute.
FOREVER = """HloModule long
more { s = (f32[800,800], s32[]) parameter(0)
  n = s32[] get-tuple-element(s), index=1
  zero = s32[] constant(0)
  ROOT r = pred[] compare(n, zero), direction=GT }
step { s = (f32[800,800], s32[]) parameter(0)
  x = f32[800,800] get-tuple-element(s), index=0
  n = s32[] get-tuple-element(s), index=1
  y = f32[800,800] tanh(x)
  ROOT r = (f32[800,800], s32[]) tuple(y, n) }
ENTRY e {
  x = f32[800,800] parameter(0)
  n = s32[] parameter(1)
  s = (f32[800,800], s32[]) tuple(x, n)
  w = (f32[800,800], s32[]) while(s), condition=more, body=step
  y = f32[800,800] get-tuple-element(w), index=0
  ROOT z = f32[800,800] negate(y)
}"""
KERNEL = """HloModule long
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[800,800] parameter(0)
  n = s32[] parameter(1)
  v = f32[] convert(n)
  i = f32[800,800,100000] broadcast(x), dimensions={0,1}
  m = f32[800,800,100000] broadcast(v), dimensions={}
  p = f32[800,800,100000] power(i, m)
  zero = f32[] constant(0)
  ROOT s = f32[800,800] reduce(p, zero), dimensions={2}, to_apply=add
}"""
MAIN = r"""#include "long.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
static float x[640000], y[640000];
static volatile int32_t word;
static void *later(void *unused) {
  usleep(50000);
  word = 1;
  return unused;
}
#ifdef HOSTED
static void in_turn(void *context, int64_t workers, void (*part)(void *, int64_t), void *task) {
  (void)context;
  for (int64_t w = 0; w < workers; w++) part(task, w);
}
static const struct hlo_parallel_for host = {in_turn, 0, 4};
#define CALL(...) long__parallel(__VA_ARGS__, &host, &word)
#else
#define CALL(...) long__cancellable(__VA_ARGS__, &word)
#endif
int main(void) {
  void *arena = aligned_alloc(LONG__ALIGNMENT, LONG__ARENA_BYTES);
  int32_t n = 3;
  const void *const inputs[] = {x, &n};
  void *const outputs[] = {y};
  pthread_t thread;
  alarm(30);
  pthread_create(&thread, 0, later, 0);
  int first = CALL(inputs, outputs, arena);
  pthread_join(thread, 0);
  int again = CALL(inputs, outputs, arena);
  printf("%d %d %s", first, again, long__error_text(first));
#ifdef ENDS
  n = 0;
  word = 0;
  x[7] = 3;
  int whole = CALL(inputs, outputs, arena);
  int plain = long_(inputs, outputs, arena);
  printf(" %d %d %g", whole, plain, y[7]);
#endif
  return 0;
}
"""


def compiled(
    text: str, threads: str = "none", machine: Machine = MACHINE, **more: bool
) -> AheadOfTime:
    return driver.compile_ahead(hlo.parse(text), machine, threads=threads, cancellable=True, **more)


def told(made: AheadOfTime, folder: Path, command: Sequence[str], launcher: Sequence[str]) -> str:
    """What the program prints that calls it."""
    (folder / "long.o").write_bytes(made.object)
    (folder / "long.h").write_text(made.header)
    (folder / "main.c").write_text(MAIN)
    files = ["-pthread", "-Wall", "-Werror", "main.c", "long.o", "-o", "main"]
    subprocess.run([*command, *files], cwd=folder, check=True)
    run = [*launcher, folder / "main"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    return done.stdout


@pytest.mark.skipif(
    not (IS_THERE and driver.host_machine().features.issuperset(MACHINE.features)),
    reason="no gcc, or no x86-64-v3",
)
@pytest.mark.parametrize("text", [FOREVER, KERNEL], ids=["loop", "kernel"])
@pytest.mark.parametrize("threads", ["none", "pthreads", "callback"])
def test_a_call_ends_when_the_word_says_so(text: str, threads: str, tmp_path: Path) -> None:
    flags = ["-DHOSTED"] * (threads == "callback") + ["-DENDS"] * (text is FOREVER)
    found = told(compiled(text, threads), tmp_path, ["gcc", *flags], [])
    assert found == ENDED + " 0 0 -3" * (text is FOREVER)


@pytest.mark.parametrize("name", ["armv8-a", "armv7-a", "rv64gcv"])
@pytest.mark.parametrize("threads", ["none", "pthreads", "callback"])
def test_a_call_ends_on_other_machines(name: str, threads: str, tmp_path: Path) -> None:
    """Addresses of 32 bits have rows of 4 bytes, in which the fields of 64 bits lie too."""
    machine = NAMED[name]
    command, launcher = RUNNERS[machine.architecture]
    if not all(shutil.which(program) for program in (command[0], launcher[0])):
        pytest.skip(f"{command[0]} or {launcher[0]} is not there")
    flags = ["-DHOSTED"] * (threads == "callback")
    made = compiled(FOREVER, threads, machine)
    found = told(made, tmp_path, [*command, "-DENDS", *flags], launcher)
    assert found == f"{ENDED} 0 0 -3"


def test_without_it_nothing_is_asked() -> None:
    plain = driver.compile_ahead(hlo.parse(FOREVER), MACHINE)
    assert "hlo_poll" not in plain.llvm
    assert "cancel" not in plain.header.replace("LONG__CANCELLED", "")
    assert "thread_local" not in plain.llvm
    with pytest.raises(hlo.HloError, match="expected one of them"):
        compiled(FOREVER, freestanding=True)


def test_webassembly_asks_too(tmp_path: Path) -> None:
    """Nobody sets the word while a module of one thread runs: it is set before, or not at all."""
    made = compiled(FOREVER, machine=NAMED["wasm32-simd128"])
    harness = harness_of("wasm32-simd128", tmp_path, [made])
    assert isinstance(harness, WasmHarness)
    x = np.full((800, 800), 3, np.float32)
    (found,) = harness.run([(0, [x, np.int32(0)])])
    np.testing.assert_array_equal(found[0], -x)
    store, memory = harness.store, harness.memory
    word, table, x_at = (harness.base + 64 * k for k in range(3))
    y_at = x_at + x.nbytes
    arena = -(-(y_at + x.nbytes) // 64) * 64
    call = harness.exports[f"{made.name}_cancellable"]
    for stop, status in ((1, 5), (0, 0)):
        memory.write(store, struct.pack("<5I", x_at, word + 4, y_at, 0, 0), table)
        memory.write(store, struct.pack("<2I", stop, 0), word)
        assert call(store, table, table + 8, arena, word) == status
