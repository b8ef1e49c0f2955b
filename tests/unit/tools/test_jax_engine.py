"""XLA in a child process: arrays arrive as they left, whatever folder the user works in."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from hlo.errors import HloError
from hlo.tools.files.input_size import limited
from hlo.tools.jax import jax_engine
from hlo.tools.jax.jax_engine import run_in_child

ARRAYS = (
    np.arange(6).reshape(3, 2).T.astype(ml_dtypes.bfloat16),
    np.array(True),
    np.array([1 + 2j, complex(-0.0, np.nan)], np.complex64),
    np.array([1, 2, np.nan, -0.0], ml_dtypes.float8_e4m3fn),
    np.array([-8, 7, 1], ml_dtypes.int4),
    np.zeros((0, 3), np.float32),
)
SHAPES = ("bf16[2,3]", "pred[]", "c64[2]", "f8e4m3fn[4]", "s4[3]", "f32[0,3]")


@pytest.mark.oracle
def test_arrays_come_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No limit on inputs holds between the two processes, and no module of the folder is run."""
    pytest.importorskip("jaxlib")
    for name in ("jax", "numpy", "hlo"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('code of the folder')")
    monkeypatch.chdir(tmp_path)
    rows = "".join(f"  p{n} = {shape} parameter({n})\n" for n, shape in enumerate(SHAPES))
    names = ", ".join(f"p{n}" for n in range(len(SHAPES)))
    text = f"HloModule m\nENTRY e {{\n{rows}  ROOT r = ({', '.join(SHAPES)}) tuple({names})\n}}\n"
    with limited(1):
        found = run_in_child(text, ARRAYS)
    for wanted, made in zip(ARRAYS, found, strict=True):
        assert (made.dtype, made.shape) == (wanted.dtype, wanted.shape)
        assert made.tobytes() == wanted.tobytes()


def test_a_child_that_takes_too_long_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax_engine, "CHILD_TIMEOUT_S", 0.01)
    with pytest.raises(HloError, match=r"longer than 0\.01 s") as caught:
        jax_engine.run_child("timeit", "-n", "1", "import time; time.sleep(9)")
    assert caught.value.code == "oracle"
