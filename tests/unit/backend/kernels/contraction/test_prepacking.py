"""Factors that are constants: packed when the program is compiled, to the bits of the kernels."""

from __future__ import annotations

from collections.abc import Iterable

import ml_dtypes
import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.ir.kernel import KernelSequence, KnownLeaves
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.prepacking import (
    PrepackedPanels,
    PrepackedTiles,
    PrepackedWords,
)
from hlo.ir.instruction import Instruction
from hlo.ir.literal import Literal
from hlo.ir.module import Module
from hlo.machine import NAMED
from tests.support.contraction_harness import Compiled, levels, target_of
from tests.support.covering import covering
from tests.support.emulated_tiles import Tiles, emulated
from tests.support.hlo_values import mixed_values

AMX = frozenset({"amx-tile", "amx-bf16", "amx-int8"})
WIDE = Target(replace(NAMED["x86-64-v4"], features=NAMED["x86-64-v4"].features | AMX))
TYPES = [
    ("f32", "f32"), ("bf16", "f32"), ("bf16", "bf16"), ("f16", "f32"), ("f64", "f64"),
    ("s8", "s32"), ("u8", "s32"), ("s16", "s32"), ("s64", "s64"), ("c64", "c64"), ("pred", "pred"),
    ("f8e4m3fn", "f32"),
]  # fmt: skip
SIZES = [(70, 50, 130), (300, 257, 130), (130, 300, 2500), (600, 70, 4100), (6, 1000, 100)]


def text(lhs: str, rhs: str, result: str, contracting: tuple[int, int]) -> str:
    left, right = contracting
    return f"""HloModule product
ENTRY main {{
  x = {lhs} parameter(0)
  w = {rhs} parameter(1)
  ROOT r = {result} dot(x, w), lhs_contracting_dims={{{left}}}, rhs_contracting_dims={{{right}}}
}}
"""


def product(sizes: tuple[int, int, int], types: tuple[str, str], form: str) -> Module:
    """A product of two parameters. form: "t" for a factor whose other dimension comes first."""
    m, n, k = sizes
    dtype, out = types
    lhs = f"{dtype}[{k},{m}]" if form[0] == "t" else f"{dtype}[{m},{k}]"
    rhs = f"{dtype}[{n},{k}]" if form[1] == "t" else f"{dtype}[{k},{n}]"
    contracting = (0 if form[0] == "t" else 1, 1 if form[1] == "t" else 0)
    return hlo.parse(text(lhs, rhs, f"{out}[{m},{n}]", contracting))


def with_constant(module: Module, number: int, value: np.ndarray) -> Module:
    """The module with a constant in a parameter's place; the parameter stays, unused."""
    made = module.clone()
    parameter = made.entry.parameters[number]
    literal = Literal.of(value, parameter.shape)
    constant = made.entry.new("constant", parameter.shape, (), {"literal": literal})
    made.entry.replace_uses(parameter, constant)
    return made


def drawn(instructions: Iterable[Instruction], rng: np.random.Generator) -> list[np.ndarray]:
    """Values for instructions of arrays."""
    return [np.resize(mixed_values(i.shape.dtype, 3000, rng), i.shape.dims) for i in instructions]


def kinds(sequence: KernelSequence) -> set[type]:
    return {type(step) for made in sequence.prepared for step in made.steps}


@pytest.mark.parametrize(
    ("level", "types", "form", "number"),
    covering(levels(), TYPES, ["nn", "nt", "tn", "tt"], range(len(SIZES))),
)
def test_bits_are_those_of_the_kernels(
    level: str, types: tuple[str, str], form: str, number: int
) -> None:
    m, n, k = SIZES[number if types[0] in ("f32", "bf16", "s8") else number % 2]
    root = product((m, n, k), types, form).entry.root
    factors = drawn(root.operands, np.random.default_rng(5))
    assert root.shape.dtype.numpy is not None
    want = np.empty((m, n), root.shape.dtype.numpy)
    Compiled(contraction_kernels(root, target_of(level)), level)(factors, want, 3)
    for side in range(2):
        known = KnownLeaves(frozenset({side}))
        sequence = contraction_kernels(root, target_of(level), known=known)
        found = Compiled(sequence, level)(factors, np.empty_like(want), 3)
        assert found.tobytes() == want.tobytes(), side


