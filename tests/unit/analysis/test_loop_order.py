"""The order of loops: one rule; decided by fusion, read from the text, else decided anew."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.analysis.decisions import decisions_of
from hlo.analysis.loop_order import LoopOrder, loop_order
from hlo.backend.compilation import Compilation
from hlo.interpreter.evaluate import evaluate
from hlo.ir.module import Module
from tests.support.by_threads import for_threads
from tests.support.command import call

# A softmax over a dimension in the middle.
TEXT = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e {
  x = f32[5,9,64] parameter(0)
  zero = f32[] constant(0)
  e = f32[5,9,64] exponential(x)
  s = f32[5,64] reduce(e, zero), dimensions={1}, to_apply=sum
  b = f32[5,9,64] broadcast(s), dimensions={0,2}
  ROOT r = f32[5,9,64] divide(e, b)
}"""
SAID = '{"hlo":{"loop_order":[0,2,1]}}'


def optimised() -> str:
    text = str(hlo.optimize(hlo.parse(TEXT)))
    assert text.count(f"backend_config={SAID}") == 1
    return text


def kernels(module: Module) -> list[str]:
    made = Compilation(module, passes="", threads=1, cache=False)
    return [repr(kernel) for kernel in made.implementations.values()]


@pytest.mark.parametrize(
    ("extents", "kept", "said", "found"),
    [
        ((5, 9, 64), [(0, 2)], (), LoopOrder((0, 2, 1), 2)),
        ((5, 9, 64), [(0, 2), (2, 0)], (2, 0, 1), LoopOrder((2, 0, 1), 2)),
        ((5, 9, 64), [(2,)], (), LoopOrder((2, 0, 1), 1)),
        ((5, 9, 64), [(2,)], (2, 1, 0), LoopOrder((2, 1, 0), 1)),
        ((5, 9, 64), [(0,)], (), LoopOrder((0, 1, 2), 1)),
        ((5, 9, 64), [(0,)], (0, 2, 1), LoopOrder((0, 2, 1), 1)),
        # dimensions of one element are no loops
        ((1, 5, 9, 64), [(1, 3)], (0, 1, 3, 2), LoopOrder((0, 1, 3, 2), 3)),
        ((1, 5, 9, 64), [(0, 1), (1,)], (), LoopOrder((0, 1, 2, 3), 2)),
        # what is said does not begin with what reductions keep, or is no order of the dimensions
        ((5, 9, 64), [(0, 2)], (1, 0, 2), LoopOrder((0, 2, 1), 2)),
        ((5, 9, 64), [(0, 2)], (0, 2), LoopOrder((0, 2, 1), 2)),
        ((5, 9, 64), [(0, 2)], (0, 2, 2), LoopOrder((0, 2, 1), 2)),
        ((5, 9, 64), [(0, 2)], (0, 2, 1, 3), LoopOrder((0, 2, 1), 2)),
        ((5, 9, 64), [(0, 2)], (0, 2, -2), LoopOrder((0, 2, 1), 2)),
        # no reduction, reductions that differ, that keep all or nothing
        ((5, 9, 64), [], (0, 2, 1), None),
        ((5, 9, 64), [(0, 2), (0,)], (0, 2, 1), None),
        ((5, 9, 64), [(0, 1, 2)], (0, 2, 1), None),
        ((5, 1, 64), [(0, 2)], (0, 2, 1), None),
        ((5, 9, 64), [()], (0, 2, 1), None),
        ((), [()], (), None),
    ],
)
def test_one_rule(
    extents: tuple[int, ...],
    kept: list[tuple[int, ...]],
    said: tuple[int, ...],
    found: LoopOrder | None,
) -> None:
    assert loop_order(extents, kept, said) == found


def test_the_text_goes_round() -> None:
    text = optimised()
    module = hlo.parse(text)
    assert str(module) == text
    assert decisions_of(module.entry.root).loop_order == (0, 2, 1)
    assert str(hlo.optimize(module)) == text


def test_what_is_decided_anew_is_what_fusion_decided() -> None:
    text = optimised()
    said, unsaid = (hlo.parse(t) for t in (text, text.replace(f", backend_config={SAID}", "")))
    assert "backend_config" not in str(unsaid)
    assert kernels(said) == kernels(unsaid) == kernels(hlo.optimize(hlo.parse(TEXT)))


