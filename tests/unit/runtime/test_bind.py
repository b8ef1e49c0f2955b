"""Executable.bind: calls of the remaining parameters give what calls with all of them give."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.padded import PaddedExecutable
from hlo.errors import HloError
from hlo.ir.dtype import DTYPES
from hlo.machine import NAMED
from hlo.runtime.executable import Executable

LAYERS = """HloModule layers

ENTRY e {{
  x = {t}[{rows},96] parameter(0)
  w = {t}[96,70] parameter(1)
  v = {t}[70,33] parameter(2)
  b = {s}[33] parameter(3)
  h = {s}[{rows},70] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  g = {t}[{rows},70] convert(h)
  y = {s}[{rows},33] dot(g, v), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
  c = {s}[{rows},33] broadcast(b), dimensions={{1}}
  ROOT r = {s}[{rows},33] add(y, c)
}}
"""
TUPLES = """HloModule tuples, input_output_alias={ {1}: (2, {}, may-alias) }

ENTRY e {
  p = (f32[6], (s32[6], f32[])) parameter(0)
  w = f32[6] parameter(1)
  s = s32[6] parameter(2)
  a = f32[6] get-tuple-element(p), index=0
  q = (s32[6], f32[]) get-tuple-element(p), index=1
  n = s32[6] get-tuple-element(q), index=0
  m = f32[6] multiply(a, w)
  t = s32[6] add(n, s)
  ROOT r = (f32[6], s32[6]) tuple(m, t)
}
"""
SUM = """HloModule sum

ENTRY e {
  x = f32[<=6] parameter(0)
  w = f32[] parameter(1)
  b = f32[<=6] broadcast(w), dimensions={}
  ROOT r = f32[<=6] multiply(x, b)
}
"""


def parameters(executable: object) -> list[str]:
    assert isinstance(executable, Executable)
    given = executable.signature.parameters
    return [f"{p.name}: {p.shape.dtype.name}{list(p.shape.dims)}" for p in given]


def bits(array: object) -> bytes:
    assert isinstance(array, np.ndarray)
    return array.tobytes()


def drawn(element: str, *dims: int) -> np.ndarray:
    numbers = 3 * np.random.default_rng(sum(dims)).standard_normal(dims)
    return numbers.astype(DTYPES[element].numpy)


@pytest.mark.parametrize("rows", [1, 5, 64])
@pytest.mark.parametrize(("element", "sums"), [("f32", "f32"), ("bf16", "f32"), ("s8", "s32")])
def test_weights_are_bound(element: str, sums: str, rows: int) -> None:
    executable = hlo.compile(hlo.parse(LAYERS.format(t=element, s=sums, rows=rows)))
    x, w, v = drawn(element, rows, 96), drawn(element, 96, 70), drawn(element, 70, 33)
    b = drawn(sums, 33)
    want = executable(x, w, v, b)
    bound = executable.bind({"w": w, 2: v})
    assert parameters(bound) == [f"x: {element}[{rows}, 96]", f"b: {sums}[33]"]
    assert repr(bound).startswith(f"<hlo.Executable (x: {element}[{rows},96]")
    further = bound.bind({"b": b})
    assert parameters(further) == [f"x: {element}[{rows}, 96]"]
    for found in (bound(x, b), further(x), executable(x, w, v, b)):
        assert bits(found) == bits(want)
    whole = further.bind({0: x})  # the reference computes what has no parameter left
    close = 1e-3 * float(np.abs(np.asarray(want)).max())
    np.testing.assert_allclose(np.asarray(whole()), np.asarray(want), rtol=0, atol=close)
    with pytest.raises(HloError, match="expected 2"):
        bound(x, w, v, b)


def test_weights_are_copied_and_tuples_and_donations_stay() -> None:
    executable = hlo.compile(hlo.parse(TUPLES))
    a, n, w = np.arange(6, dtype=np.float32), np.arange(6, dtype=np.int32), drawn("f32", 6)
    p = (a, (n, np.float32(1)))
    s = n * 3
    product = a * w
    bound = executable.bind({"w": w})
    w[:] = 0
    for donate in ((), (1,)):
        found = bound(p, s, donate=donate)
        assert isinstance(found, tuple)
        assert bits(found[0]) == bits(product)
        assert found[1].tolist() == [0, 4, 8, 12, 16, 20]
        assert np.shares_memory(found[1], s) == bool(donate)
    for name in ("p", "s"):
        with pytest.raises(HloError, match=f"bind: {name} is "):
            executable.bind({name: p})


def test_choices_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mode, passes, threads and machine are those of the first; the cache is asked if it was."""
    made: list[Compilation] = []
    first = Compilation.__init__

    def noted(self: Compilation, *arguments: object, **choices: object) -> None:
        first(self, *arguments, **choices)  # type: ignore[arg-type]  # as they came
        made.append(self)

    monkeypatch.setattr(Compilation, "__init__", noted)
    monkeypatch.setenv("HLO_NUM_THREADS", "1")
    module = hlo.parse(LAYERS.format(t="f32", s="f32", rows=3))
    machine = NAMED["x86-64-v2"]
    executable = hlo.compile(module, "simplify", mode="fast", machine=machine, cache=False)
    monkeypatch.setenv("HLO_NUM_THREADS", "2")
    executable.bind({"b": drawn("f32", 33)})
    before, after = made
    for name in ("passes", "mode", "threads", "machine", "cache"):
        assert getattr(before, name) == getattr(after, name)


def test_a_kept_program_is_bound() -> None:
    text = LAYERS.format(t="f32", s="f32", rows=7)
    x, w, v, b = (drawn("f32", *d) for d in ((7, 96), (96, 70), (70, 33), (33,)))
    want = hlo.compile(hlo.parse(text))(x, w, v, b)
    again = hlo.compile(hlo.parse(text))
    assert bits(again.bind({"v": v, "w": w})(x, b)) == bits(want)


def test_sizes_of_the_run_stay() -> None:
    executable = hlo.compile(hlo.parse(SUM))
    assert isinstance(executable, PaddedExecutable)
    x = np.arange(4, dtype=np.float32)
    for made in (executable, hlo.compile(hlo.parse(SUM), passes="")):
        assert np.asarray(made.bind({"w": np.float32(3)})(x)).tolist() == [0, 3, 6, 9]


def test_what_cannot_be_bound() -> None:
    module = hlo.parse(LAYERS.format(t="bf16", s="f32", rows=4))
    executable = hlo.compile(module)
    wrong: list[tuple[dict[str, object], str]] = [
        ({"k": 1}, "has no parameter k, expected one of x, w, v, b"),
        ({"b": np.ones(33)}, r"b is f32\[33\].*found a value of float64\[33\]"),
        ({"w": np.ones((70, 96), ml_dtypes.bfloat16)}, r"found a value of bfloat16\[70,96\]"),
    ]
    for weights, message in wrong:
        with pytest.raises(HloError, match=message) as raised:
            executable.bind(weights)
        assert raised.value.code == "arguments"
    module.entry.root = module.entry.instructions[0]
    with pytest.raises(HloError, match="layers was edited after it was compiled"):
        executable.bind({"b": np.ones(33, np.float32)})
    with pytest.raises(HloError, match="nothing says how this program was compiled"):
        Compilation(hlo.parse(SUM), cache=False).executable.bind({})
