"""Emitted complex code against the ops' own evaluate, and the values that the semantics list."""

from __future__ import annotations

import zlib

import numpy as np
import pytest

import hlo
from hlo.backend.emitters.table import EMITTERS, ByKind
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ops.table import OPS
from tests.support.covering import covering
from tests.support.emitted_op import run_emitted
from tests.support.hlo_values import mixed_values
from tests.support.machines_here import that_run_here

FUNCTIONS = [o for o, e in EMITTERS.items() if isinstance(e, ByKind) and e.complex_]
FUNCTIONS = [o for o in FUNCTIONS if o not in ("real", "imag", "abs")]  # they give reals
# Relative error in ulp of |result|; near zeros and poles c128 has no wider type to lean on.
LOOSE = {"power": 4000, "logistic": 100, "atan2": 400, "tan": 30, "tanh": 30}
INF, NAN = np.inf, np.nan


@pytest.mark.parametrize(("dtype", "opcode"), covering([dt.C64, dt.C128], FUNCTIONS, strength=1))
def test_functions(opcode: str, dtype: DType) -> None:
    rng = np.random.default_rng(zlib.crc32(opcode.encode()))
    values = [mixed_values(dtype, 1024, rng) for _ in range(OPS[opcode].arity)]
    want = np.asarray(OPS[opcode].evaluate(*values)).astype(np.complex128)
    unit = 2.0**-24 if dtype is dt.C64 else 2.0**-53
    budget = 3 if dtype is dt.C64 else LOOSE.get(opcode, 8)
    for lanes in (1, 8):
        got = run_emitted(opcode, values, [dtype] * len(values), dtype, lanes=lanes)
        error = np.abs(got - want) / np.abs(want) / unit
        worst = int(np.argmax(error))
        assert error[worst] <= budget, f"{opcode} {[v[worst] for v in values]}: {got[worst]}"


@pytest.mark.parametrize("dtype", [dt.C64, dt.C128], ids=str)
def test_magnitude_does_not_overflow(dtype: DType) -> None:
    top = float(np.finfo(dtype.component.numpy).max) / 2
    z = np.array([3 + 4j, complex(top, top), complex(0, -top), complex(INF, 1), 0], dtype.numpy)
    got = run_emitted("abs", [z], [dtype], dtype.component)
    np.testing.assert_allclose(got, [5, top * 2**0.5, top, INF, 0], rtol=1e-6)


CASES = [
    ("log", [-1 + 0j, complex(-1, -0.0), 0, complex(-0.0, 0), complex(-INF, 1)],
     [np.pi * 1j, -np.pi * 1j, complex(-INF, 0), complex(-INF, np.pi), complex(INF, np.pi)]),
    ("sqrt", [-1 + 0j, complex(-1, -0.0), 3 + 4j, complex(INF, 1), complex(-INF, 1)],
     [1j, -1j, 2 + 1j, complex(INF, 0), complex(0, INF)]),
    ("exponential", [complex(-INF, 1), complex(INF, 1), complex(NAN, 0), 0],
     [0, complex(INF, INF), complex(NAN, 0), 1]),
    ("tanh", [complex(INF, 2), complex(-INF, 2), complex(NAN, 0), 3 + 4j],
     [1, -1, complex(NAN, 0), 1.0007095360671 + 0.0049082580674j]),
    ("sign", [0, 3 + 4j, -2j], [0, 0.6 + 0.8j, -1j]),
    ("rsqrt", [3 + 4j, complex(INF, 1)], [0.4 - 0.2j, 0]),
    ("atanh", [2 + 0j, complex(0, INF)], [0.5493061443 + 1.5707963268j, np.pi / 2 * 1j]),
]  # fmt: skip


@pytest.mark.parametrize("dtype", [dt.C64, dt.C128], ids=str)
@pytest.mark.parametrize(("opcode", "z", "want"), CASES, ids=[c[0] for c in CASES])
def test_special_values(opcode: str, z: list, want: list, dtype: DType) -> None:
    got = run_emitted(opcode, [np.array(z, dtype.numpy)], [dtype], dtype)
    for parts in ("real", "imag"):
        result, wanted = getattr(got, parts), getattr(np.array(want, np.complex128), parts)
        np.testing.assert_allclose(result, wanted, rtol=2e-6, atol=1e-12)


def test_division_restores_infinities() -> None:
    x = np.array([1 + 1j, 1, complex(INF, INF), 1 + 1j, 0, 3 + 4j], np.complex64)
    y = np.array([0, complex(-0.0, 0), 1 + 1j, complex(INF, NAN), 0, 1 - 2j], np.complex64)
    got = run_emitted("divide", [x, y], [dt.C64, dt.C64], dt.C64)
    want = [complex(INF, INF), complex(-INF, NAN), complex(INF, NAN), 0, complex(NAN, NAN), -1 + 2j]
    np.testing.assert_array_equal(got.real, np.array(want).real)
    np.testing.assert_array_equal(got.imag, np.array(want).imag)


def test_power_cases() -> None:
    z = np.array([0, 2, 1, complex(INF, 0), 0, -8], np.complex64)
    w = np.array([-1, 0, 5 + 1j, -2, 2, 1 / 3], np.complex64)
    got = run_emitted("power", [z, w], [dt.C64, dt.C64], dt.C64)
    want = np.array([complex(NAN, NAN), 1, 1, 0, 0, 1 + 1.7320508j])
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_parts_are_moved_without_arithmetic() -> None:
    a = np.array([1, INF, NAN, -0.0], np.float32)
    b = np.array([NAN, 2, 3, INF], np.float32)
    z = run_emitted("complex", [a, b], [dt.F32, dt.F32], dt.C64)
    np.testing.assert_array_equal(z.real, a)
    np.testing.assert_array_equal(z.imag, b)
    np.testing.assert_array_equal(run_emitted("real", [z], [dt.C64], dt.F32), a)
    np.testing.assert_array_equal(run_emitted("imag", [z], [dt.C64], dt.F32), b)


@pytest.mark.parametrize("machine", that_run_here("x86-64", "x86-64-v3", "x86-64-v4", "armv8-a"))
def test_magnitudes_of_any_size_err_by_little_more_than_an_ulp(machine: str) -> None:
    rng = np.random.default_rng(7)
    z = np.empty(60000, np.complex64)
    z.real = np.exp2(rng.uniform(-149, 127, z.size))
    z.imag = z.real * rng.uniform(-1, 1, z.size)
    z[::7] = z[::7] * 1j
    z[:6] = [0, complex(-0.0, 0), complex(np.inf, 1), complex(1, np.nan), 1e-45j, complex(3, -4)]
    module = hlo.parse(
        f"HloModule m\nENTRY e {{\n  z = c64[{z.size}] parameter(0)\n"
        f"  ROOT r = f32[{z.size}] abs(z)\n}}\n"
    )
    found = np.asarray(hlo.compile(module, machine=machine, cache=False)(z))
    exact = np.hypot(z.real.astype(np.float64), z.imag.astype(np.float64))
    unit = np.spacing(exact.astype(np.float32)).astype(np.float64)
    finite = np.isfinite(exact)
    assert (np.abs(found[finite] - exact[finite]) <= 1.2 * unit[finite]).all()
    assert found[2] == np.inf
    assert np.isnan(found[3])
    assert found[5] == 5
