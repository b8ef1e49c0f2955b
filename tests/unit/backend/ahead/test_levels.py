"""Several machines in one object: the call runs the code for what the processor has."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo import driver
from hlo.backend.ahead.ahead_of_time import AheadOfTime
from hlo.backend.isa import processor
from hlo.machine import NAMED
from tests.support.ahead_harness import IS_THERE, Harness

LEVELS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
ROOT = Path(__file__).resolve().parents[4]
HOST = driver.host_machine()
# Weights in two orders, one table for both, and bits that tell how long vectors are: sums of rows.
NET = """HloModule net
add { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[3,COLUMNS] parameter(0)
  w = f32[COLUMNS] constant({WEIGHTS})
  t = f32[3,COLUMNS] broadcast(w), dimensions={1}
  y = f32[3,COLUMNS] multiply(x, t)
  z = f32[3,COLUMNS] tanh(y)
  zero = f32[] constant(0)
  s = f32[3] reduce(z, zero), dimensions={1}, to_apply=add
  ROOT r = (f32[3], f32[3,COLUMNS]) tuple(s, z)
}"""
needs_gcc = pytest.mark.skipif(not IS_THERE, reason="there is no gcc")
pytestmark = pytest.mark.skipif(HOST.architecture != "x86_64", reason="no x86-64")
# Processors that QEMU knows, and what runs on them.
PROCESSORS = {"Nehalem": "x86-64-v2", "Haswell": "x86-64-v3", "qemu64": ""}


def text(columns: int = 67) -> str:
    weights = ", ".join(str(k / 7) for k in range(columns))
    return NET.replace("COLUMNS", str(columns)).replace("WEIGHTS", weights)


def compiled(*machines: str, name: str = "net", columns: int = 67, **more: str) -> AheadOfTime:
    return driver.compile_ahead(hlo.parse(text(columns)), machines, name=name, **more)


def ran(harness: Harness, number: int = 0) -> tuple[int, bytes]:
    shape = harness.interfaces[number].arguments[0].shape.dims
    x = np.random.default_rng(5).normal(size=shape).astype(np.float32)
    ((status, arrays),) = harness.statuses([(number, [x])])
    return status, b"".join(a.tobytes() for a in arrays)


def harness(folder: Path, *made: AheadOfTime, word: int | None = None) -> Harness:
    """An executable. word: what it believes of the processor."""
    folder.mkdir()
    forced = folder / "word.c"
    defined = f"unsigned long long {processor.WORD} = {word}ull;\n"
    forced.write_text("extern int nothing;\n" if word is None else defined)
    return Harness(folder, made, compiler=("gcc", "-static"), libraries=(str(forced),))


@needs_gcc
def test_each_level_gives_the_bits_of_an_object_of_its_own(tmp_path: Path) -> None:
    both = compiled(*reversed(LEVELS))
    assert [m.name for m in both.machines] == list(LEVELS)
    assert '#define NET_MACHINES "x86-64-v2,x86-64-v3,x86-64-v4"' in both.header
    found = set()
    for machine in LEVELS:
        if not HOST.features.issuperset(NAMED[machine].features):
            continue
        word = processor.KNOWN | processor.mask(NAMED[machine].features)
        alone = compiled(machine, name="alone")
        run = harness(tmp_path / machine, both, alone, word=word)
        assert ran(run, 0) == ran(run, 1)
        assert ran(run)[0] == 0
        found.add(ran(run))
    assert len(found) > 1 or "avx2" not in HOST.features
    assert ran(harness(tmp_path / "none", both, word=processor.KNOWN))[0] == 4


@needs_gcc
def test_the_processor_is_asked(tmp_path: Path) -> None:
    best = [m for m in LEVELS if HOST.features.issuperset(NAMED[m].features)][-1]
    run = harness(tmp_path / "here", compiled(*LEVELS), compiled(best, name="best"))
    assert ran(run, 0) == ran(run, 1)
    assert ran(run, 0)[0] == 0


@needs_gcc
@pytest.mark.skipif(not shutil.which("qemu-x86_64"), reason="no qemu-x86_64")
def test_other_processors_run_what_they_have(tmp_path: Path) -> None:
    """Whole vectors: QEMU 7 reads masked lanes beyond an array's page."""
    alone = [compiled(m, name=f"v{n}", columns=64) for n, m in enumerate(LEVELS[:2])]
    run = harness(tmp_path / "all", compiled(*LEVELS, columns=64), *alone)
    wanted = dict(zip(LEVELS, (ran(run, 1 + n) for n in range(2)), strict=False))
    for cpu, machine in PROCESSORS.items():
        run.launcher = ("qemu-x86_64", "-cpu", cpu)
        assert ran(run) == wanted[machine] if machine else ran(run)[0] == 4, cpu


def test_what_the_object_shares() -> None:
    """The pool, the constants, and no more than the call for the linker to see."""
    made = compiled(*LEVELS, threads="pthreads", columns=200_000)
    assert len(made.weights) == 800_064  # the numbers and a zero
    assert made.llvm.count("define internal void @hlo_parallel(") == 1
    assert re.findall(r"^define (?!internal)[^@]*@([\w.]+)\(", made.llvm, re.MULTILINE) == [
        "net", "net_set_threads"
    ]  # fmt: skip
    assert made.size_table is not None
    names = [s.name for s in made.size_table.symbols]
    assert {f"hlo_entry.x86_64_v{n}" for n in (2, 3, 4)} < set(names)


@pytest.mark.parametrize(
    ("system", "head"), [("apple-macosx11.0", b"\xcf\xfa"), ("pc-windows-msvc", b"\x64\x86")]
)
def test_other_systems(system: str, head: bytes) -> None:
    machines = [replace(NAMED[m], triple=f"x86_64-{system}") for m in LEVELS[:2]]
    assert driver.compile_ahead(hlo.parse(text()), machines).object.startswith(head)


def test_every_machine_of_x86_has_its_bits() -> None:
    masks = [processor.mask(m.features) for m in NAMED.values() if m.architecture == "x86_64"]
    assert len(masks) > 8
    assert all(mask < processor.KNOWN for mask in masks)
    with pytest.raises(hlo.HloError, match="armv8-a is aarch64, expected x86_64"):
        compiled("x86-64", "armv8-a")
    with pytest.raises(hlo.HloError, match="is there twice"):
        compiled("x86-64-v3", "x86-64-v3")
