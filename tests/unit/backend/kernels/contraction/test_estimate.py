"""What work plans have: lanes, words and real parts count as their instructions do."""

from __future__ import annotations

import pytest

import hlo
from hlo.backend.ir.kernel import Work
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.contraction import contraction_kernels
from hlo.backend.kernels.contraction.packing.work import CHECKED, COPIED, JOINED, PIECES
from hlo.backend.kernels.contraction.products.work import FINISHED, TILE
from hlo.backend.kernels.contraction.vectors.plan import DEPTHS
from hlo.backend.kernels.contraction.vectors.work import LOADED, STORED
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import NAMED
from tests.unit.backend.kernels.contraction.test_contraction_dot import dot

TARGET = Target(NAMED["znver4"], mode="fast")
UNITS = Target(NAMED["sapphirerapids"], mode="fast")


def works(
    m: int,
    n: int,
    k: int,
    dtype: DType,
    out: DType,
    depth: int = 1,
    across: int = 0,
    target: Target = TARGET,
) -> list[Work]:
    """Of the kernels of a product; depth, across: lhs's and rhs's dimension that is contracted."""
    lhs = Shape.array(dtype, (m, k) if depth else (k, m))
    rhs = Shape.array(dtype, (n, k) if across else (k, n))
    dims = {"lhs_contracting_dims": (depth,), "rhs_contracting_dims": (across,)}
    instruction = dot(lhs, rhs, out, **dims)
    found = [call.kernel.work for call in contraction_kernels(instruction, target).calls]
    assert None not in found, "every kernel of a product says its work"
    return [work for work in found if work is not None]


@pytest.mark.parametrize(("dtype", "out", "times"), [
    (dt.F32, dt.F32, 1), (dt.F64, dt.F64, 2), (dt.C64, dt.C64, 4), (dt.C128, dt.C128, 8),
    (dt.BF16, dt.F32, 1 / 2), (dt.S8, dt.S32, 1 / 4), (dt.S32, dt.S32, 1.5), (dt.F16, dt.F16, 1),
])  # fmt: skip
def test_a_type_takes_the_instructions_of_its_lanes(dtype: DType, out: DType, times: float) -> None:
    least = 512**3 / 16 * times
    assert least <= works(512, 512, 512, dtype, out)[-1].instructions <= 1.1 * least


@pytest.mark.parametrize(("dtype", "out", "group"), [(dt.BF16, dt.F32, 2), (dt.S8, dt.S32, 4)])
def test_matrix_units_count_by_products_of_tiles(dtype: DType, out: DType, group: int) -> None:
    packing, product = works(512, 512, 512, dtype, out, target=UNITS)
    assert product.tiles == 512**3 / (16 * 16 * 16 * group)
    assert product.instructions == 0
    assert packing.is_stream
    assert packing.moved == 2 * 512**2 * 4 // group


def test_rows_for_matrix_units_are_packed_once_or_by_each_block_of_columns() -> None:
    """Of a long depth the rows of a block fill the cache, and the next one takes their place."""
    *_, short = works(512, 512, 512, dt.BF16, dt.F32, target=UNITS)
    assert (short.shared, short.copied) == (2 * 512**2, 0)
    *_, long = works(512, 512, 8192, dt.BF16, dt.F32, target=UNITS)
    assert long.shared == 0
    assert long.copied > 2 * 512 * 8192
    *_, across = works(512, 512, 512, dt.BF16, dt.F32, depth=0, target=UNITS)
    assert across.shared_packed > 2 * short.shared_packed


def test_lanes_that_are_not_there_count() -> None:
    whole, ragged = (works(256, n, 256, dt.F32, dt.F32)[-1] for n in (256, 257))
    assert ragged.instructions > 1.05 * whole.instructions * 257 / 256


def test_what_is_packed_again_by_each_block_of_columns_is_counted_again() -> None:
    (small,), (large,) = (
        works(512, 512, 512, dt.F32, dt.F32),
        works(2048, 512, 2048, dt.F32, dt.F32),
    )
    matrices = 4 * 512**2, 4 * 2048**2
    assert small.fetched >= 2 * matrices[0]
    assert large.fetched / matrices[1] > small.fetched / matrices[0]
    assert (small.copied, large.copied) == (0, 0)
    (turned,) = works(1024, 256, 1024, dt.F32, dt.F32, depth=0)
    assert turned.copied
    assert turned.fetched == 4 * 256 * 1024, "columns, a block ahead"


