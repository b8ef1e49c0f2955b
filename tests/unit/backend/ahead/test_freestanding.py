"""A program without any library: its own start, softmax, the end."""

from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import pytest

from hlo import driver
from hlo.machine import NAMED
from tests.support.ahead_harness import IS_THERE

ROOT = Path(__file__).resolve().parents[4]
MACHINE = NAMED["x86-64-v3"]
LARGEST = 40_000  # bytes of the stripped executable
MAIN = """#include "softmax.h"
static _Alignas(SOFTMAX_ALIGNMENT) char arena[SOFTMAX_ARENA_BYTES];
static float x[SOFTMAX_INPUT_0_COUNT], result[SOFTMAX_OUTPUT_0_COUNT];
void _start(void) {
    for (int k = 0; k < SOFTMAX_INPUT_0_COUNT; k++) x[k] = (float)(k % 7);
    long status = softmax_call(x, result, arena);
    double sum = 0;
    for (int k = 0; k < SOFTMAX_OUTPUT_0_COUNT; k++) sum += result[k];
    if (sum < 255.99 || sum > 256.01) status = 99;
    __asm__ volatile("syscall" : : "a"(60), "D"(status) : "rcx", "r11", "memory");
    for (;;) {}
}
"""


@pytest.mark.skipif(
    not (IS_THERE and sys.platform == "linux" and platform.machine() == "x86_64"),
    reason="no gcc, or not Linux on x86-64",
)
@pytest.mark.skipif(
    not driver.host_machine().features.issuperset(MACHINE.features), reason="no x86-64-v3"
)
def test_a_small_program_without_any_library(tmp_path: Path) -> None:
    module = driver.parse((ROOT / "examples" / "softmax.hlo").read_text())
    made = driver.compile_ahead(module, MACHINE, freestanding=True)
    (tmp_path / "softmax.o").write_bytes(made.object)
    (tmp_path / "softmax.h").write_text(made.header)
    (tmp_path / "main.c").write_text(MAIN)
    flags = ["-O1", "-fno-builtin", "-static", "-nostdlib", "-mstackrealign", "-s"]
    subprocess.run(["gcc", *flags, "main.c", "softmax.o", "-o", "main"], cwd=tmp_path, check=True)
    assert (tmp_path / "main").stat().st_size < LARGEST
    assert subprocess.run([tmp_path / "main"], check=False).returncode == 0
