"""Arrays in files: every element type comes back as it went."""

from pathlib import Path

import numpy as np
import pytest

from hlo.ir.dtype import DTYPES
from hlo.tools.cases.arrays import load_npz
from hlo.tools.files.npz import write_npz


@pytest.mark.parametrize("name", [n for n, t in DTYPES.items() if t.is_array])
def test_an_npz_holds_arrays_of_every_type(name: str, tmp_path: Path) -> None:
    array = np.arange(2).astype(DTYPES[name].numpy).reshape(1, 2)
    write_npz(str(tmp_path / "x.npz"), {"x": array})
    (found,) = load_npz(str(tmp_path / "x.npz")).values()
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()
