"""batch normalisation without host calls: the values of the reference."""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.ir.module import Module
from hlo.tools.cases.inputs import made_up_inputs
from hlo.tools.comparison.check import compared

FORMS = {
    "training": ("(x, v, v)", "x, scale, offset"),
    "inference": ("x", "x, scale, offset, mean, variance"),
    "grad": ("(x, v, v)", "x, scale, mean, variance, dy"),
}


def _module(form: str, kind: str, dims: str, feature: int) -> Module:
    result, operands = FORMS[form]
    size = dims.split(",")[feature]
    types = {"x": f"{kind}[{dims}]", "dy": f"{kind}[{dims}]", "v": f"{kind}[{size}]"}
    lines = [
        f"  {name} = {types.get(name, f'{kind}[{size}]')} parameter({n})"
        for n, name in enumerate(operands.split(", "))
    ]
    shape = result.replace("x", types["x"]).replace("v", types["v"])
    call = f"batch-norm-{form}({operands}), epsilon=0.001, feature_index={feature}"
    return driver.parse("\n".join(["ENTRY e {", *lines, f"  ROOT r = {shape} {call}", "}"]))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("kind", "dims", "feature"),
    [
        ("f32", "5,7,6,19", 3), ("f32", "3,4,9,5", 1), ("f64", "6,5", 0),
        ("bf16", "8,6,12", 2), ("f16", "7", 0),
        ("f32", "4,0,3", 2),
    ],
)  # fmt: skip
def test_expanded_values(form: str, kind: str, dims: str, feature: int) -> None:
    module = _module(form, kind, dims, feature)
    opcodes = {i.opcode for c in driver.optimize(module).computations for i in c.instructions}
    assert not any(o.startswith("batch-norm") for o in opcodes)
    arguments = made_up_inputs(module, "uniform", 7)
    executable = driver.compile(module, cache=False)
    checked = compared(
        module, arguments, executable(*arguments), "interpreter", rerun=executable.__call__
    )
    assert checked.verdict != "different", checked.text  # means of nothing are NaNs on both sides


def test_results_keep_their_layouts() -> None:
    module = driver.parse("""HloModule m
ENTRY e { x = f32[2,3,4]{0,2,1} parameter(0)
  scale = f32[3] parameter(1)
  offset = f32[3] parameter(2)
  ROOT r = (f32[2,3,4]{0,2,1}, f32[3], f32[3]) batch-norm-training(x, scale, offset),
    epsilon=0.01, feature_index=1 }""")
    optimized = driver.optimize(module, "batchnorm_expander")
    assert str(optimized.entry.root.shape) == str(module.entry.root.shape)
    arguments = made_up_inputs(module, "normal", 2)
    for found, expected in zip(
        driver.evaluate(optimized, *arguments), driver.evaluate(module, *arguments), strict=True
    ):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
        assert found.strides == expected.strides
