"""--machine, --cpu, --features: code for other machines, and descriptions that are none."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from hlo import driver
from hlo.machine import NAMED
from tests.support.command import call

TEXT = """HloModule m
add { a = f32[] parameter(0)
 b = f32[] parameter(1)
 ROOT s = f32[] add(a, b) }
ENTRY e {
  x = f32[40,200] parameter(0)
  y = f32[200,60] parameter(1)
  d = f32[40,60] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  t = f32[40,60] tanh(d)
  zero = f32[] constant(0)
  ROOT r = f32[40] reduce(t, zero), dimensions={1}, to_apply=add
}
"""
REGISTERS = {16: "xmm", 32: "ymm", 64: "zmm"}


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "m.hlo"
    path.write_text(TEXT)
    return str(path)


def described(path: Path, **fields: object) -> str:
    base: dict[str, object] = {
        "name": "mine", "triple": "x86_64-unknown-linux-gnu", "features": ["sse2"]
    }  # fmt: skip
    path.write_text(json.dumps(base | fields))
    return f"--machine={path}"


PRODUCTS = {  # of vectors; strict code for 32-bit Arm has scalars
    "aarch64": "fmla\tv", "arm": "vmul.f32|vfma.f32", "riscv64": "vfmacc.v", "wasm32": "f32x4.mul"
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
def test_assembly_for_every_machine(program: str, name: str) -> None:
    outcome = call("hlo-opt", program, "--emit=asm", f"--machine={name}")
    assert (outcome.code, outcome.err) == (0, "")
    machine = NAMED[name]
    if machine.architecture == "x86_64":
        wide = [r for size, r in REGISTERS.items() if f"%{r}" in outcome.out]
        assert wide[-1] == REGISTERS[machine.vector_bytes]
    else:
        assert re.search(PRODUCTS[machine.architecture], outcome.out)


def test_a_processor_and_features(program: str) -> None:
    plain = call("hlo-opt", program, "--emit=asm", "--cpu=nehalem").out
    assert plain == call("hlo-opt", program, "--emit=asm", "--machine=x86-64-v2").out
    less = "--features=-avx512f,-avx512bw,-avx512cd,-avx512dq,-avx512vl"
    fewer = call("hlo-opt", program, "--emit=llvm", "--machine=x86-64-v4", less).out
    assert fewer == call("hlo-opt", program, "--emit=llvm", "--machine=x86-64-v3").out


@pytest.mark.skipif(driver.host_machine().architecture != "x86_64", reason="of x86-64")
def test_a_program_runs_as_on_a_lesser_machine(program: str, tmp_path: Path) -> None:
    for flag in ("--machine=x86-64", "--cpu=nehalem", "--features=-avx,-avx2,-avx512f"):
        outcome = call("hlo-run", program, flag, "--compare=interpreter", "--ulp=64", "--atol=1e-4")
        assert outcome.code == 0, outcome.err
    assert call("hlo-run", program, described(tmp_path / "m.json")).code == 0
    assert call("hlo-run", "bench", program, "--cpu=k8", "--seconds=0.1").code == 0


@pytest.mark.parametrize(
    ("flags", "code", "words"),
    [
        (["--machine=x86-64-v9"], 1, "did you mean x86-64-v"),
        (["--cpu=znver33"], 1, "did you mean znver3?"),
        (["--features=+avx1024"], 1, "no feature of"),
        (["--features=avx2"], 1, "expected + or - and a name"),
        (["--machine=generic", "--cpu=k8"], 2, "--machine and --cpu"),
        (["--machine=/no/such.json"], 1, "does not exist"),
    ],
)
def test_machines_that_are_none(program: str, flags: list[str], code: int, words: str) -> None:
    for command in (["hlo-opt", program, "--emit=llvm"], ["hlo-run", program]):
        outcome = call(*command, *flags)
        assert outcome.code == code
        assert words in outcome.err
        assert "Traceback" not in outcome.err


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"name": 1}, "Expected `str`"),
        ({"cores": 4}, "unknown field `cores`"),
        ({"vector_bytes": 20}, "expected 16, 32 or 64"),
        ({"triple": "aarch64-unknown-linux-gnu"}, "no description of aarch64 has such a feature"),
        ({"caches": [{"bytes": 32768, "ways": 8}]}, "of length >= 2"),
        ({"caches": [{"bytes": 0, "ways": 8}] * 2}, "Expected `int` >= 1024"),
        ({"caches": [{"size": 32768}] * 2}, "unknown field `size`"),
        ({"rates": {"wake_us": 0}}, "Expected `float` > 0"),
        ({"rates": {"warp": 9}}, "unknown field `warp`"),
        ({"line_bytes": 65}, "line_bytes is 65, expected 16, 32, 64, 128 or 256"),
        ({"registers": 8}, "registers is 8, expected 16 or 32"),
        ({"registers": 32}, "registers is 32, expected 16 without"),
        ({"triple": "vax-dec-ultrix", "features": []}, "triple 'vax-dec-ultrix'"),
    ],
)
def test_descriptions_that_are_none(
    program: str, tmp_path: Path, fields: dict[str, object], words: str
) -> None:
    flag = described(tmp_path / "m.json", **fields)
    outcome = call("hlo-opt", program, "--emit=asm", flag)
    assert (outcome.code, "error[machine]" in outcome.err) == (1, True), outcome.err
    assert words in outcome.err


def test_code_for_another_machine_does_not_run_here(program: str) -> None:
    other = "neoverse-n1" if driver.host_machine().architecture == "x86_64" else "x86-64"
    outcome = call("hlo-run", program, f"--machine={other}")
    assert (outcome.code, "error[machine]" in outcome.err) == (1, True)
    assert "--emit=asm" in outcome.err


def test_machines_are_listed() -> None:
    listed = call("hlo-opt", "--list-machines").out
    assert all(name in listed for name in NAMED)
    assert "32 vectors of 64 bytes" in listed
    assert "caches of 32 KiB, 2048 KiB, 4096 KiB shared, lines of 64 bytes" in listed
