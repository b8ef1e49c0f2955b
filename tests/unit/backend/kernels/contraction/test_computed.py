"""Factors that products compute: by which kernels, and that each element is what it would be."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.driver import emit_stage
from hlo.ir.module import Module
from hlo.machine import NAMED
from hlo.runtime.executable import Executable
from tests.support.by_threads import for_threads
from tests.support.covering import covering

TEXT = """
HloModule m
f {{
  x = f32[{m},{k}] parameter(0)
  w = s8[{w}] parameter(1)
  s = f32[{scales}] parameter(2)
  wide = f32[{w}] convert(w)
  spread = f32[{w}] broadcast(s), dimensions={{{along}}}
  scaled = f32[{w}] multiply(wide, spread)
  ROOT d = f32[{m},{n}] dot(x, scaled), lhs_contracting_dims={{1}}, rhs_contracting_dims={{{depth}}}
}}
ENTRY e {{
  x = f32[{m},{k}] parameter(0)
  w = s8[{w}] parameter(1)
  s = f32[{scales}] parameter(2)
  ROOT r = f32[{m},{n}] fusion(x, w, s), kind=kOutput, calls=f
}}
"""


def product(m: int, k: int, n: int, *, along: int, depth: int) -> Module:
    """Rows and weights with scales: along which dimension of these, and which of them is depth."""
    dims = (k, n) if depth == 0 else (n, k)
    w = ",".join(map(str, dims))
    module = hlo.parse(
        TEXT.format(m=m, k=k, n=n, w=w, scales=dims[along], along=along, depth=depth)
    )
    hlo.verify(module)
    return module


def values(module: Module) -> list[np.ndarray]:
    """Numbers whose sums are exact in any order."""
    rng, found = np.random.default_rng(7), []
    for parameter in module.entry.parameters:
        dtype = parameter.shape.dtype.numpy
        found.append(rng.integers(-3, 4, parameter.shape.dims).astype(dtype))
    return found


FORMS = [(1, 0), (1, 1), (0, 0), (0, 1)]  # where scales run, which dimension is depth


@pytest.mark.parametrize(
    ("along", "depth", "m", "k", "n"),
    covering(
        FORMS,
        [(1, 70, 150), (7, 64, 130), (16, 129, 128), (40, 90, 50)],
        strength=1,
        several=(0, 1),
    ),
)
def test_each_number_is_right_for_any_threads(
    m: int, k: int, n: int, along: int, depth: int
) -> None:
    module = product(m, k, n, along=along, depth=depth)
    given = values(module)
    wanted = np.asarray(hlo.evaluate(module, *given))
    for threads in (1, 2, 3, 7):
        executable = for_threads(module, "", threads=threads)
        assert np.array_equal(np.asarray(executable(*given)), wanted)
    executable = hlo.compile(module, "", cache=False)
    assert isinstance(executable, Executable)
    guarded = executable.run_guarded(*given)
    assert np.array_equal(np.asarray(guarded), wanted)


@pytest.mark.parametrize(("along", "depth"), FORMS)
def test_few_rows_read_arrays_once(along: int, depth: int) -> None:
    """No kernel stores the factor: f32[4096,4096] would be 64 MiB of the arena."""
    text = emit_stage(product(1, 4096, 4096, along=along, depth=depth), "loops")
    assert "reads p0, p1, p2" in text
    assert "result[i,j] = scaled" not in text


def test_units_compute_what_they_pack() -> None:
    text = emit_stage(product(100, 300, 200, along=1, depth=0), "loops")
    assert "rhs = rows of p1, p2" in text
    assert "result[i,j] = scaled" not in text


def test_rows_that_are_computed_are_stored_first() -> None:
    """The factor that is packed for each block of columns is no place for arithmetic."""
    module = hlo.parse(
        TEXT.format(m=300, k=100, n=200, w="100,200", scales=200, along=1, depth=0)
        .replace("dot(x, scaled)", "dot(scaled, x)")
        .replace("lhs_contracting_dims={1}, rhs_contracting_dims={0}",
                 "lhs_contracting_dims={0}, rhs_contracting_dims={1}")
        .replace("f32[300,200] dot", "f32[200,300] dot")
        .replace("f32[300,200] fusion", "f32[200,300] fusion")
    )  # fmt: skip
    given = values(module)
    executable = hlo.compile(module, "", cache=False)
    assert np.array_equal(np.asarray(executable(*given)), np.asarray(hlo.evaluate(module, *given)))
    assert "scaled" in emit_stage(module, "loops")


def test_lanes_beyond_depth_are_no_numbers() -> None:
    """0 / 0 in lanes that are masked off would be NaN, and NaN times zero is NaN."""
    module = hlo.parse("""
