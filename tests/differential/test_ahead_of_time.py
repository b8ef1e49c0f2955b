"""What is compiled ahead of time gives, driven from C, the bits that this process gives.

One executable holds a program of every op (and the conformance suite, where it is), linked with the
address sanitiser around the harness; its arrays and arenas end at forbidden pages.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest

from hlo import driver
from hlo.backend.ahead.ahead_of_time import AheadOfTime
from hlo.backend.ahead.interface import identifier
from hlo.backend.entry.c_call_ir import NOT_ALLOWED
from hlo.backend.kernels.linear_algebra import lapack_symbols
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.ir.shape import Shape
from hlo.machine import NAMED, Machine
from hlo.runtime.native_calls import flattened
from hlo.tools.cases.inputs import made_up_inputs
from tests.differential.test_conformance import FOLDER, LOAD, PROGRAMS, packed
from tests.support.ahead_harness import IS_THERE, Harness, cut_arrays, given_arrays
from tests.support.ahead_targets import harness_of
from tests.support.ahead_wasm import WasmHarness
from tests.support.op_files import OPS_FOLDER, file_cases

MACHINE = NAMED["x86-64-v3"]
OUTSIDE = Path(__file__).with_name("ahead_outside.txt")  # symbols that objects may leave undefined
# QEMU 7's translator of RISC-V ends so at vectors of floats that become integers.
QEMU_FAILS = "decode_save_opc: Assertion"
OTHERS = ("x86-64", "x86-64-v2", "armv8-a", "neoverse-v1", "rv64gcv", "armv7-a", "wasm32-simd128")
NARROW = ("armv7-a", "wasm32-simd128")  # whose addresses have 32 bits, and that fuse no products
SAMPLE = 12  # every so manieth program is run without -m slow
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


def outside(harness: Harness | WasmHarness, folder: Path) -> set[str]:
    """What the objects leave to the linker: of WebAssembly what the module would import."""
    if isinstance(harness, WasmHarness):
        return set(harness.imports)
    return undefined(list(folder.glob("*.o")))


def allowed(architecture: str) -> set[str]:
    rows = (line.split() for line in OUTSIDE.read_text().splitlines() if line[:1] != "#")
    return {symbol for target, *symbols in rows for symbol in symbols if target == architecture}


def same(found: Sequence[np.ndarray], wanted: Sequence[object]) -> bool:
    arrays = [np.asarray(w) for w in wanted if w is not None]
    return [np.ascontiguousarray(a).tobytes() for a in found] == [
        np.ascontiguousarray(a).tobytes() for a in arrays
    ]


def in_process(
    module: Module, arguments: Sequence[object], machine: Machine = MACHINE
) -> list[object]:
    run: Callable[..., object] = driver.compile(module, machine=machine, threads=1, cache=False)
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


def suite(step: int = 1) -> Iterator[tuple[str, Module]]:
    """The conformance suite, or every so manieth program of it."""
    assert LOAD is not None
    for name in list(PROGRAMS)[::step]:
        text, _, _ = LOAD.load(FOLDER / f"{name}.hlo")
        yield f"c_{identifier(name)}", driver.parse(text, f"{name}.hlo")


@pytest.mark.corpus
@needs_gcc
@needs_v3
@pytest.mark.skipif(LOAD is None, reason="the suite is not there")
@pytest.mark.parametrize("step", [SAMPLE, pytest.param(1, marks=pytest.mark.slow)])
def test_conformance_gives_the_bits_of_this_process(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where this process has no LAPACK either."""
    assert LOAD is not None
    monkeypatch.setattr(lapack_symbols, "has_routine", lambda _: False)
    made, refused = compiled(list(suite(step)), MACHINE.name)
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
def test_a_sample_on_other_machines_agrees(machine: str, tmp_path: Path) -> None:
    check_verdicts(machine, list(suite(2 * SAMPLE)), tmp_path)


@pytest.mark.slow
@pytest.mark.corpus
@pytest.mark.skipif(LOAD is None, reason="the suite is not there")
@pytest.mark.parametrize("machine", OTHERS)
def test_conformance_on_other_machines_agrees(machine: str, tmp_path: Path) -> None:
    """`pytest -m slow tests/differential/test_ahead_of_time.py`: two minutes for each machine."""
    check_verdicts(machine, list(suite()), tmp_path)


def check_verdicts(machine: str, programs: Sequence[tuple[str, Module]], folder: Path) -> None:
    """The results are those that XLA:CPU gave, and nothing but the listed symbols is wanted."""
    assert LOAD is not None
    made, refused = compiled(programs, machine)
    assert len(refused) <= 10, refused
    harness = harness_of(machine, folder, made)
    assert outside(harness, folder) <= allowed(NAMED[machine].architecture)
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


@pytest.mark.parametrize("machine", NARROW)
def test_a_sample_of_ops_gives_the_bits_of_equal_vectors(machine: str, tmp_path: Path) -> None:
    check_bits(machine, list(first_cases())[::SAMPLE], tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("machine", NARROW)
def test_every_op_gives_the_bits_of_equal_vectors(machine: str, tmp_path: Path) -> None:
    check_bits(machine, list(first_cases()), tmp_path)


def check_bits(machine: str, programs: Sequence[tuple[str, Module]], folder: Path) -> None:
    """Vectors of 16 bytes without fused products: what x86-64-v2 gives in this process, but for the
    signs of NaNs.
    """
    modules = dict(programs)
    made, _ = compiled(programs, machine)
    harness = harness_of(machine, folder, made)
    assert outside(harness, folder) <= allowed(NAMED[machine].architecture)
    wrong = []
    for number, program in enumerate(made):
        module = modules[program.name]
        values = list(made_up_inputs(module, "normal", number))
        given = given_arrays(program, arrays_of(values))
        ((status, found),) = harness.statuses([(number, given)])
        if status == NOT_ALLOWED and program.interface.is_sized:
            continue
        assert status == 0, program.name
        wanted = in_process(module, values, NAMED["x86-64-v2"])
        if not same(*map(without_signs_of_nans, (cut_arrays(program, found), wanted))):
            wrong.append(program.name)
    assert wrong == []


def without_signs_of_nans(arrays: Sequence[object]) -> list[np.ndarray]:
    found = [np.asarray(a) for a in arrays if a is not None]
    return [_without(a) if a.dtype.kind in "fc" else a for a in found]


def _without(array: np.ndarray) -> np.ndarray:
    return np.where(np.isnan(array), np.array(np.nan, array.dtype), array)


def test_the_shapes_of_results_are_those_of_the_module() -> None:
    """What the harness turns back: arrays that lie in memory in another order."""
    text = "HloModule m, entry_computation_layout={(f32[2,3]{1,0})->f32[2,3]{0,1}}\nENTRY e {\n"
    module = driver.parse(f"{text}  x = f32[2,3] parameter(0)\n  ROOT y = f32[2,3] negate(x)\n}}")
    (leaf,) = driver.compile_ahead(module).interface.results
    assert leaf.shape == Shape.array("f32", (3, 2))
    assert "f32[2,3]{0,1}, float[3][2]" in driver.compile_ahead(module).header
