"""Scatters whose units are runs of equal indices: the same bits as one thread's, sorted or not."""

from __future__ import annotations

import ctypes
import zlib

import numpy as np
import pytest
from msgspec.structs import replace

import hlo
from hlo.backend.compilation import Compilation
from hlo.backend.ir.kernel import Kernel, KernelSequence
from hlo.backend.kernels.scatter.form import ScatterForm
from hlo.backend.kernels.scatter.runs import unsorted_flag_kernel
from hlo.backend.kernels.scatter.scatter import scatter_kernels
from hlo.backend.linking.toolchain import host_target
from hlo.ir import dtype as dt
from tests.support.hlo_values import same_values
from tests.support.lanes_jit import compile_text

IS_X86 = hlo.driver.host_machine().architecture == "x86_64"
MACHINES = (None, "x86-64", "x86-64-v3") if IS_X86 else (None,)
COUNT = 40_000
CELLS = "update_window_dims={}, inserted_window_dims={0}"
ROWS = "update_window_dims={1}, inserted_window_dims={0}"
BOTH = "scatter_dims_to_operand_dims={0}, index_vector_dim=1"


def program(
    x: str, index: str, u: str, *, opcode: str = "add", scaled: bool = False, more: str = ""
) -> str:
    """The text of a scatter of single elements or rows; scaled: its updates are computed."""
    dtype = x.split("[")[0]
    window = ROWS if "," in x else CELLS
    updates = f"v = {u} multiply(u, u)" if scaled else f"v = {u} copy(u)"
    return (
        f"HloModule m\nf {{\n  a = {dtype}[] parameter(0)\n  b = {dtype}[] parameter(1)\n"
        f"  ROOT r = {dtype}[] {opcode}(a, b)\n}}\nENTRY e {{\n  x = {x} parameter(0)\n"
        f"  i = {index} parameter(1)\n  u = {u} parameter(2)\n  {updates}\n"
        f"  ROOT s = {x} scatter(x, i, v), {window}, {BOTH}, to_apply=f{more}\n}}\n"
    )


