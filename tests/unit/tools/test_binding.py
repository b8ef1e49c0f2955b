"""bind: parameters that become constants, in Python and by `hlo-run compile --bind`."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.errors import HloError
from tests.support.command import call

TEXT = """HloModule model, input_output_alias={ {0}: (3, {}, may-alias) }, entry_computation_layout={(bf16[8], f32[40,300]{1,0}, f32[300,50]{0,1}, s32[4])->(s32[4], f32[40,50]{1,0})}
ENTRY e {
  b = bf16[8] parameter(0)
  x = f32[40,300] parameter(1)
  w = f32[300,50] parameter(2)
  s = s32[4] parameter(3)
  p = f32[40,50] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  z = bf16[] constant(0)
  m = bf16[] reduce(b, z), dimensions={0}, to_apply=add
  c = f32[] convert(m)
  d = f32[40,50] broadcast(c), dimensions={}
  q = f32[40,50] add(p, d)
  t = s32[4] add(s, s)
  ROOT r = (s32[4], f32[40,50]) tuple(t, q)
}
"""  # noqa: E501  # a header is a line
ADD = """add { u = bf16[] parameter(0)
  v = bf16[] parameter(1)
  ROOT sum = bf16[] add(u, v) }
"""


@pytest.fixture
def model() -> hlo.ir.module.Module:
    return hlo.parse(TEXT.replace("ENTRY", ADD + "ENTRY"))


def drawn() -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    x, w = (rng.standard_normal(s).astype(np.float32) for s in ((40, 300), (300, 50)))
    b = np.arange(8).astype(ml_dtypes.bfloat16)
    return b, x, w, np.arange(4, dtype=np.int32)


def test_values_are_constants_and_results_the_same(model: hlo.ir.module.Module) -> None:
    b, x, w, s = drawn()
    bound = hlo.bind(model, {"w": w, 0: b})
    hlo.verify(bound)
    assert [str(p.shape) for p in bound.entry.parameters] == ["f32[40,300]{1,0}", "s32[4]{0}"]
    again = hlo.parse(str(bound))
    assert "(1, {}, may-alias)" in str(again).splitlines()[0]
    want = hlo.compile(model)(b, x, w, s)
    for program in (bound, again):
        found = hlo.compile(program)(x, s)
        for a, c in zip(found, want, strict=True):
            assert a.tobytes() == c.tobytes()
    assert len(model.entry.parameters) == 4
    made = Compilation(bound, cache=False)
    assert any(a.prepared for a in made.buffers.allocations)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"k": 1}, "has no parameter k, expected one of b, x, w, s"),
        ({7: 1}, "has no parameter 7"),
        ({"w": np.ones((300, 50))}, r"w is f32\[300,50\].*found a value of float64\[300,50\]"),
        ({"w": np.ones((50, 300), np.float32)}, r"found a value of float32\[50,300\]"),
        ({"s": np.arange(4, dtype=np.int32)}, "s is given away or becomes a result"),
    ],
)
def test_what_cannot_be_bound(
    model: hlo.ir.module.Module, values: dict[object, object], message: str
) -> None:
    with pytest.raises(HloError, match=message) as raised:
        hlo.bind(model, values)
    assert raised.value.code == "arguments"


def test_only_a_mapping_says_what_is_bound(model: hlo.ir.module.Module) -> None:
    with pytest.raises(HloError, match="found int, expected arrays by names or numbers"):
        hlo.bind(model, 3)  # type: ignore[arg-type]  # as somebody may write


def test_the_command(model: hlo.ir.module.Module, tmp_path: Path) -> None:
    b, _, w, _ = drawn()
    file, weights = tmp_path / "model.hlo", tmp_path / "w.npz"
    file.write_text(str(model))
    np.savez(weights, w=w)
    made, header = tmp_path / "model.o", tmp_path / "model.h"
    done = call(
        "hlo-run", "compile", str(file), f"--bind={weights}", "-o", str(made), f"--header={header}"
    )
    assert done.code == 0, done.err
    assert made.stat().st_size > w.nbytes
    assert "const float *x" in header.read_text()
    assert " *w" not in header.read_text()
    np.savez(weights, other=b.astype(np.float32))
    wrong = call("hlo-run", "compile", str(file), f"--bind={weights}", "-o", str(made))
    assert (wrong.code, "has no parameter other" in wrong.err) == (1, True)
