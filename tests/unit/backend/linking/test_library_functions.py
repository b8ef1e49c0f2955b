"""Library functions: what follows from no program is compiled once for a process."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.entry.llvm_ir import emit
from hlo.backend.entry.polling import Work, polled
from hlo.backend.entry.process import POLL
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.linking import compile as code
from hlo.backend.linking.workers import Workers
from hlo.backend.math import complex_term, term

FFT = """HloModule m
ENTRY e {{ x = c64[{rows},64]{{1,0}} parameter(0)
  ROOT y = c64[{rows},64]{{1,0}} fft(x), fft_type=FFT, fft_length={{64}} }}"""
SINE = """HloModule m
ENTRY e {{ x = f32[{size}]{{0}} parameter(0)
  ROOT y = f32[{size}]{{0}} sine(x) }}"""


@pytest.fixture
def generated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[IrModule]:
    """What LLVM is given, of a process that knows nothing yet."""
    monkeypatch.setenv("HLO_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(code, "_memory", type(code._memory)())
    given: list[IrModule] = []
    generate = code.generated

    def recorded(modules: Sequence[IrModule], *workers: Workers | None) -> list[bytes]:
        given.extend(modules)
        return generate(modules, *workers)

    monkeypatch.setattr(code, "generated", recorded)
    return given


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [(FFT, {"rows": 48}, {"rows": 80}), (SINE, {"size": 70}, {"size": 90})],
)  # fmt: skip
def test_another_program_finds_them(
    text: str, first: dict[str, int], second: dict[str, int], generated: list[IrModule]
) -> None:
    hlo.compile(hlo.parse(text.format(**first)), cache=False)
    assert any(m.is_library for m in generated)
    generated.clear()
    hlo.compile(hlo.parse(text.format(**second)), cache=False)
    assert generated
    assert not any(m.is_library for m in generated)


def test_results_do_not_depend_on_who_compiled_them(generated: list[IrModule]) -> None:
    x = (np.arange(80 * 64) % 37 + 1j).astype(np.complex64).reshape(80, 64)
    module = hlo.parse(FFT.format(rows=80))
    alone = hlo.compile(module, cache=False)(x)
    np.testing.assert_allclose(alone, np.fft.fft(x), rtol=1e-4, atol=1e-2)
    code._memory.clear()
    hlo.compile(hlo.parse(FFT.format(rows=48)), cache=False)
    np.testing.assert_array_equal(hlo.compile(module, cache=False)(x), alone)


def test_code_that_waits_for_nobody_has_them_inside() -> None:
    program = Compilation(hlo.parse(FFT.format(rows=48)), threads=1).program
    assert not any(m.is_library for m in emit(program, workers=1))


def test_a_function_that_asks_whether_to_stop_is_of_its_program() -> None:
    program = Compilation(hlo.parse(FFT.format(rows=48)), threads=1).program
    (kernel,) = program.kernels
    asking = [f for f in polled(kernel, Work(1e12, 1), {}).functions if POLL.symbol in f.text]
    assert asking
    assert not any(f.is_library for f in asking)
    assert all(f.is_library for f in kernel.functions)


def test_what_is_remembered_of_them_is_of_no_program() -> None:
    for size in (70, 90, 110):
        hlo.compile(hlo.parse(SINE.format(size=size)), cache=False)
    for known in (term._definitions, complex_term._definitions):
        assert not any(target.made or target.schedules for _, target in known)
