"""Addresses of 32 bits: tables, parallel loops by an object's own threads and by a host's."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np

import hlo
from hlo import driver
from hlo.given_machines import from_json
from hlo.machine import NAMED
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.ahead_targets import RUNNERS, harness_of

MACHINE = "armv7-a"
WIDE = """HloModule wide
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[900,500] parameter(0)
  y = f32[900,500] tanh(x)
  z = f32[900,500] exponential(y)
  zero = f32[] constant(0)
  s = f32[500] reduce(y, zero), dimensions={0}, to_apply=add
  ROOT r = (f32[500], f32[900,500]) tuple(s, z)
}"""
# Counts how often the host is asked, and compares both ways to call.
MAIN = """
#include "wide.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
static int asked;
static void in_turn(void *context, int64_t workers, void (*part)(void *, int64_t), void *task) {
  asked += *(int *)context;
  for (int64_t w = workers - 1; w >= 0; w--) part(task, w);
}
int main(void) {
  const void *inputs[WIDE_INPUTS];
  void *alone[WIDE_OUTPUTS], *shared[WIDE_OUTPUTS], *arena = aligned_alloc(64, WIDE_ARENA_BYTES);
  size_t sizes[] = {SIZES}, results[] = {RESULTS};
  for (int k = 0; k < WIDE_INPUTS; k++) {
    float *x = malloc(sizes[k]);
    for (size_t i = 0; i < sizes[k] / 4; i++) x[i] = (float)(i % 13) / 7;
    inputs[k] = x;
  }
  for (int k = 0; k < WIDE_OUTPUTS; k++) {
    alone[k] = malloc(results[k]);
    shared[k] = malloc(results[k]);
  }
  int one = 1;
  struct hlo_parallel_for host = {in_turn, &one, 3};
  if (wide(inputs, alone, arena) || wide_parallel(inputs, shared, arena, &host)) return 1;
  for (int k = 0; k < WIDE_OUTPUTS; k++) if (memcmp(alone[k], shared[k], results[k])) return 2;
  return asked > 0 ? 0 : 3;
}
"""


def test_threads_of_its_own(tmp_path: Path) -> None:
    module = hlo.parse(WIDE)
    made = driver.compile_ahead(module, MACHINE, threads="pthreads", max_threads=4)
    arrays = [np.asarray(a) for a in made_up_inputs(module, "normal", 1)]
    (found,) = harness_of(MACHINE, tmp_path, [made], "-pthread").run([(0, arrays)])
    run = driver.compile(module, machine=NAMED["x86-64-v2"], threads=1, cache=False)
    assert [a.tobytes() for a in found] == [np.asarray(a).tobytes() for a in run(*arrays)]


def test_threads_of_the_caller(tmp_path: Path) -> None:
    made = driver.compile_ahead(hlo.parse(WIDE), MACHINE, threads="callback", max_threads=4)
    harness_of(MACHINE, tmp_path, [made])
    main = MAIN.replace("SIZES}", "WIDE_INPUT_0_BYTES}")
    main = main.replace("RESULTS}", "WIDE_OUTPUT_0_BYTES, WIDE_OUTPUT_1_BYTES}")
    (tmp_path / "main.c").write_text(main)
    (compiler, launcher), done = RUNNERS["arm"], str(tmp_path / "main")
    files = [str(tmp_path / name) for name in ("main.c", "wide.o")]
    subprocess.run([*compiler, "-O1", "-Wall", "-Werror", *files, "-o", done], check=True)
    assert subprocess.run([*launcher, done], check=False).returncode == 0


def test_the_table_is_as_wide_as_addresses_are() -> None:
    sizes = {
        name: driver.compile_ahead(hlo.parse(WIDE), name).interface.arena_bytes
        for name in ("x86-64-v2", MACHINE, "wasm32-simd128")
    }
    assert sizes[MACHINE] == sizes["wasm32-simd128"] < sizes["x86-64-v2"]


def test_strict_code_does_without_what_flushes() -> None:
    machine = NAMED[MACHINE]
    assert "neon" not in machine.in_mode("strict").features
    assert machine.in_mode("fast") is machine
    text = "HloModule m\nENTRY e { x = f32[64] parameter(0)\n ROOT y = f32[64] multiply(x, x) }"
    for mode, vectors in (("strict", False), ("fast", True)):
        code = driver.compile_ahead(hlo.parse(text), MACHINE, mode=mode).assembly
        assert ("\tvmul.f32\tq" in code) is vectors


def test_a_description_in_a_file_has_both_by_its_architecture() -> None:
    text = '{"name": "mine", "triple": "armv7-unknown-linux-gnueabihf", "features": ["neon"]}'
    machine = from_json(text, "mine.json")
    assert machine.address_bytes == 4
    assert machine.in_mode("strict").features == frozenset()
