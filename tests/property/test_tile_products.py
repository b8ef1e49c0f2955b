"""Products on the tiles of AMX, on emulated tile registers: results, errors, blocks of depth."""

from __future__ import annotations

from collections.abc import Sequence

import llvmlite.binding as llvm  # noqa: TID251  # it stands for the linker
import numpy as np
import pytest
from ml_dtypes import bfloat16
from msgspec.structs import replace

from hlo import driver
from hlo.backend.entry.kernel_modules import kernel_module
from hlo.backend.ir.definitions import symbol
from hlo.backend.ir.kernel import NONE_KNOWN, KernelSequence, KnownLeaves
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.matrix_units import amx
from hlo.ir.dtype import DType
from hlo.machine import NAMED
from tests.property.test_sum_errors import Dot, allowed, units
from tests.support.contraction_harness import Compiled
from tests.support.covering import covering
from tests.support.emulated_tiles import Tiles, emulated
from tests.support.machines_here import runs_here

AMX = {"amx-tile", "amx-bf16", "amx-int8", "amx-fp16"}
WIDE = replace(NAMED["x86-64-v4"], features=NAMED["x86-64-v4"].features | AMX)
BLOCK = amx.BLOCK_STEPS * 32  # depths of bf16
SIZES = [
    (34, 33, 900), (20, 24, BLOCK), (34, 33, BLOCK + 1), (20, 24, 2 * BLOCK + 555), (330, 40, 900),
    (12, 330, 900),
    (40, 12, 900),
]  # fmt: skip


@pytest.fixture
def tiles() -> Tiles:
    if not runs_here(NAMED["x86-64-v4"]):
        pytest.skip("what moves numbers to and from tiles is of AVX-512")
    return Tiles()


def made(text: str) -> KernelSequence:
    return contraction_kernels(driver.parse(text).entry.root, Target(WIDE))


@pytest.mark.parametrize(("m", "n", "k"), SIZES)
@pytest.mark.parametrize(("kind", "form"), [("positive", "nn"), ("constant", "tn")])
def test_errors_stay_within_what_the_plan_says(
    tiles: Tiles, m: int, n: int, k: int, kind: str, form: str
) -> None:
    dot = Dot(m, n, k, form, "bf16", "f32")
    sequence = made(dot.text)
    assert sequence.sums is not None
    assert sequence.sums.plan == "matrix units"
    factors = dot.factors(kind)
    found = Compiled(emulated(sequence))(factors, np.empty((dot.m, dot.n), np.float32), pieces=2)
    assert units(dot, found, factors).max() <= allowed(sequence.sums, "bf16")
    assert tiles.events["tdpbf16ps"] == -(-m // 16) * -(-n // 16) * -(-k // 32)


@pytest.mark.parametrize("k", [10**3, 10**4, 10**5, 10**6, 10**6 + 1])
def test_chains_are_blocks(tiles: Tiles, k: int) -> None:
    sums = made(Dot(64, 64, k, "nn", "bf16", "f32").text).sums
    assert sums is not None
    assert sums.chain <= 18 + amx.BLOCK_STEPS + k // BLOCK + 2


@pytest.mark.parametrize("form", ["nn", "nt", "tn"])
def test_many_columns_are_packed_by_units_unless_they_are_kept(tiles: Tiles, form: str) -> None:
    """One kernel less; subnormal numbers among them are met there."""
    dot = Dot(12, 330, 192, form, "bf16", "f32")
    root = driver.parse(dot.text).entry.root
    own = made(dot.text)
    kept = contraction_kernels(root, Target(WIDE), known=KnownLeaves(kept=frozenset({1})))
    assert len(kept.calls) > len(own.calls)
    a, b = dot.factors("positive")
    b.reshape(-1)[-1] = 1e-39
    left, right = (f.astype(np.float64) for f in (a, b))
    want = (left if form[0] == "n" else left.T) @ (right if form[1] == "n" else right.T)
    for sequence in (own, kept):
        found = Compiled(emulated(sequence))([a, b], np.empty((12, 330), np.float32), pieces=2)
        np.testing.assert_allclose(found, want, rtol=1e-5)
        flags = [call.when for call in sequence.calls if call.when is not None]
        assert flags


def test_integers_are_exact_whatever_the_depth(tiles: Tiles) -> None:
    dot = Dot(20, 24, 20_000, "nn", "s8", "s32")
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-128, 128, s).astype(np.int8) for s in dot.shapes)
    found = Compiled(emulated(made(dot.text)))([a, b], np.empty((20, 24), np.int32))
    np.testing.assert_array_equal(found, a.astype(np.int32) @ b.astype(np.int32))
    assert "tdpbssd" in tiles.events


