"""LAPACK's custom calls compiled: SciPy's library from native code, the interpreter's very bits."""

from __future__ import annotations

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.ir.kernel import KernelSequence
from hlo.ops import lapack_library
from hlo.ops.lapack import TYPES
from tests.support.covering import covering

pytest.importorskip("scipy")

HLO_TYPES = {"s": ("f32", "f32"), "d": ("f64", "f64"), "c": ("c64", "f32"), "z": ("c128", "f64")}
SIZES = [(1, 1), (19, 3), (4, 9)]
SQUARES = [1, 6, 19]


def program(
    name: str, config: str, operands: list[str], results: list[str], batch: tuple[int, ...] = (3,)
) -> str:
    """A call on a batch; operands and results as `f32[4,5]` of one problem."""

    def batched(shape: str) -> str:
        head, dims = shape.rstrip("]").split("[")
        inner = [int(d) for d in dims.split(",") if d]
        return f"{head}[{','.join(map(str, (*batch, *inner)))}]"

    rows = [f"  p{k} = {batched(s)} parameter({k})" for k, s in enumerate(operands)]
    arguments = ", ".join(f"p{k}" for k in range(len(operands)))
    made = [batched(s) for s in results]
    shape = f"({', '.join(made)})" if len(made) > 1 else made[0]
    call = f'custom-call({arguments}), custom_call_target="lapack_{name}_ffi"'
    lines = [*rows, f"  ROOT r = {shape} {call}, backend_config={{{config}}}"]
    body = "\n".join(lines)
    return (
        "HloModule m\nENTRY e {\n"
        + body.replace(f"backend_config={{{config}}}", f'backend_config="{{{config}}}"')
        + ", api_version=API_VERSION_TYPED_FFI\n}\n"
    )


def made(rng: np.random.Generator, module: hlo.Module) -> list[np.ndarray]:
    values = []
    for p in module.entry.parameters:
        x = rng.standard_normal(p.shape.dims)
        if p.shape.dtype.is_complex:
            x = x + 1j * rng.standard_normal(p.shape.dims)
        values.append(x.astype(p.shape.dtype.numpy))
    return values


def check(text: str, values: list[np.ndarray] | None = None, seed: int = 0) -> object:
    """Native, and equal to the interpreter bit for bit; the result."""
    module = hlo.parse(text)
    assert not Compilation(hlo.optimize(module), passes="", threads=1).program.hosts
    given = made(np.random.default_rng(seed), module) if values is None else values
    wanted = hlo.evaluate(module, *given)
    actual = hlo.compile(module, cache=False, threads=3)(*given)
    pairs = zip(*((x if isinstance(x, tuple) else (x,)) for x in (actual, wanted)), strict=True)
    for number, (a, b) in enumerate(pairs):
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b, err_msg=f"result {number}")
    return wanted


@pytest.mark.parametrize(("letter", "m", "n"), covering(TYPES, SIZES, strength=1, several=(1,)))
def test_lapack_factors_of_rectangles(letter: str, m: int, n: int) -> None:
    t, real = HLO_TYPES[letter]
    k = min(m, n)
    a, tau = f"{t}[{m},{n}]", f"{t}[{k}]"
    check(program(f"{letter}getrf", "", [a], [a, f"s32[{k}]", "s32[]"]))
    check(program(f"{letter}geqrf", "", [a], [a, tau]))
    for mode, width, height in (("A", m, n), ("S", k, k), ("N", k, k)):
        results = [a, f"{real}[{k}]", f"{t}[{m},{width}]", f"{t}[{height},{n}]", "s32[]"]
        config = f"mode = {ord(mode)} : ui8"
        check(program(f"{letter}gesdd", config, [a], results))
        check(program(f"{letter}gesvd", config, [a], results))


@pytest.mark.parametrize("letter", TYPES)
def test_lapack_pivoted_qr_with_free_columns(letter: str) -> None:
    t, _ = HLO_TYPES[letter]
    for m, n in SIZES:
        a, tau = f"{t}[{m},{n}]", f"{t}[{min(m, n)}]"
        text = program(f"{letter}geqp3", "", [a, f"s32[{n}]"], [a, f"s32[{n}]", tau])
        (matrix, _) = made(np.random.default_rng(3), hlo.parse(text))
        check(text, [matrix, np.zeros((3, n), np.int32)])


def test_lapack_pivoted_qr_with_chosen_columns() -> None:
    text = program("dgeqp3", "", ["f64[6,5]", "s32[5]"], ["f64[6,5]", "s32[5]", "f64[5]"])
    matrix, _ = made(np.random.default_rng(3), hlo.parse(text))
    chosen = np.array([[0, 0, 1, 0, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]], np.int32)
    module = hlo.parse(text)
    actual = hlo.compile(module, cache=False)(matrix, chosen)
    wanted = hlo.evaluate(module, matrix, chosen)
    np.testing.assert_array_equal(actual[1], wanted[1])
    for a, b in zip(actual, wanted, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-13)


