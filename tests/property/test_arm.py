"""Code for 64-bit Arm gives the bits that this machine's gives, where QEMU runs it.

Vectors of 16 bytes, fused products and the same registers are all that sums and functions rest on:
an x86 described so is Arm's twin. Functions by tables of sixteen entries have the bits of machines
that look so many up.
"""

from __future__ import annotations

import random

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

from hlo import driver
from hlo.ir import dtype as dt
from hlo.ir.module import Module
from hlo.machine import NAMED, Machine
from hlo.parser.parse import parse
from hlo.runtime.native_calls import flattened
from hlo.tools.cases.inputs import made_up_inputs
from tests.property import test_bits_of_machines as drawn
from tests.support import emulated_arm

_SSE = NAMED["x86-64-v2"]
TWIN = replace(_SSE, name="twin", features=_SSE.features | {"avx", "f16c", "fma"}, registers=32)
LOOKS_UP = NAMED["x86-64-v4"]
ARM = [NAMED[name] for name in ("armv8-a", "neoverse-v1")]

pytestmark = [
    pytest.mark.skipif(
        not emulated_arm.IS_THERE, reason="qemu-aarch64 and aarch64-linux-gnu-gcc are not there"
    ),
    pytest.mark.skipif(
        not driver.host_machine().features.issuperset(TWIN.features),
        reason="code for the twin does not run here",
    ),
]

FLOATS = ("f64", "f32", "bf16", "f16")
FUNCTIONS = (
    "exponential", "exponential-minus-one", "log", "log-plus-one", "logistic", "sine", "cosine",
    "tan", "sqrt", "rsqrt", "cbrt", "floor", "ceil", "round-nearest-even", "round-nearest-afz",
    "sign", "negate", "abs", "tanh",
)  # fmt: skip
OF_TWO = ("add", "subtract", "multiply", "divide", "maximum", "minimum", "remainder", "power",
          "atan2")  # fmt: skip
TYPES = (*FLOATS, "f8e4m3fn", "f8e5m2", "s4", "s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64",
         "pred")  # fmt: skip
COUNT = 1003
SPECIAL = (0.0, 1.0, 2.0**-126, 2.0**-149, 2.0**-24, 2.0**-14, 65504.0, 65519.0, 65520.0, 1 + 2**-8,
           1 + 3 * 2**-8, 1 + 2**-11, 0.5, 1.5, 2.5, 127.5, 255.5, 2.0**31, 2.0**32, 2.0**63,
           2.0**64, 3.4e38, 1e300, float("inf"), float("nan"))  # fmt: skip


def program(parameters: dict[str, str], results: list[tuple[str, str]]) -> str:
    """All results of some arrays of COUNT elements, each as (type, op)."""
    lines = [f"  {n} = {t}[{COUNT}] parameter({k})" for k, (n, t) in enumerate(parameters.items())]
    lines += [f"  r{k} = {t}[{COUNT}] {op}" for k, (t, op) in enumerate(results)]
    shape = ", ".join(f"{t}[{COUNT}]" for t, _ in results)
    names = ", ".join(f"r{k}" for k in range(len(results)))
    root = f"  ROOT r = ({shape}) tuple({names})"
    return "\n".join(["HloModule m\nENTRY e {", *lines, root, "}"])


def numbers(dtype: str, seed: int) -> np.ndarray:
    """Of all magnitudes, and those where rounding, overflow and NaN decide."""
    rng = np.random.default_rng(seed)
    wide = np.array([sign * x for x in SPECIAL for sign in (1.0, -1.0)])
    sizes = 10.0 ** rng.uniform(-45, 40, 300) * rng.choice((-1.0, 1.0), 300)
    found = np.concatenate([sizes, rng.normal(size=COUNT) * rng.choice((1.0, 9.0, 300.0), COUNT)])
    rng.shuffle(found)
    found[rng.choice(COUNT, wide.size, replace=False)] = wide
    with np.errstate(all="ignore"):
        return found[:COUNT].astype(dt.dtype(dtype).numpy)


