"""Targets whose code runs here: natively, under QEMU, or in wasmtime.

machine's name, folder, programs --harness_of--> Harness, or the test is skipped with the reason
"""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import pytest

from hlo.backend.ahead.ahead_of_time import AheadOfTime
from hlo.machine import NAMED
from tests.support.ahead_harness import Harness
from tests.support.ahead_wasm import IS_THERE, WasmHarness

# By architecture: the compiler that links, what runs its executables.
RUNNERS = {
    "x86_64": (("gcc", "-static"), ()),
    "aarch64": (("aarch64-linux-gnu-gcc", "-static"), ("qemu-aarch64", "-cpu", "max")),
    "arm": (("arm-linux-gnueabihf-gcc", "-static"), ("qemu-arm", "-cpu", "max")),
    "riscv64": (
        ("riscv64-linux-gnu-gcc", "-static"),
        ("qemu-riscv64", "-cpu", "rv64,v=true,vlen=128,vext_spec=v1.0"),
    ),
}


def harness_of(
    machine: str, folder: Path, programs: Sequence[AheadOfTime], *flags: str
) -> Harness | WasmHarness:
    """What runs programs for a machine. flags: more for the compiler that links."""
    architecture = NAMED[machine].architecture
    if architecture == "wasm32":
        if not IS_THERE:
            pytest.skip("wasmtime's package, or wasm-ld, is not there")
        return WasmHarness(folder, programs)
    compiler, launcher = RUNNERS[architecture]
    if not all(shutil.which(command) for command in (*compiler[:1], *launcher[:1])):
        pytest.skip(f"{compiler[0]} or {launcher[0]} is not there")
    return Harness(folder, programs, compiler=(*compiler, *flags), launcher=launcher)
