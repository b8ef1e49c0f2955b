"""What is compiled ahead of time gives, driven from C, the bits that this process gives.

One executable holds a program of every op (and the conformance suite, where it is), linked with the
address sanitiser around the harness; its arrays and arenas end at forbidden pages.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from hlo import driver
from hlo.backend.ahead.interface import identifier
from hlo.backend.ahead_of_time import AheadOfTime
from hlo.backend.entry.c_call_ir import NOT_ALLOWED
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.machine import NAMED
from hlo.runtime.native_calls import flattened
from hlo.tools.inputs import made_up_inputs
from tests.differential.test_conformance import FOLDER, LOAD, PROGRAMS, packed
from tests.support.ahead_harness import IS_THERE, Harness, cut_arrays, given_arrays
from tests.support.op_files import OPS_FOLDER, file_cases

MACHINE = NAMED["x86-64-v3"]
OUTSIDE = Path(__file__).with_name("ahead_outside.txt")  # symbols that objects may leave undefined
NATIVE = ("gcc", "-static"), ()
ARM = ("aarch64-linux-gnu-gcc", "-static"), ("qemu-aarch64", "-cpu", "max")
RISCV_CPU = "rv64,v=true,vlen=128,vext_spec=v1.0"
RISCV = ("riscv64-linux-gnu-gcc", "-static"), ("qemu-riscv64", "-cpu", RISCV_CPU)
# QEMU 7's translator of RISC-V ends so at vectors of floats that become integers.
QEMU_FAILS = "decode_save_opc: Assertion"
# Machines whose code runs here, or under QEMU: the compiler that links, what runs.
OTHERS = {"x86-64": NATIVE, "armv8-a": ARM, "neoverse-v1": ARM, "rv64gcv": RISCV}
needs_gcc = pytest.mark.skipif(not IS_THERE, reason="there is no gcc")
needs_v3 = pytest.mark.skipif(
    not driver.host_machine().features.issuperset(MACHINE.features), reason="no x86-64-v3"
)


def first_cases() -> Iterator[tuple[str, Module]]:
    """For each op the first of its cases that verifies."""
    for file in sorted(OPS_FOLDER.glob("*.hlo")):
        for case in file_cases(file):
            if case.one("EXPECT") is not None:
                module = driver.parse(case.text, file.name)
                driver.verify(module)
                yield f"op_{identifier(file.stem)}", module
                break


def compiled(
    programs: Sequence[tuple[str, Module]], machine: str
) -> tuple[list[AheadOfTime], list[str]]:
    """Those that can be compiled ahead of time; the names of the others."""
    made, refused = [], []
    for name, module in programs:
        try:
            made.append(driver.compile_ahead(module, machine, name))
        except HloError as error:
            if error.code != "unsupported":
                raise
            refused.append(name)
    return made, refused


def undefined(files: Sequence[Path]) -> set[str]:
    done = subprocess.run(
        ["nm", "-u", *map(str, files)], capture_output=True, text=True, check=True
    )
    return set(re.findall(r"^ +U (\S+)$", done.stdout, re.MULTILINE))


def allowed(architecture: str) -> set[str]:
    rows = (line.split() for line in OUTSIDE.read_text().splitlines() if line[:1] != "#")
    return {symbol for target, *symbols in rows for symbol in symbols if target == architecture}


def same(found: Sequence[np.ndarray], wanted: Sequence[object]) -> bool:
    arrays = [np.asarray(w) for w in wanted if w is not None]
    return [np.ascontiguousarray(a).tobytes() for a in found] == [
        np.ascontiguousarray(a).tobytes() for a in arrays
    ]


def in_process(module: Module, arguments: Sequence[object]) -> list[object]:
    run: Callable[..., object] = driver.compile(module, machine=MACHINE, threads=1, cache=False)
    return list(flattened(run(*arguments)))


def arrays_of(values: Sequence[object]) -> list[np.ndarray]:
    return [np.asarray(leaf) for v in values for leaf in flattened(v) if leaf is not None]


@needs_gcc
@needs_v3
def test_every_op_gives_the_bits_of_this_process(tmp_path: Path) -> None:
    modules = dict(first_cases())
    made, refused = compiled(list(modules.items()), MACHINE.name)
    assert len(made) > 100
    assert len(refused) < 20, refused
    harness = Harness(tmp_path, made)
    assert undefined(list(tmp_path.glob("*.o"))) <= allowed(MACHINE.architecture)
    wrong = []
    for number, program in enumerate(made):
        values = list(made_up_inputs(modules[program.name], "normal", number))
        given = given_arrays(program, arrays_of(values))
        ((status, found),) = harness.statuses([(number, given)])
        if status == NOT_ALLOWED and program.interface.is_sized:
            continue  # made-up sizes are beyond the arrays
        assert status == 0, program.name
        if not same(cut_arrays(program, found), in_process(modules[program.name], values)):
            wrong.append(program.name)
    assert wrong == []


def suite() -> Iterator[tuple[str, Module]]:
    """The conformance suite."""
    assert LOAD is not None
    for name in PROGRAMS:
        text, _, _ = LOAD.load(FOLDER / f"{name}.hlo")
        yield f"c_{identifier(name)}", driver.parse(text, f"{name}.hlo")


@pytest.mark.corpus
@needs_gcc
@needs_v3
@pytest.mark.skipif(LOAD is None, reason="the suite is not there")
def test_conformance_gives_the_bits_of_this_process(tmp_path: Path) -> None:
    assert LOAD is not None
    made, refused = compiled(list(suite()), MACHINE.name)
    assert len(refused) <= 10, refused
    harness = Harness(tmp_path, made)
    assert undefined(list(tmp_path.glob("*.o"))) <= allowed(MACHINE.architecture)
    names = {f"c_{identifier(name)}": name for name in PROGRAMS}
    wrong = []
    for number, program in enumerate(made):
        _, inputs, _ = LOAD.load(FOLDER / f"{names[program.name]}.hlo")
        leaves = iter(inputs)
        arguments = [packed(p.shape, leaves) for p in program.module.entry.parameters]
        (found,) = harness.run([(number, given_arrays(program, inputs))])
        if not same(cut_arrays(program, found), in_process(program.module, arguments)):
            wrong.append(program.name)
    assert wrong == []


@pytest.mark.corpus
@pytest.mark.skipif(LOAD is None, reason="the suite is not there")
@pytest.mark.parametrize("machine", OTHERS)
def test_conformance_on_other_machines_agrees(machine: str, tmp_path: Path) -> None:
    assert LOAD is not None
    compiler, launcher = OTHERS[machine]
    if not all(shutil.which(command) for command in (*compiler[:1], *launcher[:1])):
        pytest.skip(f"{compiler[0]} or {launcher[0]} is not there")
    made, refused = compiled(list(suite()), machine)
    assert len(refused) <= 10, refused
    harness = Harness(tmp_path, made, compiler=compiler, launcher=launcher)
    assert undefined(list(tmp_path.glob("*.o"))) <= allowed(NAMED[machine].architecture)
    names = {f"c_{identifier(name)}": name for name in PROGRAMS}
    wrong: list[str] = []
    failed: list[str] = []
    for number, program in enumerate(made):
        name = names[program.name]
        _, inputs, expected = LOAD.load(FOLDER / f"{name}.hlo")
        try:
            (found,) = harness.run([(number, given_arrays(program, inputs))])
        except AssertionError as error:
            if QEMU_FAILS not in str(error):
                raise
            failed.append(name)
            continue
        entry = PROGRAMS[name]
        for got, want, atol in zip(
            cut_arrays(program, found), expected, entry["atol"], strict=True
        ):
            with np.errstate(all="ignore"):
                wrong += [name] if LOAD.compare(got, want, entry["rtol"], atol) else []
    assert wrong == []
    assert len(failed) < 20, failed


def test_the_shapes_of_results_are_those_of_the_module() -> None:
    """What the harness turns back: arrays that lie in memory in another order."""
    text = "HloModule m, entry_computation_layout={(f32[2,3]{1,0})->f32[2,3]{0,1}}\nENTRY e {\n"
    module = driver.parse(f"{text}  x = f32[2,3] parameter(0)\n  ROOT y = f32[2,3] negate(x)\n}}")
    (leaf,) = driver.compile_ahead(module).interface.results
    assert leaf.shape == Shape.array("f32", (3, 2))
    assert "f32[2,3]{0,1}, float[3][2]" in driver.compile_ahead(module).header