def test_what_lies_across_is_turned_by_shuffles() -> None:
    """A vector that is packed is loaded and stored; one of a square of 16 by 16 is shuffled four
    times besides."""
    (along,), (across,) = (works(16, 2048, 1024, dt.F32, dt.F32, depth=0, across=d) for d in (0, 1))
    vectors = 2048 * 1024 / 16
    assert along.packed + along.shared_packed < 3 * vectors
    assert 6 * vectors <= across.packed + across.shared_packed < 7 * vectors


def test_what_is_packed_once_for_all_blocks_of_columns_is_counted_once() -> None:
    packing, product = works(2048, 2048, 2048, dt.F32, dt.F32)
    assert packing.is_stream
    assert 3 * 4 * 2048**2 <= packing.moved < 1.05 * 3 * 4 * 2048**2, "written lines are read first"
    assert product.copied == product.packed == 0
    assert product.fetched == 4 * 2048**2, "columns, a block ahead"


def test_few_rows_are_a_stream_of_the_matrix() -> None:
    *_, work = works(1, 2048, 2048, dt.F32, dt.F32)
    assert work.is_stream or works(1, 2048, 2048, dt.F32, dt.F32)[0].is_stream
    first = works(2, 2048, 2048, dt.F32, dt.F32)[0]
    assert first.moved == 4 * 2048**2


def test_words_of_a_stream_meet_every_row() -> None:
    """A word's product of each row, and the way of its sum through the first cache."""
    *_, floats = works(16, 2048, 2048, dt.BF16, dt.F32)
    *_, integers = works(16, 2048, 2048, dt.U8, dt.S32)
    words = 2048 * 2048 / 16
    assert floats.instructions > words / 2 * (16 + STORED * 16 / DEPTHS)
    assert integers.instructions > words / 4 * (16 + STORED * 16 / DEPTHS)


SCALED = """
HloModule m
f {
  x = bf16[16,512] parameter(0)
  w = s8[512,256] parameter(1)
  s = bf16[256] parameter(2)
  wide = bf16[512,256] convert(w)
  spread = bf16[512,256] broadcast(s), dimensions={1}
  scaled = bf16[512,256] multiply(wide, spread)
  ROOT d = f32[16,256] dot(x, scaled), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
ENTRY e {
  x = bf16[16,512] parameter(0)
  w = s8[512,256] parameter(1)
  s = bf16[256] parameter(2)
  ROOT r = f32[16,256] fusion(x, w, s), kind=kOutput, calls=f
}
"""


def test_what_a_stream_computes_counts() -> None:
    """Two operations for each element of two in a word; its bytes are those of the codes."""
    (*_, scaled), (*_, plain) = (
        [call.kernel.work for call in contraction_kernels(root, TARGET).calls]
        for root in (hlo.parse(SCALED).entry.root, _plain())
    )
    assert scaled is not None
    assert plain is not None
    words = 512 * 256 / 2 / 16
    assert scaled.instructions - plain.instructions == 2 * 2 * words
    assert scaled.moved < 0.6 * plain.moved


def _plain() -> Instruction:
    dims = {"lhs_contracting_dims": (1,), "rhs_contracting_dims": (0,)}
    shapes = (Shape.array(dt.BF16, (16, 512)), Shape.array(dt.BF16, (512, 256)))
    return dot(*shapes, dt.F32, **dims)


def test_results_are_counted_apart_read_and_written() -> None:
    """So are columns that are asked for a block ahead, and rows that each of four blocks of columns
    asks for.
    """
    *_, work = works(512, 512, 512, dt.F32, dt.F32, depth=0)
    assert work.streamed == (2 + 1) * 4 * 512**2
    assert work.shared == 0
    *_, ahead = works(512, 512, 512, dt.F32, dt.F32)
    assert ahead.streamed == work.streamed + 4 * 4 * 512**2
    *_, tiles = works(512, 512, 512, dt.BF16, dt.F32, target=UNITS)
    assert tiles.streamed == 2 * 4 * 512**2
    assert tiles.moved == 0


def test_sums_that_are_finished_before_they_leave_take_longer() -> None:
    """Results of f16 are made of sums of f32, in as many vectors of these."""
    plain, narrow = (works(256, 256, 256, dt.F16, out)[-1] for out in (dt.F32, dt.F16))
    tiles = 43 * 4  # of six rows by four vectors
    assert plain.sums == tiles * (24 + TILE)
    assert narrow.sums == tiles * (24 * (1 + FINISHED) + TILE)


