"""Direct convolutions: one kernel without copies, right beside the base, finished in registers."""

from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.ir.kernel import Sums
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.direct import columns
from hlo.backend.linking.toolchain import host_machine
from hlo.ir.module import Module
from hlo.machine import named
from tests.support.by_threads import for_threads
from tests.support.command import call
from tests.support.contraction_harness import target_of
from tests.support.covering import covering

LAYERS = {
    "features": (
        "f32[2,9,9,24]", "f32[3,3,1,24]", "f32[2,9,9,24]",
        "size=3x3 pad=1_1x1_1", "b01f_01io->b01f", "feature_group_count=24",
    ),
    "groups": (
        "f32[2,5,19,16]", "f32[3,3,4,16]", "f32[2,10,38,16]",
        "size=3x3 pad=2_1x2_1 lhs_dilate=2x2", "b01f_01io->b01f", "feature_group_count=4",
    ),
    "taps": (
        "f32[3,9,19,24]", "f32[3,9,19,24]", "f32[3,3,1,24]",
        "size=9x19 pad=1_1x1_1", "f01b_i01o->01bf", "batch_group_count=24",
    ),
    "sums": (
        "f32[3,5,9,39]", "f32[3,5,9,39]", "f32[5,1,3,3]",
        "size=9x39 pad=1_1x1_1", "fb01_io01->fb01", "batch_group_count=5",
    ),
    "sums of strides": (
        "f32[3,5,9,40]", "f32[3,5,5,20]", "f32[3,3,1,5]",
        "size=5x20 pad=1_1x0_1 rhs_dilate=2x2", "fb01_io01->01bf", "batch_group_count=5",
    ),
    "columns": (
        "f32[2,3,9,41]", "f32[3,1,3,3]", "f32[2,3,9,41]",
        "size=3x3 pad=1_1x1_1", "bf01_oi01->bf01", "feature_group_count=3",
    ),
    "holes in columns": (
        "f32[2,3,9,21]", "f32[3,1,3,3]", "f32[2,3,18,42]",
        "size=3x3 pad=2_1x2_1 lhs_dilate=2x2", "bf01_oi01->bf01", "feature_group_count=3",
    ),
    "columns of large windows": (
        "f32[2,1,40,53]", "f32[1,1,7,9]", "f32[2,1,46,61]",
        "size=7x9 pad=6_6x8_8", "bf01_oi01->bf01", "feature_group_count=1",
    ),
    "parts of features": (
        "f32[2,13,19,24]", "f32[7,5,1,24]", "f32[2,13,17,24]",
        "size=7x5 pad=3_3x1_1", "b01f_01io->b01f", "feature_group_count=24",
    ),
    "parts of a row": (
        "f32[2,70,24]", "f32[29,1,24]", "f32[2,54,24]",
        "size=29 pad=6_6", "b0f_0io->b0f", "feature_group_count=24",
    ),
    "parts of rows and columns": (
        "f32[2,4,7,20,35]", "f32[4,1,3,5,3]", "f32[2,4,5,18,35]",
        "size=3x5x3 pad=0_0x1_1x1_1", "bf012_oi012->bf012", "feature_group_count=4",
    ),
    "parts of columns with holes": (
        "f32[2,3,11,21]", "f32[3,1,11,7]", "f32[2,3,20,42]",
        "size=11x7 pad=4_5x4_3 lhs_dilate=2x2", "bf01_oi01->bf01", "feature_group_count=3",
    ),
}  # fmt: skip


def text(name: str, *, finished: bool = False) -> str:
    x, w, out, window, labels, groups = LAYERS[name]
    convolution = f"convolution(x, w), window={{{window}}}, dim_labels={labels}, {groups}"
    lines = [f"  x = {x} parameter(0)", f"  w = {w} parameter(1)"]
    if finished:
        lines += [f"  z = {out} parameter(2)", f"  c = {out} {convolution}",
                  f"  a = {out} add(c, z)", f"  ROOT r = {out} maximum(a, z)"]  # fmt: skip
    else:
        lines.append(f"  ROOT r = {out} {convolution}")
    return "HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}"


def sums_of(written: str) -> Sums:
    sums = contraction_kernels(hlo.parse(written).entry.root, target_of()).sums
    assert sums is not None
    return sums


def arguments(module: Module) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [rng.standard_normal(p.shape.dims).astype(np.float32) for p in module.entry.parameters]