@pytest.mark.parametrize("level", levels())
@pytest.mark.parametrize("types", [("f32", "f32"), ("bf16", "f32"), ("s32", "s32")], ids="-".join)
def test_few_columns_are_copied_along_depth_before(level: str, types: tuple[str, str]) -> None:
    rng = np.random.default_rng(9)
    root = product((90, 3, 701), types, "nn").entry.root
    factors = [rng.integers(-9, 9, i.shape.dims).astype(i.shape.dtype.numpy) for i in root.operands]
    want = np.empty((90, 3), root.shape.dtype.numpy)
    Compiled(contraction_kernels(root, target_of(level)), level)(factors, want, 3)
    known = KnownLeaves(frozenset({1}))
    sequence = contraction_kernels(root, target_of(level), known=known)
    assert len(sequence.calls) == 1
    found = Compiled(sequence, level)(factors, np.empty_like(want), 3)
    assert found.tobytes() == want.tobytes()


@pytest.mark.parametrize("types", [("bf16", "f32"), ("s8", "s32")], ids="-".join)
@pytest.mark.parametrize("form", ["nn", "nt", "tn", "tt"])
def test_tiles_of_matrix_units(types: tuple[str, str], form: str) -> None:
    tiles = Tiles()
    rng = np.random.default_rng(6)
    for sizes in [(40, 70, 192), (33, 257, 512)]:
        root = product(sizes, types, form).entry.root
        factors = drawn(root.operands, rng)
        want = np.empty(sizes[:2], root.shape.dtype.numpy)
        Compiled(emulated(contraction_kernels(root, WIDE)))(factors, want)
        sequence = contraction_kernels(root, WIDE, known=KnownLeaves(frozenset({1})))
        assert kinds(sequence) == {PrepackedTiles}
        found = Compiled(emulated(sequence))(factors, np.empty_like(want))
        assert found.tobytes() == want.tobytes()
    assert tiles.events


def test_each_form_is_met() -> None:
    def prepared(types: tuple[str, str], form: str) -> set[type]:
        root = product((130, 300, 2500), types, form).entry.root
        known = KnownLeaves(frozenset({1}))
        return kinds(contraction_kernels(root, target_of("avx512"), known=known))

    if "avx512" in levels():
        assert prepared(("f32", "f32"), "nn") == {PrepackedPanels}
        assert prepared(("s8", "s32"), "nn") == {PrepackedPanels, PrepackedWords}


def test_the_constant_itself_is_gone_and_a_shared_one_is_one() -> None:
    rng = np.random.default_rng(7)
    weights = rng.standard_normal((300, 257)).astype(np.float32)
    module = with_constant(product((130, 257, 300), ("f32", "f32"), "nn"), 1, weights)
    made = Compilation(module, cache=False)
    (held,) = made.link_table.constants
    assert held.nbytes >= weights.nbytes
    assert "constant 0 packed" in str(made.buffers)
    assert len(made.program.kernels) == 1
    x = rng.standard_normal((130, 300)).astype(np.float32)
    given = hlo.compile(product((130, 257, 300), ("f32", "f32"), "nn"))(x, weights)
    assert made.executable(x, weights).tobytes() == given.tobytes()

    twice = hlo.parse("""HloModule twice
ENTRY main {
  x = f32[130,300] parameter(0)
  y = f32[130,300] parameter(1)
  w = f32[300,257] constant({...})
  a = f32[130,257] dot(x, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  b = f32[130,257] dot(y, w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  ROOT r = (f32[130,257], f32[130,257]) tuple(a, b)
}
""")
    for instruction in twice.entry.instructions:
        if instruction.opcode == "constant":
            instruction.attributes["literal"] = Literal.of(weights, instruction.shape)
    assert len(Compilation(twice, cache=False).link_table.constants) == 1


