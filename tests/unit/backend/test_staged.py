"""Staged kernels: one op or fusion each, against the reference interpreter, at awkward sizes."""

from __future__ import annotations

import numpy as np
import pytest

from hlo.backend.compilation import Compilation
from hlo.backend.kernels.fused_loops import fused_kernel
from hlo.backend.kernels.scan import scan_kernel
from hlo.errors import HloError
from hlo.interpreter.evaluate import evaluate
from hlo.parser.parse import parse
from tests.support.covering import covering
from tests.support.kernel_check import check
from tests.support.kernel_runner import TARGET, assembly

REDUCERS = """
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
max { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] maximum(a, b) }
odd { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] subtract(b, a) }
first { a = f32[] parameter(0)
  i = s32[] parameter(1)
  b = f32[] parameter(2)
  j = s32[] parameter(3)
  ge = pred[] compare(a, b), direction=GE
  v = f32[] select(ge, a, b)
  k = s32[] select(ge, i, j)
  ROOT t = (f32[], s32[]) tuple(v, k) }
"""


def root_of(body: str):  # type: ignore[no-untyped-def]  # an Instruction
    return parse(f"HloModule m\n{REDUCERS}\nENTRY e {{\n{body}\n}}").entry.root


def text(dims: tuple[int, ...]) -> str:
    return ",".join(map(str, dims))


@pytest.mark.parametrize(
    ("n", "kind"),
    covering(
        [0, 1, 2, 7, 16, 17, 33, 257, 9001],
        ["f32", "s32", "f64", "bf16", "u8", "c64", "f8e4m3fn", "s4"],
        strength=1,
    ),
)
def test_add_of_every_length(n: int, kind: str) -> None:
    root = root_of(f"p = {kind}[{n}] parameter(0)\nROOT r = {kind}[{n}] add(p, p)")
    assert check(root) == ""


@pytest.mark.parametrize("dims", [(1, 1), (3, 5), (16, 16), (17, 33), (64, 48), (2, 100), (1, 40)])
@pytest.mark.parametrize("kind", ["f32", "bf16", "u8", "f64", "c64", "pred"])
def test_transpose_of_every_size(dims: tuple[int, int], kind: str) -> None:
    a, b = dims
    root = root_of(
        f"p = {kind}[{a},{b}] parameter(0)\n"
        f"ROOT r = {kind}[{b},{a}] transpose(p), dimensions={{1,0}}"
    )
    assert check(root) == ""


@pytest.mark.parametrize(
    ("dims", "reduced"),
    [
        ((5, 7), (1,)), ((5, 70), (1,)), ((5, 7), (0,)), ((300, 37), (0,)), ((33, 1000), (1,)),
        ((1000,), (0,)), ((3, 4, 50), (0, 2)), ((3, 40, 50), (1,)), ((0, 4), (0,)), ((4, 0), (1,)),
        ((2, 3), (0, 1)), ((700, 130), (0,)), ((40, 50), (0, 1)), ((6, 3), (1,)), ((1, 1), (0,)),
    ],
)  # fmt: skip
@pytest.mark.parametrize("reducer", ["sum", "max", "odd"])
def test_reduce(dims: tuple[int, ...], reduced: tuple[int, ...], reducer: str) -> None:
    kept = tuple(n for d, n in enumerate(dims) if d not in reduced)
    root = root_of(
        f"x = f32[{text(dims)}] parameter(0)\nz = f32[] parameter(1)\n"
        f"ROOT r = f32[{text(kept)}] reduce(x, z), dimensions={{{text(reduced)}}}, "
        f"to_apply={reducer}"
    )
    assert check(root) == ""


@pytest.mark.parametrize("dims", [(7, 33), (40, 100), (3, 5)])
@pytest.mark.parametrize("d", [0, 1])
def test_argmax_without_tie_break_keeps_the_first(dims: tuple[int, int], d: int) -> None:
    n = dims[1 - d]
    root = root_of(
        f"x = f32[{text(dims)}] parameter(0)\ni = s32[{text(dims)}] parameter(1)\n"
        "z = f32[] parameter(2)\ny = s32[] parameter(3)\n"
        f"ROOT r = (f32[{n}], s32[{n}]) reduce(x, i, z, y), dimensions={{{d}}}, to_apply=first"
    )
    assert check(root) == ""


