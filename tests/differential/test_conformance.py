"""shared/suites/conformance on both engines: every program agrees with XLA:CPU's results."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from hlo import driver
from hlo.ir.shape import Shape

SUITES = next(
    (p / "shared" / "suites" for p in Path(__file__).resolve().parents if (p / "shared").is_dir()),
    Path("missing"),
)
FOLDER = SUITES / "conformance"


def loader() -> ModuleType:
    """The suite's own load.py, which reads and compares."""
    spec = importlib.util.spec_from_file_location("suite_load", SUITES / "load.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


LOAD = loader() if FOLDER.is_dir() else None
PROGRAMS = LOAD.programs(FOLDER) if LOAD else {}


def packed(shape: Shape, leaves: Iterator[object]) -> object:
    """The leaves as one value of a parameter."""
    if shape.is_tuple:
        return tuple(packed(e, leaves) for e in shape.elements)
    return None if shape.is_token else next(leaves)


@pytest.mark.corpus
@pytest.mark.skipif(LOAD is None, reason="shared/suites is not there")
@pytest.mark.parametrize("engine", ["interpreter", "compiled"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_conformance(name: str, engine: str) -> None:
    assert LOAD is not None
    text, inputs, expected = LOAD.load(FOLDER / f"{name}.hlo")
    entry = PROGRAMS[name]
    module = driver.parse(text, f"{name}.hlo")
    leaves = iter(inputs)
    arguments = [packed(p.shape, leaves) for p in module.entry.parameters]
    if engine == "interpreter":
        value = driver.evaluate(module, *arguments)
    else:
        value = driver.compile(module, cache=False)(*arguments)
    results = [leaf for leaf in LOAD.flatten(value) if leaf is not None]
    pairs = zip(results, expected, entry["atol"], strict=True)
    with np.errstate(all="ignore"):  # signalling NaNs of all codes are widened
        wrong = [LOAD.compare(got, want, entry["rtol"], atol) for got, want, atol in pairs]
    assert [message for message in wrong if message] == []