@pytest.mark.parametrize(
    "config",
    [
        '""', '{"hlo":{}}', '{"hlo":{"loop_order":[]}}', '{"hlo":{"loop_order":[0,1,2]}}',
        '{"hlo":{"loop_order":[1,0,2]}}', '{"hlo":{"loop_order":[0,2]}}',
        '{"hlo":{"loop_order":[0,2,7]}}', '{"hlo":{"loop_order":[0,2,-2]}}',
        '{"hlo":{"loop_order":[2,2,2]}}', '{"hlo":{"loop_order":"as it is"}}',
        '{"hlo":{"loop_order":[0,99999999999999999999,1]}}', '{"hlo":[2,0,1]}',
        '{"hlo":{"loop_order":[2,0,1]}, not JSON}', '{"other":{"hlo":{"loop_order":[2,0,1]}}}',
        '{"hlo":{"block":[1]}}',
    ],
)  # fmt: skip
def test_an_order_that_is_absent_or_wrong_is_decided_anew(config: str) -> None:
    text = optimised()
    module = hlo.parse(text.replace(SAID, config))
    assert kernels(module) == kernels(hlo.parse(text))


def test_an_order_that_fits_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "m.hlo"
    for order, outermost in (("0,2,1", "for i in 5, parallel"), ("2,0,1", "for i in 64, parallel")):
        said = f'{{"hlo":{{"loop_order":[{order}]}}}}'
        file.write_text(optimised().replace(SAID, said))
        shown = call("hlo-opt", str(file), "--passes=", "--emit=loops", "--remarks").out
        assert outermost in shown
        assert f"# order: dimensions ({order.replace(',', ', ')}), as all reductions keep" in shown


def test_keys_of_others_stay() -> None:
    config = '{"hlo":{"loop_order":[2,0,1],"other":[1]},"outer_dimension_partitions":["2"]}'
    text = optimised().replace(SAID, config)
    again = hlo.optimize(hlo.parse(text))
    assert str(again) == text
    assert decisions_of(again.entry.root).loop_order == (2, 0, 1)


# Results of fewer dimensions beside those that are said to have another order.
ROWS = """HloModule m
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
fused {
  x = f32[3,5,4,18] parameter(0)
  y = f32[3,5] parameter(1)
  zero = f32[] constant(0)
  s = f32[KEPT] reduce(x, zero), dimensions={REDUCED}, to_apply=sum
  b = f32[3,5,4,18] broadcast(s), dimensions={DIMS}
  d = f32[3,5,4,18] subtract(x, b)
  m = f32[3,5] negate(y)
  ROOT r = (f32[3,5,4,18], f32[3,5]) tuple(d, m)
}
ENTRY e {
  x = f32[3,5,4,18] parameter(0)
  y = f32[3,5] parameter(1)
  ROOT r = (f32[3,5,4,18], f32[3,5]) fusion(x, y), kind=kLoop, calls=fused, backend_config=SAID
}"""


@pytest.mark.parametrize("kept", [(0,), (1,), (3,), (0, 2), (1, 3), (0, 1, 3)])
def test_any_order_computes_the_same(kept: tuple[int, ...]) -> None:
    rng, sizes = np.random.default_rng(0), (3, 5, 4, 18)
    values = [rng.normal(size=s).astype(np.float32) for s in (sizes, sizes[:2])]
    text = ROWS.replace("KEPT", ",".join(str(sizes[d]) for d in kept))
    text = text.replace("DIMS", ",".join(map(str, kept)))
    text = text.replace("REDUCED", ",".join(str(d) for d in range(4) if d not in kept))
    wanted = evaluate(hlo.parse(text.replace(", backend_config=SAID", "")), *values)
    for order in itertools.permutations(range(4)):
        said = f'{{"hlo":{{"loop_order":{list(order)}}}}}'
        module = hlo.parse(text.replace("SAID", said))
        for threads in (1, 3):
            made = for_threads(module, "", threads=threads)
            for a, b in zip(made.run_guarded(*values), wanted, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)
