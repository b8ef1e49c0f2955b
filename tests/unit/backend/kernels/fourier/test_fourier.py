"""Fourier transforms as kernels: lengths of every kind, all forms, accuracy beside exact sums."""

from __future__ import annotations

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.fourier.butterflies import Complex
from hlo.backend.kernels.fourier.fourier import fourier_kernels
from hlo.backend.kernels.fourier.plan import convolution_length, factors, roots
from hlo.backend.kernels.fourier.prime_pass import PrimePass, Terms
from hlo.backend.kernels.linear_algebra.matrices import Numbers
from hlo.backend.lanes.nest import Nest
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.machine import NAMED
from tests.support.by_threads import for_threads
from tests.support.covering import covering
from tests.support.kernel_runner import TARGET, run

RNG = np.random.default_rng(11)
ERROR = {np.float32: 4e-7, np.float64: 2e-15}  # |ours - exact| / |exact|, as pocketfft's
KINDS = ("FFT", "IFFT", "RFFT", "IRFFT")
S = Value("%s", "i64")
LENGTHS = (1, 2, 3, 4, 7, 8, 9, 16, 17, 26, 34, 77, 97, 128, 149, 167, 289, 334, 360, 418)


def operand(kind: str, dims: tuple[int, ...], real: type) -> np.ndarray:
    if kind == "IRFFT":
        dims = (*dims[:-1], dims[-1] // 2 + 1)
    x = RNG.standard_normal(dims)
    if kind == "RFFT":
        return x.astype(real)
    return (x + 1j * RNG.standard_normal(dims)).astype(np.result_type(real, np.complex64))


def module_of(kind: str, x: np.ndarray, lengths: tuple[int, ...]) -> Module:
    names = {"float32": "f32", "float64": "f64", "complex64": "c64", "complex128": "c128"}
    b = hlo.Builder("lone")
    p = b.parameter("p", hlo.Shape.array(names[x.dtype.name], x.shape))
    return b.build(b.fft(p, kind, lengths))


def lone(kind: str, x: np.ndarray, lengths: tuple[int, ...]) -> Instruction:
    return module_of(kind, x, lengths).entry.root


def exact(kind: str, x: np.ndarray, lengths: tuple[int, ...]) -> np.ndarray:
    wide = x.astype(np.float64 if kind == "RFFT" else np.complex128)
    axes = tuple(range(x.ndim - len(lengths), x.ndim))
    return np.asarray(getattr(np.fft, kind.lower() + "n")(wide, s=lengths, axes=axes))


def assert_transforms(kind: str, dims: tuple[int, ...], rank: int, real: type) -> None:
    x, lengths = operand(kind, dims, real), dims[len(dims) - rank :]
    (actual,) = run(lone(kind, x, lengths), [x], kernel=fourier_kernels)
    expected = exact(kind, x, lengths)
    error = np.linalg.norm((actual - expected).ravel())
    assert error <= ERROR[real] * np.linalg.norm(expected.ravel())


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_length(kind: str, n: int) -> None:
    real = (np.float32, np.float64)[n % 2]
    assert_transforms(kind, (3, n), 1, real)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dims", [(5, 6), (2, 3, 8, 7), (2, 35, 18)])
def test_several_axes(kind: str, dims: tuple[int, ...]) -> None:
    assert_transforms(kind, dims, min(3, len(dims) - 1), np.float32)


@pytest.mark.parametrize(("n", "count"), [(128, 1), (1000, 2), (1024, 1)])
@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
def test_few_long_lines_in_columns_and_rows(kind: str, n: int, count: int) -> None:
    x = operand(kind, (count, n), np.float32)
    made = fourier_kernels(lone(kind, x, (n,)), TARGET)
    assert made is not None
    assert len(made.calls) == 2
    assert_transforms(kind, (count, n), 1, np.float32)


def test_what_is_too_long_is_left_to_the_library() -> None:
    x = operand("FFT", (1, 9973), np.float32)
    assert fourier_kernels(lone("FFT", x, (9973,)), TARGET) is None


def test_a_line_does_not_touch_its_neighbours() -> None:
    x = operand("RFFT", (4, 30), np.float32)
    x[1, 3] = np.nan
    x[2] *= 1e30
    (actual,) = run(lone("RFFT", x, (30,)), [x], kernel=fourier_kernels)
    assert np.isnan(actual[1]).all()
    for line in (0, 3):
        assert np.allclose(actual[line], np.fft.rfft(x[line]), atol=1e-5)


def test_the_inverse_does_not_look_at_parts_that_are_zero() -> None:
    for n in (8, 9):
        x = operand("IRFFT", (2, n), np.float32)
        other = x.copy()
        other[:, 0] += 5j
        if n % 2 == 0:
            other[:, -1] += 7j
        first, second = (
            run(lone("IRFFT", v, (n,)), [v], kernel=fourier_kernels) for v in (x, other)
        )
        assert np.array_equal(first[0], second[0])


def test_factors_multiply_to_the_length() -> None:
    for n in range(2, 400):
        found = factors(n)
        assert not found or np.prod(found) == n
    assert factors(34) == (2, 17)
    assert factors(2 * 73 * 83) == (2, 73, 83)
    assert factors(2 * 79 * 83) == ()  # as many multiplications as a convolution has, and more
    assert factors(167) == ()
    assert convolution_length(17) == 36


@pytest.mark.parametrize("kind", KINDS)
def test_long_lines_of_large_primes_in_columns_and_rows(kind: str) -> None:
    assert_transforms(kind, (1, 4 * 43 * 97), 1, np.float32)


@pytest.mark.parametrize("machine", ["x86-64-v2", "x86-64-v3", "x86-64-v4"])
def test_terms_of_a_large_prime_are_read_once_for_several_sums(machine: str) -> None:
    """As many as have room in registers."""
    numbers = Numbers(Nest(Writer(), Target(NAMED[machine])), dt.C64)
    terms = Terms(*(Value("%x", "ptr"), *(Value("%n", "i64"),) * 2, Value("%r", "ptr"), S))
    made = PrimePass(numbers, Complex(numbers.w, fused=True), 97, terms)
    assert made.together == {"x86-64-v4": 4}.get(machine, 2)


def test_roots_are_rounded_once() -> None:
    assert roots(np.array([0, 1, 2, 3]), 4).tolist() == [1, -1j, -1, 1j]
    k = np.arange(1009)
    assert np.abs(roots(k, 1009) - np.exp(-2j * np.pi * k / 1009)).max() < 2e-15
    assert np.abs(roots(k, 1009) ** 2 - roots(2 * k, 1009)).max() < 1e-15


@pytest.mark.parametrize("threads", [2, 3, 7])
def test_transforms_do_not_depend_on_threads(threads: int) -> None:
    x = operand("RFFT", (300, 60), np.float32)
    module = module_of("RFFT", x, (300, 60))
    alone = hlo.compile(module, cache=False, threads=1)(x)
    assert np.array_equal(alone, for_threads(module, threads=threads)(x))


@pytest.mark.parametrize(
    ("kind", "dims", "units"),
    [
        ("RFFT", (16, 2048), 2),  # one vector of long lines is two threads'
        ("FFT", (12, 2048), 2),
        ("RFFT", (16, 512), 1),  # too short
        ("RFFT", (1, 200), 1),  # a short vector, and nothing to share
        ("RFFT", (32, 2048), 2),  # two vectors as it is
    ],
)
def test_one_vector_of_long_lines_is_shared(kind: str, dims: tuple[int, int], units: int) -> None:
    wide = Target(NAMED["x86-64-v4"])
    root = lone(kind, operand(kind, dims, np.float32), dims[1:])
    sequence = fourier_kernels(root, wide)
    assert sequence is not None
    assert [call.kernel.units for call in sequence.calls] == [units]
    alone = fourier_kernels(root, replace(wide, is_alone=True))
    assert alone is not None
    assert [call.kernel.units for call in alone.calls] == [-(-dims[0] // 16)]


def test_few_lines_take_short_vectors() -> None:
    wide = Target(NAMED["x86-64-v4"])
    scratch = []
    for count in (1, 4, 8, 9):
        root = lone("RFFT", operand("RFFT", (count, 222), np.float32), (222,))
        sequence = fourier_kernels(root, wide)
        assert sequence is not None
        scratch.append(sequence.calls[0].kernel.scratch_bytes)
    least, same, double, most = scratch
    assert least == same < double < most


@pytest.mark.parametrize("kind", KINDS)  # fewer lines become columns and rows
@pytest.mark.parametrize("count", [11, 16])
def test_bits_do_not_depend_on_the_lanes(kind: str, count: int) -> None:
    x = operand(kind, (count, 2048), np.float32)
    module = module_of(kind, x, (2048,))
    rows = np.concatenate([x] * 40)[:40]
    many = hlo.compile(module_of(kind, rows, (2048,)), threads=1)(rows)
    for threads in (1, 2, 3):
        made = for_threads(module, threads=threads)(x)
        assert np.asarray(made).tobytes() == np.asarray(many)[:count].tobytes()


LONG = [(1, 1024), (2, 2048), (1, 8192), (1, 2 * 3 * 5 * 7 * 11 * 13), (16, 16384), (2, 65536)]


@pytest.mark.parametrize(
    ("real", "kind", "dims"), covering([np.float32, np.float64], ["RFFT", "IRFFT"], LONG)
)
def test_long_real_lines_are_half_as_many_complex_numbers(
    kind: str, dims: tuple[int, int], real: type
) -> None:
    x = operand(kind, dims, real)
    sequence = fourier_kernels(lone(kind, x, dims[1:]), TARGET)
    assert sequence is not None
    assert len(sequence.calls) == 3
    assert max(call.kernel.units for call in sequence.calls) > 1
    assert_transforms(kind, dims, 1, real)


def test_ends_of_long_half_transforms_are_real() -> None:
    """What symmetry makes zero is not read, as in short ones: NaN there changes nothing."""
    x = operand("IRFFT", (1, 8192), np.float32)
    wanted = hlo.compile(module_of("IRFFT", x, (8192,)), threads=2)(x)
    x.imag[:, [0, -1]] = np.nan
    found = hlo.compile(module_of("IRFFT", x, (8192,)), threads=2)(x)
    assert np.asarray(found).tobytes() == np.asarray(wanted).tobytes()


@pytest.mark.parametrize("kind", KINDS)
def test_all_axes_of_long_lines(kind: str) -> None:
    assert_transforms(kind, (3, 1024), 2, np.float32)
    assert_transforms(kind, (2, 3, 8192), 2, np.float32)


@pytest.mark.parametrize(
    ("n", "real"), [(131072, np.float32), (3 << 16, np.float32), (131072, np.float64)]
)
@pytest.mark.parametrize("kind", ["FFT", "IFFT"])
def test_twists_of_very_long_lines_are_products(kind: str, n: int, real: type) -> None:
    assert_transforms(kind, (1, n), 1, real)
    x = operand(kind, (1, n), real)
    module = module_of(kind, x, (n,))
    results = [np.asarray(for_threads(module, threads=t)(x)).tobytes() for t in (1, 2, 3)]
    assert len(set(results)) == 1
