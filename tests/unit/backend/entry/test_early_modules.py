"""Early modules: which kernels' code is begun while others are planned, and that it is the same."""

from __future__ import annotations

import threading
from collections import Counter

import numpy as np
import pytest

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.linking import early_objects
from hlo.backend.linking.early_objects import EarlyObjects
from hlo.errors import HloError
from hlo.tools.cases.inputs import made_up_inputs

FUNCTIONS = ("exponential", "sine", "tanh", "log-plus-one", "logistic", "cosine", "sqrt", "cbrt")


def program(count: int) -> str:
    """Sums of functions, each of another length, so that they are as many kernels."""
    rows, sums = [], []
    for n in range(count):
        size, function = 5000 + 16 * n, FUNCTIONS[n % len(FUNCTIONS)]
        rows += [
            f"x{n} = f32[{size},3] parameter({n})",
            f"y{n} = f32[{size},3] {function}(x{n})",
            f"t{n} = f32[{size}] reduce(y{n}, zero), dimensions={{1}}, to_apply=add",
        ]
        sums.append(f"t{n}")
    shapes = ", ".join(f"f32[{5000 + 16 * n}]" for n in range(count))
    body = "\n  ".join(rows)
    return f"""HloModule many
add {{ a = f32[] parameter(0) b = f32[] parameter(1) ROOT c = f32[] add(a, b) }}
ENTRY e {{
  zero = f32[] constant(0)
  {body}
  ROOT r = ({shapes}) tuple({", ".join(sums)})
}}"""


def compilation(count: int, **given: object) -> Compilation:
    return Compilation(hlo.parse(program(count)), cache=False, **given)  # type: ignore[arg-type]  # keywords


def alive() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name == "hlo-code"]


def results(made: Compilation) -> list[bytes]:
    values = made_up_inputs(made.module, "normal", 0)
    return [np.asarray(r).tobytes() for r in made.executable(*values)]  # type: ignore[union-attr]  # a tuple


def test_kernels_of_long_programs_are_begun_and_each_symbol_is_there_once() -> None:
    made = compilation(24)
    begun = made.early.begun if made.program else None
    assert begun is not None
    assert begun.modules
    assert made.ir[: len(begun.modules)] == begun.modules
    symbols = Counter(symbol for module in made.ir for symbol in module.symbols)
    assert set(symbols.values()) == {1}


def test_short_programs_begin_nothing() -> None:
    made = compilation(2)
    assert made.program
    assert not made.early.begun.modules


def test_code_that_is_begun_gives_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[IrModule] = []
    begin = EarlyObjects.begin

    def hear(self: EarlyObjects, module: IrModule) -> None:
        heard.append(module)
        begin(self, module)

    monkeypatch.setattr(EarlyObjects, "begin", hear)
    monkeypatch.setattr(early_objects, "processors", lambda: 3)
    beside = compilation(24)
    found = results(beside)
    assert heard
    assert not alive()
    monkeypatch.setattr(early_objects, "processors", lambda: 1)
    alone = compilation(24)
    assert results(alone) == found
    assert list(alone.objects) == list(beside.objects)
    assert alone.ir == beside.ir


def test_a_plan_that_fails_leaves_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise HloError("memory", "too much")

    monkeypatch.setattr(early_objects, "processors", lambda: 2)
    monkeypatch.setattr("hlo.backend.compilation.check_fits", refuse)
    with pytest.raises(HloError, match="too much"):
        _ = compilation(24).executable
    assert not alive()


def loop(count: int) -> str:
    """Three trips of functions of as many arrays."""
    sizes = [5000 + 16 * n for n in range(count)]
    state = ", ".join(["s32[]", *(f"f32[{size}]" for size in sizes)])
    rows = []
    for n, size in enumerate(sizes):
        function = FUNCTIONS[n % len(FUNCTIONS)]
        rows.append(f"x{n} = f32[{size}] get-tuple-element(c), index={n + 1}")
        rows.append(f"y{n} = f32[{size}] {function}(x{n})")
    made, body = ", ".join(f"y{n}" for n in range(count)), "\n  ".join(rows)
    given = "\n  ".join(f"x{n} = f32[{size}] parameter({n})" for n, size in enumerate(sizes))
    return f"""HloModule repeated
cond {{ c = ({state}) parameter(0) i = s32[] get-tuple-element(c), index=0
  n = s32[] constant(3) ROOT l = pred[] compare(i, n), direction=LT }}
body {{ c = ({state}) parameter(0) i = s32[] get-tuple-element(c), index=0
  one = s32[] constant(1) j = s32[] add(i, one)
  {body}
  ROOT r = ({state}) tuple(j, {made}) }}
ENTRY e {{ z = s32[] constant(0)
  {given}
  t = ({state}) tuple(z, {", ".join(f"x{n}" for n in range(count))})
  ROOT w = ({state}) while(t), condition=cond, body=body }}"""


def test_what_a_loop_repeats_is_not_begun() -> None:
    made = Compilation(hlo.parse(loop(24)), passes="", cache=False)
    assert len(made.program.kernels) >= 24
    assert not made.early.begun.modules