def check(
    module: Module, arguments: list[object], machine: Machine, twin: Machine, mode: str = "strict"
) -> None:
    made = driver.compile(module, cache=False, threads=1, machine=twin, mode=mode)
    wanted = [a for a in flattened(made(*arguments)) if a is not None]
    found = emulated_arm.run(module, arguments, machine, mode)
    assert found is not None
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        assert bits(a) == bits(b), f"result {number}"


def bits(array: np.ndarray) -> bytes:
    """Every NaN as one: which it is, processors choose."""
    if array.dtype.kind == "c":
        array = array.view(f"f{array.dtype.itemsize // 2}")
    if array.dtype.kind in "iub" or array.dtype == ml_dtypes.int4:
        return array.tobytes()
    with np.errstate(all="ignore"):
        return np.where(np.isnan(array), array.dtype.type(np.nan), array).tobytes()


@pytest.mark.parametrize("machine", ARM, ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions(dtype: str, machine: Machine) -> None:
    results = [(dtype, f"{f}(x)") for f in FUNCTIONS] + [(dtype, f"{f}(x, y)") for f in OF_TWO]
    module = parse(program({"x": dtype, "y": dtype}, results))
    check(module, [numbers(dtype, 1), numbers(dtype, 2)], machine, TWIN)


@pytest.mark.parametrize("machine", ARM, ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", FLOATS)
def test_functions_by_tables(dtype: str, machine: Machine) -> None:
    twin = TWIN if dtype == "f64" else LOOKS_UP
    if not driver.host_machine().features.issuperset(twin.features):
        pytest.skip("no instruction here takes sixteen entries")
    by_tables = parse(program({"x": dtype}, [(dtype, "erf(x)")]))
    check(by_tables, [numbers(dtype, 3)], machine, twin)


@pytest.mark.parametrize("machine", ARM, ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", TYPES)
def test_conversions(dtype: str, machine: Machine) -> None:
    module = parse(program({"x": dtype}, [(t, "convert(x)") for t in TYPES if t != dtype]))
    whole = dt.dtype(dtype).is_integral or dtype == "pred"
    arguments = list(made_up_inputs(module, "wild", 4)) if whole else [numbers(dtype, 5)]
    check(module, arguments, machine, TWIN)


@pytest.mark.parametrize("machine", ARM, ids=lambda m: m.name)
@pytest.mark.parametrize("kind", [drawn.vectors, drawn.norm, drawn.scan], ids=lambda k: k.__name__)
def test_folds_and_products(kind, machine: Machine) -> None:  # type: ignore[no-untyped-def]
    for seed in range(3):
        module = parse(kind(random.Random(f"arm {seed}")))
        check(module, list(made_up_inputs(module, "normal", seed)), machine, TWIN)


SORTS = """HloModule m
less { a = f32[] parameter(0)
  b = f32[] parameter(1)
  c = s32[] parameter(2)
  d = s32[] parameter(3)
  ROOT e = pred[] compare(a, b), direction=LT }
add { a = s32[] parameter(0)
  b = s32[] parameter(1)
  ROOT c = s32[] add(a, b) }
ENTRY e {
  x = f32[7,301] parameter(0)
  n = s32[7,301] iota(), iota_dimension=1
  s = (f32[7,301], s32[7,301]) sort(x, n), dimensions={1}, to_apply=less, is_stable=true
  y = u8[6001] parameter(1)
  z = u8[1200] slice(y), slice={[0:6000:5]}
  p = s32[90,37] parameter(2)
  zero = s32[] constant(0)
  w = s32[90,37] reduce-window(p, zero), to_apply=add, window={size=90x1 pad=89_0x0_0}
  ROOT r = ((f32[7,301], s32[7,301]), u8[1200], s32[90,37]) tuple(s, z, w)
}"""


@pytest.mark.parametrize("machine", ARM, ids=lambda m: m.name)
def test_orders_of_lanes(machine: Machine) -> None:
    module = parse(SORTS)
    check(module, list(made_up_inputs(module, "normal", 6)), machine, TWIN)


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_fast_programs(dtype: str) -> None:
    module = parse(program({"x": dtype}, [(dtype, f"{f}(x)") for f in ("exponential", "sqrt")]))
    check(module, list(made_up_inputs(module, "normal", 7)), NAMED["neoverse-v1"], TWIN, "fast")
