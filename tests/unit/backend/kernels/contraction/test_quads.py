"""Products on words of four 8-bit integers: exact modulo 2^32 whatever the signs of the factors."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.kernels.contraction.words.words import in_words
from hlo.ir import dtype as dt
from hlo.ir.module import Module
from hlo.machine import NAMED
from tests.support.contraction_harness import Compiled, target_of
from tests.support.covering import covering
from tests.support.machines_here import runs_here

NAME = "cascadelake"
LEVELS = [
    level for level in ("avxvnni", "host")
    if runs_here(target_of(level).machine)
]  # fmt: skip
SIGNS = [("s8", "s8"), ("u8", "u8"), ("u8", "s8"), ("s8", "u8"), ("s4", "s8"), ("u4", "u8"),
         ("u8", "s4"), ("s2", "s8"), ("u2", "u8"), ("s2", "u2")]  # fmt: skip
SIZES = [(64, 64, 64), (33, 61, 47), (7, 301, 90)]


def text(
    types: tuple[str, str, str], dims: tuple[int, int, int], lhs: int = 1, rhs: int = 0
) -> str:
    """A product of m x k and k x n. lhs, rhs: the dimension that is contracted."""
    (m, k, n), (left, right, out) = dims, types
    x, y = ([m, k] if lhs else [k, m]), ([n, k] if rhs else [k, n])
    return f"""HloModule m
    ENTRY e {{ x = {left}[{x[0]},{x[1]}] parameter(0)
      y = {right}[{y[0]},{y[1]}] parameter(1)
      ROOT r = {out}[{m},{n}] dot(x, y), lhs_contracting_dims={{{lhs}}},
        rhs_contracting_dims={{{rhs}}} }}"""


def numbers(module: Module, seed: int = 0) -> list[np.ndarray]:
    """Numbers of all sizes; rows and columns of the least, of the greatest, and of zeros."""
    rng = np.random.default_rng(seed)
    made = []
    for parameter in module.entry.parameters:
        low, high = parameter.shape.dtype.int_range
        array = rng.integers(low, high + 1, parameter.shape.dims)
        array[..., 0], array[..., 1], array[..., 2] = low, high, 0
        array[0], array[1] = low, high
        made.append(array.astype(parameter.shape.dtype.numpy))
    return made


def check(module: Module) -> None:
    values = numbers(module)
    result = hlo.compile(module, cache=False).run_guarded(*values)
    np.testing.assert_array_equal(result, hlo.evaluate(module, *values))


@pytest.mark.parametrize(
    ("level", "out", "signs"), covering(LEVELS, ["s32", "u32", "s8", "u16"], SIGNS)
)
def test_every_order_and_number_of_threads(signs: tuple[str, str], out: str, level: str) -> None:
    for number, dims in enumerate(SIZES):
        module = hlo.parse(text((*signs, out), dims, number % 2, number // 2))
        root, values = module.entry.root, numbers(module)
        exact = hlo.evaluate(module, *values)
        compiled = Compiled(contraction_kernels(root, target_of(level)), level)
        for threads in (1, 2, 3, 7):
            result = np.zeros(root.shape.dims, root.shape.dtype.numpy)
            compiled(values, result, threads)
            np.testing.assert_array_equal(result, exact)


@pytest.mark.parametrize(
    ("signs", "is_turned", "is_moved"),
    [
        (("s8", "s8"), False, True),
        (("u8", "u8"), True, True),
        (("u8", "s8"), False, False),
        (("s8", "u8"), True, False),
        (("u4", "u8"), True, False),
        (("u4", "u4"), False, False),
    ],
)
def test_which_factor_is_unsigned(
    signs: tuple[str, str], *, is_turned: bool, is_moved: bool
) -> None:
    root = hlo.parse(text((*signs, "s32"), (64, 64, 64))).entry.root
    ring = ring_of(root.shape.dtype, Target(NAMED[NAME]))
    made = in_words(normal(dot_contraction(root), ring.lanes), ring)
    assert made is not None
    assert made.ring.dot is not None
    assert made.ring.dot.is_turned is is_turned
    assert (made.lhs.is_moved, made.rhs.is_moved) == (is_moved, False)
    assert {made.lhs.element, made.rhs.element} == {dt.S8, dt.U8}


@pytest.mark.parametrize("types", [("s8", "s8", "s32"), ("u8", "u8", "u32"), ("u8", "s8", "s32")])
@pytest.mark.parametrize("orders", [(1, 0), (0, 1)])
def test_a_long_depth(types: tuple[str, str, str], orders: tuple[int, int]) -> None:
    check(hlo.parse(text(types, (20, 100_003, 40), *orders)))


@pytest.mark.parametrize(("level", "signs"), covering(LEVELS, SIGNS[:4]))
def test_few_columns_meet_rows_that_are_words(signs: tuple[str, str], level: str) -> None:
    """Columns that lie in rows are copied as they are, not as numbers of 32 bits."""
    target = target_of(level)
    for columns, rhs in [(3, 0), (5, 0), (8, 0), (4, 1)]:
        module = hlo.parse(text((*signs, "s32"), (300, 1024, columns), rhs=rhs))
        sequence = contraction_kernels(module.entry.root, target)
        assert any("vpdpbusd" in call.kernel.text for call in sequence.calls)
        values = numbers(module)
        found = Compiled(sequence, level)(values, np.empty((300, columns), np.int32), pieces=2)
        np.testing.assert_array_equal(found, hlo.evaluate(module, *values))


def test_sums_wrap_where_they_leave_32_bits() -> None:
    depth = 140_000  # of 128 * 128: more than 2^31
    module = hlo.parse(text(("s8", "s8", "s32"), (4, depth, 32)))
    values = [np.full(p.shape.dims, -128, np.int8) for p in module.entry.parameters]
    result = hlo.compile(module, cache=False)(*values)
    assert (np.asarray(result) == np.int64(depth * 128 * 128 - 2**32)).all()


@pytest.mark.parametrize("signs", ["s8", "u8"])
def test_batches_of_either_factor(signs: str) -> None:
    check(
        hlo.parse(f"""HloModule m
    ENTRY e {{ x = {signs}[3,5,40,67] parameter(0)
      y = {signs}[3,5,67,50] parameter(1)
      ROOT r = s32[3,5,40,50] dot(x, y), lhs_batch_dims={{0,1}}, rhs_batch_dims={{0,1}},
        lhs_contracting_dims={{3}}, rhs_contracting_dims={{2}} }}""")
    )
    check(
        hlo.parse(f"""HloModule m
    ENTRY e {{ x = {signs}[40,67] parameter(0)
      y = {signs}[5,67,3,50] parameter(1)
      ROOT r = s32[40,5,3,50] dot(x, y), lhs_contracting_dims={{1}},
        rhs_contracting_dims={{1}} }}""")
    )


def test_convolutions() -> None:
    check(
        hlo.parse("""HloModule m
    ENTRY e { x = s8[2,20,20,16] parameter(0)
      k = s8[3,3,16,40] parameter(1)
      ROOT r = s32[2,20,20,40] convolution(x, k), window={size=3x3 pad=1_1x1_1},
        dim_labels=b01f_01io->b01f }""")
    )


@pytest.mark.parametrize("signs", ["s8", "u8"])
@pytest.mark.parametrize("side", [0, 1])
def test_constants_are_made_ready_when_the_program_is_compiled(signs: str, side: int) -> None:
    low, _ = dt.S8.int_range if signs == "s8" else (0, 0)
    rows = ", ".join(
        "{" + ", ".join(str((7 * i * j + i) % 256 + low) for j in range(64)) + "}"
        for i in range(64)
    )
    operands = ["x, k", "k, x"][side]
    check(
        hlo.parse(f"""HloModule m
    ENTRY e {{ x = {signs}[64,64] parameter(0)
      k = {signs}[64,64] constant({{ {rows} }})
      ROOT r = s32[64,64] dot({operands}), lhs_contracting_dims={{1}},
        rhs_contracting_dims={{0}} }}""")
    )


def test_what_is_fused_sees_exact_sums() -> None:
    check(
        hlo.parse("""HloModule m
    ENTRY e { x = s8[70,61] parameter(0)
      y = s8[61,90] parameter(1)
      b = s32[90] parameter(2)
      d = s32[70,90] dot(x, y), lhs_contracting_dims={1}, rhs_contracting_dims={0}
      c = s32[70,90] broadcast(b), dimensions={1}
      ROOT r = s32[70,90] add(d, c) }""")
    )


@pytest.mark.skipif(shutil.which("objdump") is None, reason="objdump is not there")
@pytest.mark.parametrize("types", [("u8", "s8"), ("s8", "s8"), ("s16", "s16"), ("f32", "f32")])
def test_avx_vnni_alone_gets_its_own_encoding(types: tuple[str, str], tmp_path: Path) -> None:
    """An assembler that is not told takes AVX-512's, whose instructions begin with 62."""
    base = NAMED["x86-64-v3"]
    machine = replace(base, features=base.features | {"avxvnni"})
    result = "f32" if types[0] == "f32" else "s32"
    module = hlo.parse(f"""HloModule p
    ENTRY e {{ x = {types[0]}[128,256] parameter(0)
      y = {types[1]}[256,128] parameter(1)
      ROOT r = {result}[128,128] dot(x, y), lhs_contracting_dims={{1}},
        rhs_contracting_dims={{0}} }}""")
    file = tmp_path / "p.o"
    file.write_bytes(hlo.compile_ahead(module, machine).object)
    lines = subprocess.run(
        ["objdump", "-d", file], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    codes = [line.split("\t") for line in lines if line.count("\t") >= 2]
    assert len(codes) > 100
    assert [fields for fields in codes if fields[1].startswith("62 ")] == []
    if result == "s32":
        assert any("vpdp" in fields[2] for fields in codes)