@pytest.mark.parametrize(
    "body",
    [
        "x = s32[5,3] parameter(0)\ny = s32[5,4] parameter(1)\n"
        "ROOT r = s32[5,10] concatenate(x, y, x), dimensions={1}",
        "x = f32[4,6] parameter(0)\nv = f32[] parameter(1)\n"
        "ROOT r = f32[7,12] pad(x, v), padding=1_2x-1_2_1",
        "x = f32[40] parameter(0)\nv = f32[] parameter(1)\n"
        "ROOT r = f32[100] pad(x, v), padding=50_10",
        "x = f32[8,9] parameter(0)\nROOT r = f32[8,9] reverse(x), dimensions={1}",
        "x = f32[30,9] parameter(0)\nROOT r = f32[10,3] slice(x), slice={[0:30:3], [2:8:2]}",
        "x = f32[3,5] parameter(0)\nROOT r = f32[5,3,4] broadcast(x), dimensions={1,0}",
        "x = f32[20,6] parameter(0)\ni = s32[] parameter(1)\nj = s32[] parameter(2)\n"
        "ROOT r = f32[3,5] dynamic-slice(x, i, j), dynamic_slice_sizes={3,5}",
        "x = f32[20,40] parameter(0)\nu = f32[2,33] parameter(1)\ni = s32[] parameter(2)\n"
        "j = s32[] parameter(3)\nROOT r = f32[20,40] dynamic-update-slice(x, u, i, j)",
        "x = f32[9,40] parameter(0)\ni = s32[7,1] parameter(1)\nROOT r = f32[7,40] gather(x, i),"
        " offset_dims={1}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,"
        " slice_sizes={1,40}",
        "x = f32[90] parameter(0)\ni = s32[37,1] parameter(1)\nROOT r = f32[37] gather(x, i),"
        " offset_dims={}, collapsed_slice_dims={0}, start_index_map={0}, index_vector_dim=1,"
        " slice_sizes={1}",
        "ROOT r = bf16[3,300] iota(), iota_dimension=1",
        "x = f32[5] parameter(0)\nROOT r = u8[5,4] bitcast-convert(x)",
        "x = u8[5,8] parameter(0)\nROOT r = f64[5] bitcast-convert(x)",
        "x = f32[20,30] parameter(0)\nz = f32[] parameter(1)\n"
        "ROOT r = f32[20,30] reduce-window(x, z),"
        " window={size=3x3 pad=1_1x1_1}, to_apply=sum",
        "x = f32[20] parameter(0)\nz = f32[] parameter(1)\nROOT r = f32[10] reduce-window(x, z),"
        " window={size=50 stride=2 pad=49_0 lhs_dilate=1}, to_apply=sum",
    ],
)
def test_movement(body: str) -> None:
    assert check(root_of(body)) == ""


SOFTMAX = """
fused {{
  x = {t}[{r},{c}] parameter(0)
  n = {t}[] constant(-inf)
  z = {t}[] constant(0)
  m = {t}[{r}] reduce(x, n), dimensions={{1}}, to_apply=max
  mb = {t}[{r},{c}] broadcast(m), dimensions={{0}}
  d = {t}[{r},{c}] subtract(x, mb)
  e = {t}[{r},{c}] exponential(d)
  s = {t}[{r}] reduce(e, z), dimensions={{1}}, to_apply=sum
  sb = {t}[{r},{c}] broadcast(s), dimensions={{0}}
  q = {t}[{r},{c}] divide(e, sb)
  ROOT t = ({t}[{r},{c}], {t}[{r}]) tuple(q, s)
}}
ENTRY e {{
  x = {t}[{r},{c}] parameter(0)
  ROOT r = ({t}[{r},{c}], {t}[{r}]) fusion(x), kind=kInput, calls=fused
}}
"""


def softmax(rows: int, columns: int):  # type: ignore[no-untyped-def]  # an Instruction
    body = SOFTMAX.format(t="f32", r=rows, c=columns)
    return parse(f"HloModule m\n{REDUCERS}\n{body}").entry.root


@pytest.mark.parametrize(("rows", "columns"), [(1, 1), (3, 5), (9, 16), (4, 1000), (70, 33)])
def test_softmax_is_one_kernel_of_stages(rows: int, columns: int) -> None:
    assert check(softmax(rows, columns)) == ""


def test_inner_loops_have_no_division_and_no_gather() -> None:
    kernel = fused_kernel(
        root_of(
            "x = f32[512,512] parameter(0)\nROOT r = f32[512,512] transpose(x), dimensions={1,0}"
        ),
        TARGET,
    )
    code = assembly(kernel)
    assert "gather" not in code
    assert "div" not in code


def test_a_bitcast_of_another_layout_is_a_transpose() -> None:
    root = root_of("x = f32[4,6]{1,0} parameter(0)\nROOT r = f32[6,4]{0,1} bitcast(x)")
    assert check(root) == ""


def test_a_bitcast_that_regroups_bytes_is_declined() -> None:
    root = root_of("x = f32[4]{0} parameter(0)\nROOT r = u8[16]{0} bitcast(x)")
    with pytest.raises(HloError, match="bitcast"):
        fused_kernel(root, TARGET)