@pytest.mark.parametrize("letter", TYPES)
def test_lapack_products_of_reflectors(letter: str) -> None:
    t, _ = HLO_TYPES[letter]
    make, multiply = ("orgqr", "ormqr") if letter in "sd" else ("ungqr", "unmqr")
    # Real ones of more than two panels are not LAPACK's (test_panels.py).
    large = (30, 16, 16) if letter in "sd" else (70, 66, 66)
    for m, n, k in ((1, 1, 1), (7, 3, 3), (9, 9, 4), large):
        a = f"{t}[{m},{n}]"
        check(program(f"{letter}{make}", "", [a, f"{t}[{k}]"], [a]))
    for left, turned, (m, n) in ((1, 0, (9, 4)), (1, 1, (4, 90)), (0, 1, (70, 6)), (0, 0, (3, 3))):
        rows = m if left else n
        c, k = f"{t}[{m},{n}]", min(3, rows)
        config = f"left = {str(bool(left)).lower()}, transpose = {str(bool(turned)).lower()}"
        operands = [f"{t}[{rows},{k}]", f"{t}[{k}]", c]
        check(program(f"{letter}{multiply}", config, operands, [c]))


@pytest.mark.parametrize(("letter", "n"), covering(TYPES, SQUARES, strength=1))
def test_lapack_eigenvalues_and_reductions(letter: str, n: int) -> None:
    t, real = HLO_TYPES[letter]
    is_real = letter in "sd"
    a, v = f"{t}[{n},{n}]", f"{t}[{n}]"
    complex = t if not is_real else {"f32": "c64", "f64": "c128"}[t]
    w = [v, v] if is_real else [v]
    for mode in "VN":
        for uplo in "LU":
            config = f"mode = {ord(mode)} : ui8, uplo = {ord(uplo)} : ui8"
            name = "syevd" if is_real else "heevd"
            check(program(f"{letter}{name}", config, [a], [a, f"{real}[{n}]", "s32[]"]))
        sides = f"compute_left = {ord(mode)} : ui8, compute_right = 86 : ui8"
        vectors = [f"{complex}[{n},{n}]"] * 2
        check(program(f"{letter}geev", sides, [a], [*w, *vectors, "s32[]"]))
        config = f"mode = {ord(mode)} : ui8, sort = 78 : ui8"
        check(program(f"{letter}gees", config, [a], [a, a, *w, "s32[]", "s32[]"]))
    config = f"low = 1 : i32, high = {n} : i32"
    tau = f"{t}[{n - 1}]"
    check(program(f"{letter}gehrd", config, [a], [a, tau, "s32[]"]))
    name = "sytrd" if is_real else "hetrd"
    results = [a, f"{real}[{n}]", f"{real}[{n - 1}]", tau, "s32[]"]
    for uplo in "LU":
        check(program(f"{letter}{name}", f"uplo = {ord(uplo)} : ui8", [a], results))


@pytest.mark.parametrize("letter", TYPES)
def test_lapack_tridiagonal_systems_and_failures(letter: str) -> None:
    t, _ = HLO_TYPES[letter]
    for n, count in ((2, 1), (9, 4)):
        v, b = f"{t}[{n}]", f"{t}[{n},{count}]"
        text = program(f"{letter}gtsv", "", [v, v, v, b], [v, v, v, b, "s32[]"])
        check(text)
        values = made(np.random.default_rng(1), hlo.parse(text))
        for x in values[:3]:
            x[1] = 0
        *_, kept, info = check(text, values)  # type: ignore[misc]  # a tuple
        assert info[1] != 0
        np.testing.assert_array_equal(kept[1], values[3][1])


@pytest.mark.parametrize("letter", TYPES)
def test_lapack_calls_on_nan(letter: str) -> None:
    t, real = HLO_TYPES[letter]
    a, n, is_real = f"{t}[4,4]", 4, letter in "sd"
    values = made(
        np.random.default_rng(5), hlo.parse(program(f"{letter}geqrf", "", [a], [a, f"{t}[4]"]))
    )
    values[0][1, 2, 3] = np.nan
    svd = [a, f"{real}[4]", a, a, "s32[]"]
    *_, info = check(program(f"{letter}gesdd", "mode = 65 : ui8", [a], svd), values)  # type: ignore[misc]
    assert list(info) == [0, -4, 0]
    name = "syevd" if is_real else "heevd"
    config = "mode = 86 : ui8, uplo = 76 : ui8"
    vectors, w, _ = check(
        program(f"{letter}{name}", config, [a], [a, f"{real}[4]", "s32[]"]), values
    )  # type: ignore[misc]
    assert np.isnan(vectors[1]).all()
    assert np.isnan(w[1]).all()
    complex = {"f32": "c64", "f64": "c128"}.get(t, t)
    eigen = [*([f"{t}[{n}]"] * (1 + is_real)), *([f"{complex}[4,4]"] * 2), "s32[]"]
    sides = "compute_left = 86 : ui8, compute_right = 86 : ui8"
    *_, info = check(program(f"{letter}geev", sides, [a], eigen), values)  # type: ignore[misc]
    assert list(info) == [0, -4, 0]