HloModule m
f {
  x = f32[2,21] parameter(0)
  a = f32[40,21] parameter(1)
  b = f32[40,21] parameter(2)
  q = f32[40,21] divide(a, b)
  ROOT d = f32[2,40] dot(x, q), lhs_contracting_dims={1}, rhs_contracting_dims={1}
}
ENTRY e {
  x = f32[2,21] parameter(0)
  a = f32[40,21] parameter(1)
  b = f32[40,21] parameter(2)
  ROOT r = f32[2,40] fusion(x, a, b), kind=kOutput, calls=f
}
""")
    one = [np.ones(p.shape.dims, np.float32) for p in module.entry.parameters]
    assert np.array_equal(
        np.asarray(hlo.compile(module, "", cache=False)(*one)), np.full((2, 40), 21)
    )


PACKED = """
HloModule m
f {
  x = f32[1,256] parameter(0)
  q = s32[32,256] parameter(1)
  s = s32[8] parameter(2)
  words = s32[32,8,256] broadcast(q), dimensions={0,2}
  shifts = s32[32,8,256] broadcast(s), dimensions={1}
  moved = s32[32,8,256] shift-right-logical(words, shifts)
  codes = s32[256,256] reshape(moved)
  w = f32[256,256] convert(codes)
  ROOT d = f32[1,256] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY e {
  x = f32[1,256] parameter(0)
  q = s32[32,256] parameter(1)
  s = s32[8] parameter(2)
  ROOT r = f32[1,256] fusion(x, q, s), kind=kOutput, calls=f
}
"""


def test_depths_that_share_a_word_load_it_once() -> None:
    text = emit_stage(hlo.parse(PACKED), "llvm", machine=NAMED["znver4"])
    assert text.count("load <16 x i32>") == 1


WORDS = """
HloModule m
f {{
  x = bf16[{m},{k}] parameter(0)
  w = s8[{k},{n}] parameter(1)
  s = bf16[{n}] parameter(2)
  wide = bf16[{k},{n}] convert(w)
  spread = bf16[{k},{n}] broadcast(s), dimensions={{1}}
  scaled = bf16[{k},{n}] multiply(wide, spread)
  ROOT d = f32[{m},{n}] dot(x, scaled), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
}}
ENTRY e {{
  x = bf16[{m},{k}] parameter(0)
  w = s8[{k},{n}] parameter(1)
  s = bf16[{n}] parameter(2)
  ROOT r = f32[{m},{n}] fusion(x, w, s), kind=kOutput, calls=f
}}
"""
# Few rows read computed words once, more pack them; of an odd depth words are copied.
ROWS = [(5, 64, 144), (16, 301, 130), (16, 40, 65), (40, 130, 90), (70, 302, 200), (33, 77, 64)]


@pytest.mark.parametrize(("m", "k", "n"), ROWS)
def test_words_are_those_of_the_stored_factor(m: int, k: int, n: int) -> None:
    module = hlo.parse(WORDS.format(m=m, k=k, n=n))
    given = values(module)
    wanted = np.asarray(hlo.evaluate(module, *given))
    for threads in (1, 2, 3, 7):
        executable = for_threads(module, "", threads=threads)
        assert np.array_equal(np.asarray(executable(*given)), wanted)
    guarded = hlo.compile(module, "", cache=False)
    assert isinstance(guarded, Executable)
    assert np.array_equal(np.asarray(guarded.run_guarded(*given)), wanted)


@pytest.mark.parametrize(("m", "k", "n"), ROWS)
def test_subnormal_numbers_that_are_computed_count(m: int, k: int, n: int) -> None:
    """2^-120 times 2^-10 is subnormal in bf16, and times 2^100 not small."""
    module = hlo.parse(WORDS.format(m=m, k=k, n=n))
    x, w, s = values(module)
    x, w = np.full_like(x, 2.0**100), np.zeros_like(w)
    w[k - 1, n - 1], s[:] = 3, 2.0**-130
    wanted = np.asarray(hlo.evaluate(module, x, w, s))
    assert wanted[0, n - 1] == 3 * 2.0**-30
    assert np.array_equal(np.asarray(hlo.compile(module, "", cache=False)(x, w, s)), wanted)


def loops_of(m: int, k: int, n: int) -> str:
    module = hlo.parse(WORDS.format(m=m, k=k, n=n))
    return emit_stage(module, "loops", machine=NAMED["znver4"])


def test_words_of_a_computed_factor_are_in_no_memory() -> None:
    few, many = loops_of(16, 512, 256), loops_of(64, 512, 256)
    assert "products of 8 depths, reads p0, p1, p2" in few
    assert "rhs = words of 2 rows of p1, p2" in many
    assert not any("result[i,j] = scaled" in text for text in (few, many))
    assert "result[i,j] = scaled" in loops_of(64, 511, 256)  # its last word is filled up
