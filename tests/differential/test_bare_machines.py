"""Tiles and dot products of processors that nobody has here, on an emulated machine.

`HLO_BOCHS=FOLDER pytest -m slow tests/differential/test_bare_machines.py`: some minutes for each
machine; tests/support/ahead_bare.py says what it takes.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hlo import driver
from hlo.backend.ahead.interface import identifier
from hlo.ir.module import Module
from tests.differential.test_ahead_of_time import compiled, suite
from tests.differential.test_conformance import FOLDER, LOAD, PROGRAMS
from tests.support.ahead_bare import MODELS, BareHarness, missing
from tests.support.ahead_harness import cut_arrays, given_arrays

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(bool(missing()), reason=f"not there: {missing()}"),
    pytest.mark.parametrize("machine", MODELS),
]
# Factors and result, and the range of what is drawn; floats from a normal distribution.
INTEGERS = {"s8": (-128, 128), "u8": (0, 256), "s4": (-8, 8), "u4": (0, 16), "s2": (-2, 2)}
INTEGERS |= {"u2": (0, 4), "s16": (-32768, 32768), "u16": (0, 65536)}
PAIRS = (
    *((a, b, "s32") for a in ("s8", "u8", "s4", "u4") for b in ("s8", "u8", "s4", "u4")),
    ("s2", "s2", "s32"), ("u2", "s8", "s32"), ("s16", "s16", "s32"), ("u16", "s16", "s32"),
    ("bf16", "bf16", "f32"), ("bf16", "bf16", "bf16"), ("f16", "f16", "f32"), ("f16", "f16", "f16"),
    ("f8e4m3fn", "f8e4m3fn", "f32"), ("f8e5m2", "f8e4m3fn", "f32"), ("f8e4m3fnuz",) * 2 + ("f32",),
    ("f8e3m4", "f8e3m4", "f32"), ("f4e2m1fn", "f4e2m1fn", "f32"),
)  # fmt: skip
SIZES = ((1, 33, 65), (16, 64, 16), (17, 31, 33), (48, 65, 80), (100, 129, 64), (40, 300, 100))
# How the factors lie, and which of their dimensions are summed.
FORMS = {"mk,kn": (1, 0), "km,kn": (0, 0), "mk,nk": (1, 1)}
# Beside the largest element of a result: what f32's sums of a few hundred products may err, and
# what rounding to the result's type adds.
TOLERANCE = {"s32": 0.0, "f32": 1e-5, "bf16": 1e-2, "f16": 2e-3}


def products() -> Iterator[tuple[str, Module]]:
    for left, right, result in PAIRS:
        for number, (m, k, n) in enumerate(SIZES):
            form, (lc, rc) = list(FORMS.items())[number % len(FORMS)]
            sizes = {"m": m, "k": k, "n": n}
            lhs, rhs = (",".join(str(sizes[d]) for d in part) for part in form.split(","))
            text = f"""HloModule m
ENTRY e {{
  a = {left}[{lhs}] parameter(0)
  b = {right}[{rhs}] parameter(1)
  ROOT d = {result}[{m},{n}] dot(a, b), lhs_contracting_dims={{{lc}}}, rhs_contracting_dims={{{rc}}}
}}
"""
            yield f"{left}_{right}_{result}_{m}_{k}_{n}", driver.parse(text)


def drawn(module: Module, draws: np.random.Generator) -> list[np.ndarray]:
    """Every fourth element of an integer factor is the least or the largest that there is."""
    found = []
    for parameter in module.entry.parameters:
        shape, dtype = parameter.shape.dims, parameter.shape.dtype
        if dtype.name in INTEGERS:
            low, high = INTEGERS[dtype.name]
            values = draws.integers(low, high, shape)
            ends = draws.choice(np.array([low, high - 1]), shape)
            values = np.where(draws.random(shape) < 0.25, ends, values)
        else:
            values = draws.standard_normal(shape).astype(np.float32)
        found.append(values.astype(dtype.numpy))
    return found


def test_products_are_those_of_the_reference(machine: str, tmp_path: Path) -> None:
    draws = np.random.default_rng(0)
    made, refused = compiled(list(products()), machine)
    assert refused == []
    jobs = [(number, drawn(program.module, draws)) for number, program in enumerate(made)]
    wrong = []
    for (number, given), (status, (found,)) in zip(
        jobs, BareHarness(tmp_path, made, machine).statuses(jobs), strict=True
    ):
        program = made[number]
        wanted = np.asarray(driver.evaluate(program.module, *given)).astype(np.float64)
        most = TOLERANCE[program.module.entry.root.shape.dtype.name] * np.abs(wanted).max()
        if status or np.abs(found.astype(np.float64) - wanted).max() > most:
            wrong.append(program.name)
    assert wrong == []


@pytest.mark.corpus
@pytest.mark.skipif(LOAD is None, reason="the suite is not there")
def test_conformance_agrees(machine: str, tmp_path: Path) -> None:
    assert LOAD is not None
    made, refused = compiled(list(suite()), machine)
    assert len(refused) <= 10, refused
    names = {f"c_{identifier(name)}": name for name in PROGRAMS}
    loaded = [LOAD.load(FOLDER / f"{names[program.name]}.hlo") for program in made]
    jobs = [(n, given_arrays(p, loaded[n][1])) for n, p in enumerate(made)]
    wrong = []
    for (number, _), (status, found) in zip(
        jobs, BareHarness(tmp_path, made, machine).statuses(jobs), strict=True
    ):
        name, program = names[made[number].name], made[number]
        entry = PROGRAMS[name]
        results = zip(cut_arrays(program, found), loaded[number][2], entry["atol"], strict=True)
        with np.errstate(all="ignore"):
            is_off = [LOAD.compare(got, want, entry["rtol"], atol) for got, want, atol in results]
        if status or any(is_off):
            wrong.append(name)
    assert wrong == []