def test_words_are_joined_while_they_are_packed() -> None:
    """Of two halves each, which strict mode looks at; halves that become numbers only move."""
    strict = Target(NAMED["znver4"])
    wide, fast, checked = (
        works(32, 3072, 768, dtype, dt.F32, target=target)[-1 - again]
        for dtype, target, again in (
            (dt.F16, TARGET, 0),
            (dt.BF16, TARGET, 0),
            (dt.BF16, strict, 3),  # before a flag, a look at the results, the same on FMA
        )
    )
    words = 3072 * 768 / 2 / 16
    assert wide.packed == COPIED * 2 * words
    assert fast.packed == JOINED * 2 * words
    assert checked.packed == (JOINED * 2 + CHECKED) * words


def test_a_unit_reads_pieces_of_rows_more_slowly_than_whole_ones() -> None:
    """Each of 50 columns of 200, a piece of 100 bytes, at least two lines."""
    (few, *_) = works(24, 200, 20_000, dt.F16, dt.F32)
    assert few.copied == pytest.approx(PIECES * (128 + 62) / 128 * 2 * 200 * 20_000)
    (whole, *_) = works(2048, 16, 2048, dt.F32, dt.F32)
    assert whole.copied + whole.shared == 4 * 16 * 2048


def test_more_rows_than_a_processor_looks_over_wait_for_the_matrix() -> None:
    few, many = (works(m, 2048, 1024, dt.F32, dt.F32)[0] for m in (4, 12))
    assert few.is_stream
    assert not many.is_stream
    (far, *_) = works(12, 4096, 8192, dt.F32, dt.F32)
    assert far.is_stream, "hints ask for its rows"


def test_sums_that_wait_in_the_first_cache_are_stored_after_some_rows() -> None:
    one, four = (works(m, 2048, 1024, dt.F32, dt.F32)[0] for m in (1, 4))
    vectors = 1024 * 2048 / 16
    assert one.instructions == (1 + LOADED) * vectors
    assert four.instructions == (4 + LOADED) * vectors


def test_copies_are_handed_on_whole() -> None:
    """A factor that is turned or becomes words before the product: its bytes, and what it takes."""
    left, *_, product = works(512, 512, 512, dt.S8, dt.S32)
    assert left.handed == 512 * 512
    assert left.instructions == COPIED * 512 * 512 / 64, "its rows are words as they lie"
    assert not product.handed
    _, right, *_ = works(512, 512, 511, dt.BF16, dt.F32)  # an odd depth: both are copied
    assert right.handed == 512 * 512 * 2
    assert right.instructions == 2 * JOINED * 512 * 256 / 16, "its words have a part of two rows"
    columns, product = works(2048, 4, 1024, dt.F32, dt.F32)
    assert columns.handed >= 4 * 1024 * 4
    assert columns.instructions > 0
    assert not product.handed


def convolved(size: str, window: str, kernel: str, groups: int) -> Work:
    """Of a convolution that is direct, channels last."""
    module = hlo.parse(f"""HloModule m
ENTRY e {{
  x = f32[{size}] parameter(0)
  w = f32[{kernel}] parameter(1)
  ROOT y = convolution(x, w), window={{{window}}}, dim_labels=b01f_01io->b01f,
    feature_group_count={groups}
}}""")
    (call,) = contraction_kernels(module.entry.root, TARGET).calls
    assert call.kernel.work is not None
    return call.kernel.work


def test_taps_beside_the_base_and_in_holes_are_no_products() -> None:
    """Of 7 x 7 windows over 7 x 7 elements 37 of 49 along each dimension are inside; the sums of
    seven parts are added up.
    """
    sizes = {"size": "1,7,7,64", "kernel": "7,7,1,64", "groups": 64}
    beside = convolved(window="size=7x7 pad=3_3x3_3", **sizes)
    results = 49 * 64 / 16
    assert beside.instructions == pytest.approx(results * (1 + 7 / 2 + 37 / 7 * 37 / 7))
    holes = convolved("1,8,8,64", "size=4x4 pad=2_2x2_2 lhs_dilate=2x2", "4,4,1,64", 64)
    results = 16 * 16 * 64 / 16
    assert results * (1 + 3) < holes.instructions < results * (1 + 4)


def test_groups_of_several_inputs_are_permuted() -> None:
    alone = convolved("1,9,28,64", "size=1x3 pad=0_0x1_1", "1,3,1,64", 64)
    grouped = convolved("1,9,28,64", "size=1x3 pad=0_0x1_1", "1,3,4,64", 16)
    assert grouped.instructions > 4 * alone.instructions