def indices(kind: str, rows: int, dtype: np.dtype[np.generic]) -> np.ndarray:
    rng = np.random.default_rng(zlib.crc32(kind.encode()))
    low = -3 if dtype.kind == "i" else 0
    found = rng.integers(low, rows + 3, COUNT)  # some are outside
    match kind:
        case "sorted" | "last is less" | "halves":
            found.sort()
        case "same":
            found[:] = 2
        case "long runs":
            found = np.sort(rng.choice([1, 2, 5, rows + 1], COUNT))
    if kind == "last is less":
        found[-1] = 0
    if kind == "halves":
        found = np.concatenate([found[COUNT // 2 :], found[: COUNT // 2]])
    return found.astype(dtype)


KINDS = ("sorted", "random", "same", "long runs", "last is less", "halves")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rows", [7, 3000])
@pytest.mark.parametrize(
    ("dtype", "opcode"),
    [("f32", "add"), ("f64", "multiply"), ("s32", "maximum"), ("bf16", "add"), ("c64", "add")],
)
def test_any_split_gives_one_threads_bits(kind: str, rows: int, dtype: str, opcode: str) -> None:
    index_type = "s64" if dtype == "f64" else "u32" if dtype == "s32" else "s32"
    text = program(f"{dtype}[{rows}]", f"{index_type}[{COUNT}]", f"{dtype}[{COUNT}]", opcode=opcode)
    check(text, kind, rows, exact=dtype in ("s32",))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("row", [3, 16, 70, 300])
@pytest.mark.parametrize("updates", ["stored", "computed"])
def test_rows(kind: str, row: int, updates: str) -> None:
    x, u = f"s32[500,{row}]", f"s32[{COUNT},{row}]"
    check(program(x, f"s32[{COUNT},1]", u, scaled=updates == "computed"), kind, 500, exact=True)


def check(text: str, kind: str, rows: int, *, exact: bool) -> None:
    module = hlo.parse(text)
    x, i, u = (p.shape for p in module.entry.parameters)
    rng = np.random.default_rng(1)
    values = [rng.integers(-9, 9, s.dims) if exact else rng.normal(1, 1e-4, s.dims) for s in (x, u)]
    given = (
        values[0].astype(x.dtype.numpy),
        indices(kind, rows, i.dtype.numpy).reshape(i.dims),
        values[1].astype(u.dtype.numpy),
    )
    for machine in MACHINES:
        alone, *others = (
            np.asarray(hlo.compile(module, threads=n, machine=machine, cache=False)(*given))
            for n in (1, 2, 3, 7)
        )
        assert all(other.tobytes() == alone.tobytes() for other in others)
        if exact:
            assert same_values(alone, np.asarray(hlo.evaluate(module, *given))).all()


def test_what_is_said_to_be_sorted_is_looked_at() -> None:
    """A program that says so of others gets what it gets without."""
    shapes = "s32[3000]", f"s32[{COUNT}]", f"s32[{COUNT}]"
    check(program(*shapes, more=", indices_are_sorted=true"), "random", 3000, exact=True)


def test_which_scatters_have_runs() -> None:
    def calls(x: str, index: str, u: str) -> int:
        module = hlo.parse(program(x, index, u))
        made = scatter_kernels(module.entry.root, host_target())
        return 1 if isinstance(made, Kernel) else len(made.calls)

    assert calls("f32[9]", f"s32[{COUNT}]", f"f32[{COUNT}]") == 3
    assert calls("f32[9,8]", "s32[5000,1]", "f32[5000,8]") == 3
    assert calls("f32[9]", "s32[5000]", "f32[5000]") == 1  # too little
    assert calls("f32[9,512]", f"s32[{COUNT},1]", f"f32[{COUNT},512]") == 3


def test_one_thread_looks_where_an_element_may_stay_in_a_register() -> None:
    shapes = "f32[9]", f"s32[{COUNT}]", f"f32[{COUNT}]"
    for more, threads, kernels in (("", 1, 1), ("", 2, 3), (", indices_are_sorted=true", 1, 3)):
        module = hlo.parse(program(*shapes, more=more))
        (made,) = Compilation(module, threads=threads).implementations.values()
        assert isinstance(made, KernelSequence)
        assert len(made.calls) == kernels


def test_the_plan_says_so() -> None:
    module = hlo.parse(program("f32[9]", f"s32[{COUNT}]", f"f32[{COUNT}]"))
    form = ScatterForm.of(module.entry.root)
    assert "runs" not in form.text
    assert replace(form, has_runs=True).text == (
        f"scatter: {COUNT} windows of 1 elements, runs of equal indices side by side where they are"
        " sorted, else one after the other"
    )


@pytest.mark.parametrize("dtype", [dt.S32, dt.U8, dt.S64, dt.U64])
@pytest.mark.parametrize("count", [2, 3, 17, 4097, 9001])
def test_the_flag_is_set_by_any_pair(dtype: dt.DType, count: int) -> None:
    kernel = unsorted_flag_kernel(count, dtype, host_target())
    text = "\n".join([*kernel.declarations, *(x.text for x in kernel.globals), kernel.text])
    address = compile_text(text.replace("@KERNEL", "@test"), "test")
    call = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)

    def flag_of(values: np.ndarray) -> int:
        flag = np.zeros(1, np.uint8)
        table = (ctypes.c_void_p * 2)(values.ctypes.data, flag.ctypes.data)
        call(ctypes.addressof(table), 0, kernel.units)
        return int(flag[0])

    top = int(np.iinfo(dtype.numpy).max)
    for at in sorted({1, count // 2, count - 2, count - 1} - {0}):
        values = np.full(count, top - 1, dtype.numpy)
        values[:at] = top - 2
        assert flag_of(values) == 0
        values[at - 1] = top
        assert flag_of(values) == 1
