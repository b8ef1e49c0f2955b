"""Long formulas that stand where they are called: in loops over many elements, the same bits."""

from __future__ import annotations

import re

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation

MANY, FEW = 1 << 16, 1 << 10
IS_X86 = hlo.driver.host_machine().architecture == "x86_64"
MACHINES = (None, "x86-64", "x86-64-v3") if IS_X86 else (None,)
CASES = [("power", 2, "f32"), ("power", 2, "f64"), ("cbrt", 1, "f32"), ("cbrt", 1, "f64"),
         ("atan2", 2, "f32")]  # fmt: skip


def program(opcode: str, operands: int, dtype: str, size: int, times: int = 1) -> str:
    """Several of an op, each of the one before it."""
    shape = f"{dtype}[{size}]"
    rows = [f"  x = {shape} parameter(0)", f"  y = {shape} parameter(1)", f"  v0 = {shape} abs(x)"]
    for n in range(times):
        given = f"v{n}, y" if operands == 2 else f"v{n}"
        rows.append(f"  v{n + 1} = {shape} {opcode}({given})")
    rows[-1] = rows[-1].replace("  v", "  ROOT v", 1)
    return "HloModule m\nENTRY e {\n" + "\n".join(rows) + "\n}\n"


def calls(text: str) -> int:
    """Of functions of mathematics, in all kernels."""
    modules = Compilation(hlo.parse(text)).ir
    return sum(len(re.findall(r"call [^\n]*@m_hlo\.(?:pow|cbrt|atan2)", m.text)) for m in modules)


@pytest.mark.parametrize(("opcode", "operands", "dtype"), CASES)
def test_bits_are_those_of_the_function(opcode: str, operands: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    kind = np.dtype(np.float32 if dtype == "f32" else np.float64)
    special = [0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan, 1e-40, 2.0, 0.5, 3.0, -2.5]
    x, y = rng.normal(0, 3, (2, MANY)).astype(kind)
    x[: len(special) ** 2] = np.repeat(special, len(special))
    y[: len(special) ** 2] = np.tile(special, len(special))
    for machine in MACHINES:
        whole = hlo.compile(hlo.parse(program(opcode, operands, dtype, MANY)), machine=machine)
        part = hlo.compile(hlo.parse(program(opcode, operands, dtype, FEW)), machine=machine)
        found = np.asarray(whole(x, y))
        for at in range(0, MANY, FEW):
            wanted = np.asarray(part(x[at : at + FEW], y[at : at + FEW]))
            assert found[at : at + FEW].tobytes() == wanted.tobytes()


@pytest.mark.parametrize(("opcode", "operands", "dtype"), CASES)
def test_only_many_elements_are_worth_the_code(opcode: str, operands: int, dtype: str) -> None:
    assert calls(program(opcode, operands, dtype, MANY)) == 0
    assert calls(program(opcode, operands, dtype, FEW)) > 0


def test_a_kernel_of_many_formulas_calls_the_others() -> None:
    assert calls(program("power", 2, "f32", MANY, times=9)) > 0


def test_little_code_calls_all() -> None:
    made = hlo.compile_ahead(hlo.parse(program("power", 2, "f32", MANY)), optimize="size")
    whole = hlo.compile_ahead(hlo.parse(program("power", 2, "f32", MANY)))
    assert len(made.object) < len(whole.object)
