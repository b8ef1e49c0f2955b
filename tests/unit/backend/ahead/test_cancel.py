"""Calls that a word of the caller's ends, driven from C."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import hlo
from hlo import driver
from hlo.backend.ahead_of_time import AheadOfTime
from hlo.machine import NAMED
from tests.support.ahead_harness import IS_THERE

MACHINE = NAMED["x86-64-v3"]
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


def compiled(text: str, threads: str = "none", **more: bool) -> AheadOfTime:
    return driver.compile_ahead(hlo.parse(text), MACHINE, threads=threads, cancellable=True, **more)


@pytest.mark.skipif(
    not (IS_THERE and driver.host_machine().features.issuperset(MACHINE.features)),
    reason="no gcc, or no x86-64-v3",
)
@pytest.mark.parametrize("text", [FOREVER, KERNEL], ids=["loop", "kernel"])
@pytest.mark.parametrize("threads", ["none", "pthreads", "callback"])
def test_a_call_ends_when_the_word_says_so(text: str, threads: str, tmp_path: Path) -> None:
    made = compiled(text, threads)
    (tmp_path / "long.o").write_bytes(made.object)
    (tmp_path / "long.h").write_text(made.header)
    (tmp_path / "main.c").write_text(MAIN)
    flags = ["-DHOSTED"] * (threads == "callback") + ["-DENDS"] * (text is FOREVER)
    command = ["gcc", "-pthread", "-Wall", "-Werror", *flags, "main.c", "long.o", "-o", "main"]
    subprocess.run(command, cwd=tmp_path, check=True)
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done
    ends = " 0 0 -3" * (text is FOREVER)
    assert done.stdout == f"5 5 the caller's word has ended the call: there are no results{ends}"


def test_without_it_nothing_is_asked() -> None:
    plain = driver.compile_ahead(hlo.parse(FOREVER), MACHINE)
    assert "hlo_poll" not in plain.llvm
    assert "cancel" not in plain.header.replace("LONG__CANCELLED", "")
    assert "thread_local" not in plain.llvm
    with pytest.raises(hlo.HloError, match="expected one of them"):
        compiled(FOREVER, freestanding=True)