@pytest.mark.parametrize("name", LAYERS)
def test_one_kernel_and_no_copy(name: str, tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    file.write_text(text(name, finished=True))
    shown = call("hlo-opt", str(file), "--emit=loops").out
    kernels = [line for line in shown.splitlines() if line.startswith("kernel ")]
    assert "direct: " in shown
    assert len(kernels) == (2 if name == "taps" else 1)  # parts are added up
    assert not any(word in shown for word in ("repair", "look", "padded"))


@pytest.mark.parametrize(("name", "kind"), covering(LAYERS, ["alone", "finished"], strength=1))
def test_numbers_that_are_not_finite(name: str, kind: str) -> None:
    module = hlo.parse(text(name, finished=kind == "finished"))
    values = arguments(module)
    for value in values[:2]:
        flat = value.reshape(-1)
        flat[[1, flat.size // 2, flat.size - 2]] = [np.inf, np.nan, -np.inf]
    expected = np.asarray(hlo.evaluate(module, *values))
    assert np.isfinite(expected).any()
    found = [np.asarray(for_threads(module, threads=threads)(*values)) for threads in (1, 2, 3, 7)]
    for one in found[1:]:
        assert one.tobytes() == found[0].tobytes()
    np.testing.assert_array_equal(np.isfinite(found[0]), np.isfinite(expected))
    np.testing.assert_array_equal(np.isnan(found[0]), np.isnan(expected))
    finite = np.isfinite(expected)
    np.testing.assert_allclose(found[0][finite], expected[finite], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("name", "machine"), covering(LAYERS, ["x86-64", "x86-64-v3"], strength=1))
def test_on_lesser_machines(name: str, machine: str) -> None:
    module = hlo.parse(text(name, finished=True))
    values = arguments(module)
    found = hlo.compile(module, cache=False, machine=named(machine))(*values)
    np.testing.assert_allclose(found, hlo.evaluate(module, *values), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", LAYERS)
def test_memory_beside_the_arrays_is_not_touched(name: str) -> None:
    module = hlo.parse(text(name))
    values = arguments(module)
    found = hlo.compile(module, cache=False).run_guarded(*values)
    np.testing.assert_allclose(found, hlo.evaluate(module, *values), rtol=1e-4, atol=1e-5)


def test_kernels_are_turned_for_the_lanes() -> None:
    module = hlo.parse(text("features").replace("3,3,1,24", "24,1,3,3").replace("_01io", "_oi01"))
    optimized = str(hlo.optimize(module))
    assert "transpose" in optimized
    assert "dim_labels=b01f_i01o->b01f" in optimized


def test_kernels_of_products_stay() -> None:
    dense = text("features").replace("feature_group_count=24", "feature_group_count=1")
    module = hlo.parse(dense.replace("3,3,1,24", "24,24,3,3").replace("_01io", "_oi01"))
    assert "transpose" not in str(hlo.optimize(module))


def _length(rows: int, *, pad: int) -> int:
    """Lines of the kernel of a window of so many rows, and nine columns."""
    module = hlo.parse(f"""HloModule m
ENTRY e {{
  x = f32[1,1,90,53] parameter(0)
  w = f32[1,1,{rows},9] parameter(1)
  ROOT r = f32[1,1,{91 - rows + 2 * pad},53] convolution(x, w),
    window={{size={rows}x9 pad={pad}_{pad}x4_4}}, dim_labels=bf01_oi01->bf01
}}""")
    (kernel,) = Compilation(module, cache=False).program.kernels
    return kernel.length


def test_rows_of_a_large_window_are_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """What serves the same rows of results is written once; what is short is written out, and all
    where there are few registers.
    """
    large, small = _length(7, pad=0), _length(3, pad=0)
    monkeypatch.setattr(columns, "LEAST_LOOPED", 1 << 20)
    assert small == _length(3, pad=0)
    assert (2 * large < _length(7, pad=0)) == (host_machine().registers >= 32)


def test_rows_at_both_ends_have_one_code() -> None:
    """But for one row at an end, whose taps are known."""
    inside, one, two = (_length(7, pad=pad) for pad in (0, 1, 2))
    assert 3 * (two - inside) < 2 * (one - inside)


def test_chains_of_long_windows_are_short() -> None:
    """Of more than 24 terms: those of a tap row and the rows, of parts of a row and the parts."""

    def chain(name: str) -> int:
        sums = sums_of(text(name))
        assert sums.plan == "direct"
        return sums.chain

    assert chain("features") == 9
    assert chain("parts of features") == 5 + 7
    assert chain("parts of a row") == 15 + 2
    assert chain("parts of rows and columns") == 15 + 3
    assert chain("parts of columns with holes") == 7 + 11


def test_integers_are_one_chain() -> None:
    whole = text("parts of features").replace("f32", "s32")
    assert sums_of(whole).chain == 35