def test_weights_of_a_loop_are_packed_once() -> None:
    """Of as many rows as no blocks of rows part."""
    rng = np.random.default_rng(8)
    weights = (rng.standard_normal((256, 256)) / 20).astype(np.float32)
    loop = hlo.parse("""HloModule loop
body {
  s = (s32[], f32[41,256], f32[256,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  h = f32[41,256] get-tuple-element(s), index=1
  w = f32[256,256] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  p = f32[41,256] dot(h, w), lhs_contracting_dims={1}, rhs_contracting_dims={1}
  t = f32[41,256] tanh(p)
  ROOT r = (s32[], f32[41,256], f32[256,256]) tuple(j, t, w)
}
cond {
  s = (s32[], f32[41,256], f32[256,256]) parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(9)
  ROOT c = pred[] compare(i, n), direction=LT
}
ENTRY main {
  h = f32[41,256] parameter(0)
  w = f32[256,256] parameter(1)
  z = s32[] constant(0)
  s = (s32[], f32[41,256], f32[256,256]) tuple(z, h, w)
  l = (s32[], f32[41,256], f32[256,256]) while(s), condition=cond, body=body
  ROOT r = f32[41,256] get-tuple-element(l), index=1
}
""")
    h = rng.standard_normal((41, 256)).astype(np.float32)
    made = Compilation(with_constant(loop, 1, weights), cache=False)
    assert any(a.prepared for a in made.buffers.allocations)
    assert made.executable(h, weights).tobytes() == hlo.compile(loop)(h, weights).tobytes()


@pytest.mark.parametrize(("dtype", "out"), TYPES)
def test_columns_of_one_number_that_a_loop_keeps(dtype: str, out: str) -> None:
    """There is no depth along which they could lie."""
    state = f"(s32[], {dtype}[7,1], {dtype}[12,1], {out}[7,12])"
    module = hlo.parse(f"""HloModule m
cond {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  n = s32[] constant(3)
  ROOT r = pred[] compare(i, n), direction=LT
}}
body {{
  s = {state} parameter(0)
  i = s32[] get-tuple-element(s), index=0
  x = {dtype}[7,1] get-tuple-element(s), index=1
  w = {dtype}[12,1] get-tuple-element(s), index=2
  one = s32[] constant(1)
  j = s32[] add(i, one)
  k = {dtype}[] convert(j)
  b = {dtype}[7,1] broadcast(k), dimensions={{}}
  y = {dtype}[7,1] multiply(x, b)
  d = {out}[7,12] dot(y, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{1}}
  ROOT r = {state} tuple(j, x, w, d)
}}
ENTRY e {{
  x = {dtype}[7,1] parameter(0)
  w = {dtype}[12,1] parameter(1)
  i = s32[] constant(0)
  o = {out}[7,12] parameter(2)
  t = {state} tuple(i, x, w, o)
  l = {state} while(t), condition=cond, body=body
  ROOT r = {out}[7,12] get-tuple-element(l), index=3
}}
""")
    numbers = np.random.default_rng(0).integers(0, 2, 100)
    values = [
        np.resize(numbers, p.shape.dims).astype(p.shape.dtype.numpy)
        for p in module.entry.parameters
    ]
    assert np.array_equal(hlo.compile(module)(*values), hlo.evaluate(module, *values))


def test_a_convolutions_kernel_is_packed() -> None:
    rng = np.random.default_rng(9)
    shape = "f32[2,20,20,24]", "f32[3,3,24,40]", "f32[2,20,20,40]"
    module = hlo.parse(f"""HloModule convolution
ENTRY main {{
  x = {shape[0]} parameter(0)
  k = {shape[1]} parameter(1)
  ROOT r = {shape[2]} convolution(x, k), window={{size=3x3 pad=1_1x1_1}}, dim_labels=b01f_01io->b01f
}}
""")
    x, kernel = drawn(module.entry.parameters, rng)
    made = Compilation(with_constant(module, 1, kernel), cache=False)
    assert made.executable(x, kernel).tobytes() == hlo.compile(module)(x, kernel).tobytes()


@pytest.mark.parametrize("value", [1.0, 1e-39])
def test_subnormal_weights_are_looked_for_when_the_program_is_compiled(value: float) -> None:
    """A factor without them need not be looked at; with them the product is made by others."""
    module = product((64, 64, 512), ("bf16", "f32"), "nt")
    weights = np.full((64, 512), value).astype(ml_dtypes.bfloat16)
    x = np.full((64, 512), 1e30).astype(weights.dtype)
    made = Compilation(with_constant(module, 1, weights), cache=False)
    want = hlo.compile(module)(x, weights)
    assert made.executable(x, weights).tobytes() == want.tobytes()
    assert (want != 0).all()
