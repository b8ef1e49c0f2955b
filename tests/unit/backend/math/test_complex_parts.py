"""Parts of c128 results: in units of their own last place, and where they vanish nearly so."""

import numpy as np
import pytest

import hlo
from hlo.interpreter.evaluate import evaluate
from tests.support import exact_complex

COUNT = 96
FUNCTIONS = {
    "exponential-minus-one": exact_complex.exponential_minus_one,
    "logistic": exact_complex.logistic,
    "log-plus-one": exact_complex.log_plus_one,
    "log": exact_complex.log,
}
needs_long_double = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 60, reason="long double is double"
)


def run(engine: str, opcode: str, *operands: np.ndarray) -> np.ndarray:
    kind = "c64" if operands[0].dtype == np.complex64 else "c128"
    lines = [f"{'xy'[k]} = {kind}[{o.size}] parameter({k})" for k, o in enumerate(operands)]
    lines.append(
        f"ROOT r = {kind}[{operands[0].size}] {opcode}({', '.join('xy'[: len(operands)])})"
    )
    module = hlo.parse("HloModule m\nENTRY e {\n" + "\n".join(lines) + "\n}\n")
    compiled = hlo.compile(module, cache=False) if engine == "compiled" else None
    return np.asarray(compiled(*operands) if compiled else evaluate(module, *operands))


def where_parts_vanish(opcode: str, rng: np.random.Generator) -> np.ndarray:
    """Close to where a real part is 0, at distances down to 2^-9."""
    if opcode == "exponential-minus-one":
        b = rng.uniform(-1.4, 1.4, COUNT)
        a = -np.log(np.cos(b))
    elif opcode == "logistic":
        b = rng.uniform(1.8, 4.4, COUNT)
        a = np.log(-np.cos(b))
    else:
        turn = rng.uniform(-3, 3, COUNT)
        a, b = np.cos(turn) - (opcode == "log-plus-one"), np.sin(turn)
    distance = rng.choice([-1, 1], COUNT) * 2.0 ** rng.uniform(-9, -3, COUNT)
    return a * (1 + distance) + 1j * b


@needs_long_double
@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("opcode", FUNCTIONS)
def test_parts_that_nearly_cancel(opcode: str, engine: str) -> None:
    rng = np.random.default_rng(4)
    wide = rng.uniform(-2, 2, COUNT) + 1j * rng.uniform(-4, 4, COUNT)
    for z in (where_parts_vanish(opcode, rng), wide):
        errors = exact_complex.part_errors(
            FUNCTIONS[opcode], run(engine, opcode, z), z.real, z.imag
        )
        assert max(e / unit for parts in errors for e, unit in parts) < 10


@needs_long_double
@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("exponents", [(-1074, -900), (1000, 1023.3)], ids=["tiny", "huge"])
def test_powers_of_extreme_numbers(exponents: tuple[float, float], engine: str) -> None:
    rng = np.random.default_rng(5)
    size = 2.0 ** np.floor(rng.uniform(*exponents, COUNT)) * rng.uniform(1, 1.3, COUNT)
    turn = rng.uniform(-3, 3, COUNT)
    z = size * np.cos(turn) + 1j * size * np.sin(turn)
    w = rng.uniform(0.1, 0.9, COUNT) * rng.choice([-1, 1], COUNT)
    got = run(engine, "power", z, w + 0j)
    errors = exact_complex.part_errors(exact_complex.real_power, got, z.real, z.imag, w)
    for value, parts in zip(got, errors, strict=True):  # in units of the size: parts may vanish
        assert max(e for e, _ in parts) < 4 * np.spacing(abs(value)), value


@pytest.mark.parametrize("engine", ["compiled", "reference"])
@pytest.mark.parametrize("kind", [np.complex64, np.complex128])
def test_only_an_infinite_exponent_outweighs_nan(kind: type, engine: str) -> None:
    """C99 G.6.3.1: exp(-inf + NaN i) is a zero, exp(x + NaN i) for finite x is NaN + NaN i."""
    z = np.array([complex(a, b) for a in (-np.inf, -1000.0, -120.0) for b in (np.nan, np.inf)],
                 kind)  # fmt: skip
    with np.errstate(all="ignore"):
        for opcode, limit in (("exponential", 0), ("exponential-minus-one", -1)):
            got = run(engine, opcode, z)
            assert (got[:2].real == limit).all()
            assert (got[:2].imag == 0).all()
            assert np.isnan(got[2:].real).all()
            assert np.isnan(got[2:].imag).all()
