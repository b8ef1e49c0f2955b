"""Products of which one factor is computed where it is read: any types, and complex results of real
factors.
"""

from __future__ import annotations

import numpy as np
import pytest

from hlo import driver
from hlo.machine import NAMED, Machine
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.covering import covering
from tests.support.machines_here import that_run_here

MACHINES = [
    NAMED[n]
    for n in that_run_here("x86-64-v2", "x86-64-v3", "x86-64-v4", "sapphirerapids", "neoverse-v1")
]


def scaled(rows: int, depth: int, columns: int, contracted: int, result: str) -> str:
    """x times weights of a byte, each times its column's scale."""
    dims = (depth, columns) if contracted == 0 else (columns, depth)
    weights = ",".join(map(str, dims))
    return f"""HloModule scaled

ENTRY e {{
  x = f32[{rows},{depth}] parameter(0)
  w = s8[{weights}] parameter(1)
  s = f32[{columns}] parameter(2)
  wide = f32[{weights}] convert(w)
  scales = f32[{weights}] broadcast(s), dimensions={{{1 - contracted}}}
  scaled = f32[{weights}] multiply(wide, scales)
  ROOT r = {result}[{rows},{columns}] dot(x, scaled), lhs_contracting_dims={{1}},
    rhs_contracting_dims={{{contracted}}}
}}
"""


@pytest.mark.parametrize(("machine", "contracted", "rows"), covering(MACHINES, [0, 1], [1, 3, 40]))
def test_real_numbers_have_no_imaginary_part(machine: Machine, rows: int, contracted: int) -> None:
    for result in ("c64", "c128"):
        module = driver.parse(scaled(rows, 96, 131, contracted, result))
        x, w, s = (np.asarray(a) for a in made_up_inputs(module, "ints", 1))
        run = driver.compile(module, threads=1, cache=False, machine=machine)
        weights = (w if contracted == 0 else w.T).astype(np.float32) * s
        np.testing.assert_array_equal(run(x, w, s), x @ weights)


RAW = ("s8", "u8", "s4", "bf16", "f16", "f32", "s32", "pred", "c64")
WIDE = ("f32", "f32", "f64", "s32", "c64")
RESULTS = ("f32", "f64", "c64", "c128", "s32")
FORMS = ("scaled", "sliced", "gathered", "masked")


def computed(form: str, dtypes: tuple[str, str], dims: tuple[int, int]) -> list[str]:
    """Lines that end in the factor f, of parameters from 1 on."""
    (raw, wide), (rows, columns) = dtypes, dims
    shape = f"[{rows},{columns}]"
    match form:
        case "sliced":
            lines = [
                f"w = {raw}[7,{rows},{columns}] parameter(1)",
                "i = s32[] parameter(2)",
                "zero = s32[] constant(0)",
                f"cut = {raw}[1,{rows},{columns}] dynamic-slice(w, i, zero, zero), "
                f"dynamic_slice_sizes={{1,{rows},{columns}}}",
                f"r = {raw}{shape} reshape(cut)",
                f"f = {wide}{shape} convert(r)",
            ]
        case "gathered":
            lines = [
                f"w = {raw}[50,{columns}] parameter(1)",
                f"i = s32[{rows},1] parameter(2)",
                f"r = {raw}{shape} gather(w, i), offset_dims={{1}}, collapsed_slice_dims={{0}}, "
                f"start_index_map={{0}}, index_vector_dim=1, slice_sizes={{1,{columns}}}",
                f"f = {wide}{shape} convert(r)",
            ]
        case "masked":
            lines = [
                f"w = {raw}{shape} parameter(1)",
                f"r = {wide}{shape} convert(w)",
                f"i = s32{shape} iota(), iota_dimension=0",
                f"j = s32{shape} iota(), iota_dimension=1",
                f"is_kept = pred{shape} compare(i, j), direction=GE",
                f"twice = {wide}{shape} add(r, r)",
                f"f = {wide}{shape} select(is_kept, r, twice)",
            ]
        case _:
            lines = [
                f"w = {raw}{shape} parameter(1)",
                f"s = {wide}[{columns}] parameter(2)",
                f"r = {wide}{shape} convert(w)",
                f"scales = {wide}{shape} broadcast(s), dimensions={{1}}",
                f"f = {wide}{shape} multiply(r, scales)",
            ]
    return lines


@pytest.mark.parametrize("seed", range(20))
def test_computed_factors_of_any_type(seed: int) -> None:
    """Small whole numbers, whose sums are exact: the interpreter's values."""
    rng = np.random.default_rng(seed)
    m, n, k = (int(rng.choice(c)) for c in ((1, 2, 5, 8, 40), (1, 3, 17, 131), (1, 5, 40, 96)))
    raw, wide = str(rng.choice(RAW)), str(rng.choice(WIDE))
    result = str(rng.choice([r for r in RESULTS if wide != "c64" or r.startswith("c")]))
    is_left, is_deep_first = (bool(rng.random() < 0.5) for _ in range(2))
    free, other = (m, n) if is_left else (n, m)
    dims = (k, free) if is_deep_first else (free, k)
    lines = [f"x = {wide}[{other},{k}] parameter(0)"]
    lines += computed(str(rng.choice(FORMS)), (raw, wide), dims)
    at = 0 if is_deep_first else 1
    operands, left, right = ("f, x", at, 1) if is_left else ("x, f", 1, at)
    lines.append(
        f"ROOT product = {result}[{m},{n}] dot({operands}), lhs_contracting_dims={{{left}}}, "
        f"rhs_contracting_dims={{{right}}}"
    )
    module = driver.parse("HloModule m\n\nENTRY e {\n  " + "\n  ".join(lines) + "\n}\n")
    arguments = made_up_inputs(module, "ints", seed)
    wanted = np.asarray(driver.evaluate(module, *arguments))
    for machine in (None, *MACHINES[-3:]):
        run = driver.compile(module, threads=1, cache=False, machine=machine)
        np.testing.assert_array_equal(run(*arguments), wanted, err_msg=str(module))
