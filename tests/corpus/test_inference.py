"""Inference and verification against real modules: each written shape is the inferred one.

Verifying compares every instruction's written shape with its op's inference, so a module that
verifies agrees everywhere. Modules above LARGEST_BYTES are left to `pytest -m slow`.
"""

from pathlib import Path

import pytest

from hlo.errors import HloErrors
from hlo.parser.parse import parse
from hlo.verifier.verify import verify

SHARED = Path(__file__).parents[3] / "shared"
LARGEST_BYTES = 300_000

# XLA's parser accepts these; its verifier would refuse them, as ours does: file -> messages.
REFUSED = {
    # a test of the importer, which verifies nothing: unbounded dimensions, computations that return
    # tuples, an init of rank 1, a window larger than its kernel, random bits without a state
    "hlo__translate__hlo_to_mhlo__tests__import.hlo": (
        "abs: result is f32[?,784]",
        "convolution: window is of size 3 in spatial dimension 0, expected 2",
        "map: to_apply is a computation that returns (f32[]), expected a scalar",
        "parameter: result is f32[?,784]",
        "reduce: operand 1 is f32[4], expected a scalar",
        "rng-bit-generator: result is u32[2,2], expected (state, bits)",
        "select-and-scatter: select is a computation (f32[], f32[]) -> (pred[])",
        "sort: to_apply is a computation that returns (pred[]), expected pred[]",
    ),
}

pytestmark = [
    pytest.mark.corpus,
    pytest.mark.skipif(not SHARED.exists(), reason="needs ../shared"),
]


def files(*, large: bool) -> list[Path]:
    found = [*SHARED.glob("corpus/files/*.hlo"), *SHARED.glob("corpus/models/*.txt"),
             *SHARED.glob("suites/*/*.hlo")]  # fmt: skip
    return sorted(f for f in found if (f.stat().st_size > LARGEST_BYTES) == large)


def check_file(file: Path) -> None:
    try:
        module = parse(file.read_text(errors="surrogateescape"), file.name)
    except HloErrors:
        pytest.skip("does not parse: tests/corpus of the parser judge that")
    expected = REFUSED.get(file.name, ())
    found = []
    try:
        verify(module)
    except HloErrors as errors:
        found = sorted(e.message for e in errors.errors)
    assert len(found) == len(expected), found
    for message, start in zip(found, expected, strict=True):
        assert message.startswith(start)


@pytest.mark.parametrize("file", files(large=False), ids=lambda f: f.name)
def test_written_shapes_are_the_inferred_ones(file: Path) -> None:
    check_file(file)


@pytest.mark.slow
@pytest.mark.parametrize("file", files(large=True), ids=lambda f: f.name)
def test_written_shapes_are_the_inferred_ones_in_large_modules(file: Path) -> None:
    check_file(file)