def test_infinities_and_nan_stay_in_their_rows(tiles: Tiles) -> None:
    dot = Dot(20, 24, 2 * BLOCK + 64, "nn", "bf16", "f32")
    a, b = dot.factors("positive")
    a[3, 5], a[4, BLOCK + 7], a[19, -1] = np.inf, -np.inf, np.nan
    found = Compiled(emulated(made(dot.text)))([a, b], np.empty((20, 24), np.float32))
    with np.errstate(invalid="ignore"):
        want = a.astype(np.float32) @ b.astype(np.float32)
    for test in (np.isposinf, np.isneginf, np.isnan):
        np.testing.assert_array_equal(test(found), test(want))


KINDS = [
    ("s4", "s4", "s32", "tdpbssd"), ("u4", "s4", "s32", "tdpbssd"), ("u8", "s4", "s32", "tdpbusd"),
    ("s8", "u8", "s32", "tdpbsud"), ("u8", "u8", "u32", "tdpbuud"), ("s2", "u8", "s32", "tdpbsud"),
    ("f8e4m3fn", "f8e4m3fn", "f32", "tdpbf16ps"), ("f8e5m2", "bf16", "f32", "tdpbf16ps"),
    ("f4e2m1fn", "f8e3m4", "bf16", "tdpbf16ps"), ("f16", "f16", "f32", "tdpfp16ps"),
    ("f16", "f16", "f16", "tdpfp16ps"),
]  # fmt: skip
ORDERS = ["nn", "nt", "tn", "tt"]