def test_a_window_is_written_in_place() -> None:
    kernel = fused_kernel(
        root_of(
            "x = f32[20,40] parameter(0)\nu = f32[1,40] parameter(1)\ni = s32[] parameter(2)\n"
            "j = s32[] parameter(3)\nROOT r = f32[20,40] dynamic-update-slice(x, u, i, j)"
        ),
        TARGET,
    )
    assert kernel.must_alias == {(0, 0)}


def test_a_transpose_is_never_in_place() -> None:
    kernel = fused_kernel(
        root_of("x = f32[32,32] parameter(0)\nROOT r = f32[32,32] transpose(x), dimensions={1,0}"),
        TARGET,
    )
    assert not kernel.in_place


@pytest.mark.parametrize(
    ("kind", "dims", "algorithm", "words"),
    covering(
        ["u32", "u64", "u8", "f32", "s16", "u4"],
        [(), (5,), (2, 3), (3, 5), (7, 40)],
        [("rng_three_fry", 2), ("rng_philox", 3), ("rng_default", 2)],
        several=(2,),
    ),
)
def test_random_bits(kind: str, dims: tuple[int, ...], algorithm: str, words: int) -> None:
    root = root_of(
        f"s = u64[{words}] parameter(0)\nROOT r = (u64[{words}], {kind}[{text(dims)}]) "
        f"rng-bit-generator(s), algorithm={algorithm}"
    )
    assert check(root) == ""


@pytest.mark.parametrize(
    ("dims", "size", "pad"),
    [
        ((5, 300), "1x300", "0_0x299_0"), ((5, 300), "1x300", "0_0x0_299"),
        ((300, 5), "300x1", "299_0x0_0"), ((33, 7), "33x1", "32_0x0_0"), ((9,), "9", "8_0"),
        ((40, 20), "1x20", "0_0x19_0"), ((2, 17, 40), "1x17x1", "0_0x16_0x0_0"),
    ],
)  # fmt: skip
def test_cumulative_sum(dims: tuple[int, ...], size: str, pad: str) -> None:
    root = root_of(
        f"x = f32[{text(dims)}] parameter(0)\nz = f32[] parameter(1)\n"
        f"ROOT r = f32[{text(dims)}] reduce-window(x, z), window={{size={size} pad={pad}}}, "
        "to_apply=sum"
    )
    assert scan_kernel(root, TARGET) is not None
    assert check(root, kernel=scan_kernel) == ""


def test_a_window_s_update_has_no_division() -> None:
    text = """HloModule m
    ENTRY e {
      x = f32[40,37] parameter(0)
      u = f32[20,21] parameter(1)
      i = s32[] parameter(2)
      ROOT r = f32[40,37] dynamic-update-slice(x, u, i, i)
    }"""
    module = parse(text)
    (kernel,) = Compilation(module, passes="", threads=1).program.kernels
    assert "div" not in kernel.text
    assert "rem" not in kernel.text
    x = np.arange(40 * 37, dtype=np.float32).reshape(40, 37)
    u = -np.arange(20 * 21, dtype=np.float32).reshape(20, 21)
    for i in (-3, 0, 5, 16, 100):
        start = np.array(i, np.int32)
        got = Compilation(module, passes="").executable(x, u, start)
        np.testing.assert_array_equal(got, evaluate(module, x, u, start))


@pytest.mark.parametrize("ones", ["1", "1,1"])
@pytest.mark.parametrize("source", ["f32[40] parameter(0)", "f32[40] reduce(q, z), dimensions={0}"])
def test_results_that_differ_by_dimensions_of_one_are_all_written(ones: str, source: str) -> None:
    given = "" if "parameter" in source else "q = f32[9,40] parameter(0)\n"
    tail = "" if "parameter" in source else ", to_apply=add"
    shape = "f32[40]" if "parameter" in source else "f32[9,40]"
    module = parse(f"""
    add {{ x = f32[] parameter(0)
      y = f32[] parameter(1)
      ROOT s = f32[] add(x, y) }}
    fused {{ {given} z = f32[] constant(0)
      r = {source}{tail}
      n = f32[40] negate(r)
      s = f32[40,{ones}] reshape(n)
      ROOT t = (f32[40,{ones}], f32[40]) tuple(s, n) }}
    ENTRY e {{ p = {shape} parameter(0)
      ROOT f = (f32[40,{ones}], f32[40]) fusion(p), kind=kInput, calls=fused }}""")
    given_array = np.arange(360 if given else 40, dtype=np.float32).reshape(-1, 40)
    argument = given_array if given else given_array[0]
    wide, flat = Compilation(module, passes="").executable(argument)
    wanted = -argument.sum(axis=0) if given else -argument
    np.testing.assert_array_equal(np.asarray(flat), wanted)
    np.testing.assert_array_equal(np.asarray(wide).ravel(), wanted)