def test_lapack_calls_on_nothing() -> None:
    check(program("dgetrf", "", ["f64[0,4]"], ["f64[0,4]", "s32[0]", "s32[]"]))
    check(program("dgetrf", "", ["f64[3,4]"], ["f64[3,4]", "s32[3]", "s32[]"], batch=(0,)))
    check(program("dgetrf", "", ["f64[3,4]"], ["f64[3,4]", "s32[3]", "s32[]"], batch=()))


def test_lapack_calls_of_other_shapes_are_left_to_the_reference() -> None:
    text = program("dgetrf", "", ["f64[3,3]"], ["f64[3,3]", "s32[2]", "s32[]"])
    assert Compilation(hlo.parse(text), passes="", threads=1).program.hosts
    text = program("dgetrf", "", ["f32[3,3]"], ["f32[3,3]", "s32[3]", "s32[]"])
    assert Compilation(hlo.parse(text), passes="", threads=1).program.hosts


LIBRARY = """HloModule m
ENTRY e {{
  x = {t}[{b}{m},{n}] parameter(0)
  q = ({t}[{b}{m},{n}], {t}[{b}{k}]) custom-call(x), custom_call_target="Qr"
  a = {t}[{b}{m},{n}] get-tuple-element(q), index=0
  s = {t}[{b}{k}] get-tuple-element(q), index=1
  h = {t}[{b}{m},{n}] custom-call(a, s),
    custom_call_target="ProductOfElementaryHouseholderReflectors"
  ROOT r = ({t}[{b}{m},{n}], {t}[{b}{k}], {t}[{b}{m},{n}]) tuple(a, s, h)
}}
"""


@pytest.mark.parametrize("batch", ["", "3,2,"])
@pytest.mark.parametrize("letter", "sdcz")
def test_library_targets_are_routines(letter: str, batch: str) -> None:
    kind = HLO_TYPES[letter][0]
    module = hlo.parse(LIBRARY.format(t=kind, b=batch, m=19, n=6, k=6))
    assert not Compilation(hlo.optimize(module), passes="", threads=1).program.hosts
    given = made(np.random.default_rng(1), module)
    digits = 1e-5 if letter in "sc" else 1e-13
    for a, b in zip(
        hlo.compile(module, cache=False)(*given), hlo.evaluate(module, *given), strict=True
    ):
        assert np.allclose(a, b, rtol=digits, atol=digits)


def test_more_reflectors_than_rows_are_left_to_the_reference() -> None:
    text = LIBRARY.format(t="f32", b="", m=4, n=9, k=4)
    module = hlo.parse(text)
    assert Compilation(hlo.optimize(module), passes="", threads=1).program.hosts
    given = made(np.random.default_rng(1), module)
    for a, b in zip(
        hlo.compile(module, cache=False)(*given), hlo.evaluate(module, *given), strict=True
    ):
        assert np.allclose(a, b, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("batch", [(), (4,)])
def test_matrices_worth_the_librarys_threads(batch: tuple[int, ...]) -> None:
    """Many at once with one thread of the library's each, a large one with all, the interpreter
    like compiled code; the library has its threads again afterwards."""
    size = 200 if batch else 320
    threads = lapack_library.library_threads()
    before = threads.count()
    matrix = f"c64[{size},{size}]"
    check(program("cgeqrf", "", [matrix], [matrix, f"c64[{size}]"], batch))
    assert threads.count() == before
    assert threads.state.inside == 0


def test_one_thread_until_the_last_has_left() -> None:
    threads = lapack_library.library_threads()
    before = threads.count()
    with lapack_library.one_thread():
        with lapack_library.one_thread():
            assert threads.count() == 1
        assert threads.count() == 1
    assert threads.count() == before


def test_who_works_alone() -> None:
    assert lapack_library.works_alone((2, 1000, 1000), 2)
    assert lapack_library.works_alone((1, 100, 100), 2)
    assert not lapack_library.works_alone((1, 1000, 1000), 2)
    assert not lapack_library.works_alone((5000, 100), 2)


@pytest.mark.parametrize(("size", "units"), [(4, 1), (16, 50)])
def test_short_factorisations_are_one_unit(size: int, units: int) -> None:
    matrix = f"c64[{size},{size}]"
    text = program("cgetrf", "", [matrix], [matrix, f"s32[{size}]", "s32[]"], (50,))
    (sequence,) = Compilation(hlo.parse(text)).implementations.values()
    assert isinstance(sequence, KernelSequence)
    assert [call.kernel.units for call in sequence.calls] == [units]