@pytest.mark.parametrize(("form", "kind"), covering(ORDERS, KINDS, strength=1))
def test_what_is_packed_meets_its_rows_and_columns(
    tiles: Tiles, kind: tuple[str, str, str, str], form: str
) -> None:
    """Numbers and sums that are exact in every type, so that an element in another's place shows;
    the least and the greatest among them. The second size ends within a tile, a step and a group.
    """
    *types, instruction = kind
    for m, n, k in [(48, 40, 192), (33, 35, 259)]:
        root = driver.parse(product_text((m, n, k), types, form)).entry.root
        factors = [numbers(o.shape.dtype, o.shape.dims) for o in root.operands]
        result = np.empty((m, n), root.shape.dtype.numpy)
        Compiled(emulated(contraction_kernels(root, Target(WIDE))))(factors, result, pieces=2)
        a, b = (f.astype(np.float64) for f in factors)
        want = (a if form[0] == "n" else a.T) @ (b if form[1] == "n" else b.T)
        np.testing.assert_array_equal(result, want.astype(root.shape.dtype.numpy))
        depths = 64 if instruction.startswith("tdpb") and instruction != "tdpbf16ps" else 32
        assert tiles.events.pop(instruction) == -(-m // 16) * -(-n // 16) * -(-k // depths)


def product_text(dims: tuple[int, int, int], types: Sequence[str], form: str) -> str:
    (m, n, k), (left, right, out) = dims, types
    x, y = ([m, k], [k, n])
    x, y = (x if form[0] == "n" else x[::-1]), (y if form[1] == "n" else y[::-1])
    return f"""HloModule m
    ENTRY e {{ x = {left}[{x[0]},{x[1]}] parameter(0)
      y = {right}[{y[0]},{y[1]}] parameter(1)
      ROOT r = {out}[{m},{n}] dot(x, y), lhs_contracting_dims={{{int(form[0] == "n")}}},
        rhs_contracting_dims={{{int(form[1] == "t")}}} }}"""


def numbers(dtype: DType, dims: tuple[int, ...]) -> np.ndarray:
    rng = np.random.default_rng(8)
    if dtype.is_integral:
        made = rng.integers(*dtype.int_range, dims, endpoint=True)
        made[0], made[1] = dtype.int_range
        return made.astype(dtype.numpy)
    return rng.choice(np.array([-1, -0.5, 0, 0.5, 1, 1.5]), dims).astype(dtype.numpy)


CONVOLVED = [
    ("bf16", "f32", "tdpbf16ps"), ("bf16", "bf16", "tdpbf16ps"), ("f16", "f32", "tdpfp16ps"),
    ("s8", "s32", "tdpbssd"), ("u8", "u32", "tdpbuud"),
]  # fmt: skip
WINDOWS = [
    "size=3x3 pad=1_1x1_1", "size=3x3 stride=2x2 pad=0_1x1_0",
    "size=3x3 pad=1_1x1_1 lhs_dilate=2x2", "size=3x3 pad=2_2x2_2 rhs_dilate=2x2",
]  # fmt: skip


@pytest.mark.parametrize(("window", "kind"), covering(WINDOWS, CONVOLVED, strength=1))
def test_convolutions_between_zeros(tiles: Tiles, kind: tuple[str, str, str], window: str) -> None:
    """Their copies between zeros hold what tiles multiply; numbers and sums are exact."""
    element, out, instruction = kind
    operands = f"{element}[2,9,11,64] parameter(0)", f"{element}[3,3,64,40] parameter(1)"
    module = driver.parse(f"""HloModule m
    ENTRY e {{ x = {operands[0]}
      y = {operands[1]}
      ROOT r = {out}[{shape_of(window)}] convolution(x, y), window={{{window}}},
        dim_labels=b01f_01io->b01f }}""")
    root = module.entry.root
    factors = [numbers(o.shape.dtype, o.shape.dims) for o in root.operands]
    result = np.empty(root.shape.dims, root.shape.dtype.numpy)
    Compiled(emulated(contraction_kernels(root, Target(WIDE))))(factors, result, pieces=2)
    np.testing.assert_array_equal(result, np.asarray(driver.evaluate(module, *factors)))
    assert tiles.events[instruction] > 0


CHANNELS = [(3, "bf16"), (24, "bf16"), (48, "bf16"), (20, "s8"), (48, "s8"), (80, "u8")]
REST_WINDOWS = [
    "size=7x7 pad=3_3x3_3", "size=7x7 stride=2x2 pad=2_3x2_3",
    "size=7x7 pad=6_6x6_6 rhs_dilate=2x2",
]  # fmt: skip


@pytest.mark.parametrize("order", ["01io", "o01i"])
@pytest.mark.parametrize(("channels", "window"), covering(CHANNELS, REST_WINDOWS, strength=1))
def test_runs_of_windows_that_are_no_whole_steps(
    tiles: Tiles, channels: tuple[int, str], window: str, order: str
) -> None:
    """A step begins anew with each run, and what is behind the last number is taken for zeros: the
    memory there holds other windows' numbers.
    """
    features, element = channels
    out = "f32" if element == "bf16" else f"{element[0]}32"
    sizes = {"0": 7, "1": 7, "i": features, "o": 40}
    kernel = ",".join(str(sizes[letter]) for letter in order)
    side = {"stride": 8, "rhs": 17}.get(next((k for k in ("stride", "rhs") if k in window), ""), 17)
    module = driver.parse(f"""HloModule m
    ENTRY e {{ x = {element}[2,17,17,{features}] parameter(0)
      y = {element}[{kernel}] parameter(1)
      ROOT r = {out}[2,{side},{side},40] convolution(x, y), window={{{window}}},
        dim_labels=b01f_{order}->b01f }}""")
    root = module.entry.root
    factors = [numbers(o.shape.dtype, o.shape.dims) for o in root.operands]
    result = np.empty(root.shape.dims, root.shape.dtype.numpy)
    Compiled(emulated(contraction_kernels(root, Target(WIDE))))(factors, result, pieces=2)
    np.testing.assert_array_equal(result, np.asarray(driver.evaluate(module, *factors)))
    # Runs of three numbers would be rests for the most part.
    assert bool(tiles.events) == (features > 3 or "rhs_dilate" not in window)


def test_rests_of_runs_in_blocks_of_depth(tiles: Tiles) -> None:
    """More steps than one block has, so that a block begins within a run."""
    module = driver.parse("""HloModule m
    ENTRY e { x = s8[2,6,6,1100] parameter(0)
      y = s8[3,3,1100,20] parameter(1)
      ROOT r = s32[2,4,4,20] convolution(x, y), window={size=3x3}, dim_labels=b01f_01io->b01f }""")
    root = module.entry.root
    factors = [numbers(o.shape.dtype, o.shape.dims) for o in root.operands]
    result = np.empty(root.shape.dims, np.int32)
    Compiled(emulated(contraction_kernels(root, Target(WIDE))))(factors, result, pieces=2)
    np.testing.assert_array_equal(result, np.asarray(driver.evaluate(module, *factors)))
    steps = 3 * -(-3 * 1100 // 64)
    assert steps > amx.BLOCK_STEPS
    assert tiles.events["tdpbssd"] == 4 * steps


PLANES = [
    "bf01_oi01->bf01", "bf01_01io->bf01", "bf01_oi01->b01f", "fb01_io01->bf01", "b0f1_i0o1->fb01",
]  # fmt: skip


@pytest.mark.parametrize(
    ("labels", "channels", "window"), covering(PLANES, CHANNELS, WINDOWS[:2], strength=1)
)
def test_features_that_lie_planes_apart(
    tiles: Tiles, labels: str, channels: tuple[int, str], window: str
) -> None:
    """Factors are turned before, squares of sums where the result's positions lie side by side."""
    features, element = channels
    features += 16 * (features < 4)  # runs of three elements are mostly rests
    out = "bf16" if element == "bf16" else f"{element[0]}32"
    lhs, rest = labels.split("_")
    rhs, result = rest.split("->")
    side = {"0": 4, "1": 5} if "stride" in window else {"0": 9, "1": 11}
    texts = [
        ",".join(str(sizes[letter]) for letter in order)
        for order, sizes in (
            (lhs, {"b": 3, "f": features, "0": 9, "1": 11}),
            (rhs, {"i": features, "o": 40, "0": 3, "1": 3}),
            (result, {"b": 3, "f": 40, **side}),
        )
    ]
    module = driver.parse(f"""HloModule m
    ENTRY e {{ x = {element}[{texts[0]}] parameter(0)
      y = {element}[{texts[1]}] parameter(1)
      ROOT r = {out}[{texts[2]}] convolution(x, y), window={{{window}}}, dim_labels={labels} }}""")
    root = module.entry.root
    factors = [numbers(o.shape.dtype, o.shape.dims) for o in root.operands]
    want = np.asarray(driver.evaluate(module, *factors))
    for known in (NONE_KNOWN, KnownLeaves(frozenset({1})), KnownLeaves(kept=frozenset({1}))):
        result = np.empty(root.shape.dims, root.shape.dtype.numpy)
        sequence = contraction_kernels(root, Target(WIDE), known=known)
        Compiled(emulated(sequence))(factors, result, pieces=2)
        np.testing.assert_array_equal(result, want)
    assert tiles.events


def test_weights_that_are_subnormal_are_turned_where_they_are_looked_for() -> None:
    """What is made of a constant beforehand is looked at no more."""
    text = """HloModule m
    ENTRY e { x = bf16[2,32,9,9] parameter(0)
      y = bf16[40,32,3,3] parameter(1)
      ROOT r = f32[2,40,7,7] convolution(x, y), window={size=3x3}, dim_labels=bf01_oi01->bf01 }"""
    root = driver.parse(text).entry.root
    ordinary = KnownLeaves(frozenset({1}))
    prepared = contraction_kernels(root, Target(WIDE), known=ordinary).prepared
    assert [type(step).__name__ for step in prepared[-1].steps] == [
        "PrepackedOrder",
        "PrepackedTiles",
    ]
    known = KnownLeaves(frozenset({1}), frozenset({1}))
    assert not contraction_kernels(root, Target(WIDE), known=known).prepared


def shape_of(window: str) -> str:
    """The result's dimensions."""
    rows, columns = (4, 5) if "stride" in window else (17, 21) if "lhs" in window else (9, 11)
    return f"2,{rows},{columns},40"


def test_halves_that_are_subnormal_count(tiles: Tiles) -> None:
    """TDPFP16PS takes them as they are: nobody looks for any, and none is left out."""
    root = driver.parse(product_text((33, 34, 512), ("f16", "f16", "f32"), "nn")).entry.root
    factors = [np.full(o.shape.dims, 2.0**-24, np.float16) for o in root.operands]
    sequence = contraction_kernels(root, Target(WIDE))
    assert all(call.when is None for call in sequence.calls)
    found = Compiled(emulated(sequence))(factors, np.empty((33, 34), np.float32))
    assert (found == 512 * 2.0**-48).all()
    assert "tdpfp16ps" in tiles.events


@pytest.mark.parametrize("types", [
    ("f8e8m0fnu", "f8e4m3fn", "f32"), ("f16", "bf16", "f32"), ("s16", "s8", "s32"),
    ("s4", "s4", "f32"), ("f16", "f8e5m2", "f32"),
])  # fmt: skip
def test_other_elements_have_no_tiles(types: tuple[str, str, str]) -> None:
    calls = made(product_text((64, 64, 64), types, "nn")).calls
    assert not any("llvm.x86.tile" in call.kernel.text for call in calls)


def test_without_the_feature_halves_have_none() -> None:
    """A Sapphire Rapids multiplies f16 in f32, a Granite Rapids in tiles; in the assembly."""
    module = driver.parse(product_text((64, 64, 64), ("f16", "f16", "f32"), "nn"))
    for name, wanted in (("sapphirerapids", False), ("graniterapids", True)):
        code = driver.emit_stage(module, "asm", machine=NAMED[name])
        assert ("tdpfp16ps" in code) == wanted
        assert "ph\t" not in code.replace("vcvtps2ph\t", "").replace("vcvtph2ps", "")


@pytest.mark.usefixtures("tiles")
@pytest.mark.parametrize("k", [BLOCK, 3 * BLOCK])
def test_machine_code_can_be_made_of_it(k: int) -> None:
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    triple = llvm.Target.from_default_triple()
    machine = triple.create_target_machine(cpu="sapphirerapids", opt=2)
    calls = made(Dot(64, 64, k, "nn", "bf16", "f32").text).calls
    kernel = max((c.kernel for c in calls if c.when is None), key=lambda kernel: kernel.length)
    beside = {symbol(f): f for f in kernel.functions}
    module = llvm.parse_assembly(kernel_module({"kernel": kernel, **beside}).text)
    assembly = machine.emit_assembly(module)
    assert "tdpbf16ps" in assembly
    assert "tilestored" in assembly


SLICED = """HloModule m
f {
  u = bf16[2,34,900] parameter(0)
  w = bf16[3,900,33] parameter(1)
  i = s32[] parameter(2)
  j = u8[] parameter(3)
  zero = s32[] constant(0)
  none = u8[] constant(0)
  rows = bf16[1,34,900] dynamic-slice(u, j, none, none), dynamic_slice_sizes={1,34,900}
  own = bf16[1,900,33] dynamic-slice(w, i, zero, zero), dynamic_slice_sizes={1,900,33}
  x = bf16[34,900] reshape(rows)
  y = bf16[900,33] reshape(own)
  ROOT r = f32[34,33] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY e {
  u = bf16[2,34,900] parameter(0)
  w = bf16[3,900,33] parameter(1)
  i = s32[] parameter(2)
  j = u8[] parameter(3)
  ROOT r = f32[34,33] fusion(u, w, i, j), kind=kOutput, calls=f
}
"""


@pytest.mark.parametrize(("m", "n"), [(34, 33), (12, 330)])
@pytest.mark.parametrize(("i", "layer"), [(1, 1), (-3, 0), (9, 2)])
def test_factors_begin_where_the_run_says(tiles: Tiles, i: int, layer: int, m: int, n: int) -> None:
    """Columns that are many more than rows are read by the product itself."""
    rng = np.random.default_rng(i + 3)
    sizes = (2, m, 900), (3, 900, n)
    u, w = (rng.integers(-8, 9, size).astype(bfloat16) for size in sizes)
    starts: list[np.ndarray] = [np.array(i, np.int32), np.array(1, np.uint8)]
    text = SLICED.replace("34", str(m)).replace("33", str(n))
    found = Compiled(emulated(made(text)))([u, w, *starts], np.empty((m, n), np.float32))
    np.testing.assert_array_equal(found, u[1].astype(np.float32) @ w[layer].astype(np.float32))
    assert "tdpbf16ps" in tiles.events
