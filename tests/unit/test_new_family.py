"""A kernel family is a file and a case of the table: nothing else is edited.

A copy of the project gets kernels for `cpu_csr_sparse_dense_ffi`, a custom call that the reference
computes (a sparse matrix of n entries, by rows, times a dense one), and chooses, plans, shows,
compiles, runs on several threads and profiles them as any kernel.
"""

from __future__ import annotations

import pytest

from tests.support.project_copy import ProjectCopy

FILE = '''"""Sparse products: a matrix by its rows' entries, times a dense one.

    result[r, :] = sum of values[k] * right[columns[k], :] over k in starts[r] .. starts[r + 1]

A unit is a row of the result, which is summed up where it lies, entry by entry.
"""

from __future__ import annotations

from math import prod

from hlo.backend.ir.control import each, ranged
from hlo.backend.ir.functions import BEGIN, END
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.loops.schedule import Plan
from hlo.ir import dtype as dt
from hlo.ir.instruction import Instruction

TYPES = (dt.F32, dt.S32, dt.S32, dt.F32)


def sparse_product_kernel(instruction: Instruction, target: Target) -> Kernel | None:
    """The kernel of a product of f32; None: left to the reference."""
    operands, shape = [o.shape for o in instruction.operands], instruction.shape
    if tuple(o.dtype for o in operands) != TYPES or not shape.size:
        return None
    w, width = Writer(), prod(shape.dims[1:])
    values, starts, columns, right, result = (w.buffer_address(n) for n in range(5))

    def row(r: Value) -> None:
        begin, end = (_position(w, starts, k) for k in (r, w.binary("add", r, w.int(1))))
        sums = w.address(result, w.binary("mul", r, w.int(width)), "float")
        w.fill_bytes(sums, 0, 4 * width)

        def entry(k: Value) -> None:
            first = w.binary("mul", _position(w, columns, k), w.int(width))
            factor = w.load(w.address(values, k, "float"), "float", 4)
            dense = w.address(right, first, "float")

            def element(j: Value) -> None:
                place = w.address(sums, j, "float")
                term = w.binary("fmul", factor, w.load(w.address(dense, j, "float"), "float", 4))
                w.store(w.binary("fadd", w.load(place, "float", 4), term), place, 4)

            each(w, w.int(0), w.int(width), element)

        ranged(w, begin, end, entry)

    ranged(w, BEGIN, END, row)
    flops = 2 * operands[0].size * width
    moved = sum(o.size_bytes for o in operands) + shape.size_bytes
    function = w.kernel_function()
    made = Kernel(function, shape.dims[0], *w.beside, bytes_moved=moved, flops=flops)
    lines = (f"sparse product: for each of {shape.dims[0]} rows its entries, {width} lanes each",)
    return target.shown(made, lambda: Plan(lines))


def _position(w: Writer, base: Value, k: Value) -> Value:
    return w.cast("sext", w.load(w.address(base, k, "i32"), "i32", 4), "i64")
'''
CASE = """\
        case "cpu_csr_sparse_dense_ffi":
            from hlo.backend.kernels.sparse_product import sparse_product_kernel

            return (sparse_product_kernel,)
"""
PROGRAM = """HloModule m
ENTRY e {
  values = TYPE[6] parameter(0)
  starts = s32[4] parameter(1)
  columns = s32[6] parameter(2)
  right = TYPE[5,3] parameter(3)
  product = TYPE[3,3] custom-call(values, starts, columns, right),
    custom_call_target="cpu_csr_sparse_dense_ffi"
  ROOT r = TYPE[3,3] negate(product)
}
"""
USES = """
import numpy as np
from hlo.backend.compilation import Compilation
from hlo.backend.profiling.profile import profile

program = (here / "product.hlo").read_text()
starts, columns = np.int32([0, 2, 2, 6]), np.int32([4, 0, 1, 2, 3, 4])
for kind, hosts in (("f32", 0), ("f64", 1)):  # f64 is declined, and left to the reference
    module = hlo.parse(program.replace("TYPE", kind))
    hlo.verify(module)
    numpy = module.entry.root.shape.dtype.numpy
    given = np.arange(6, dtype=numpy), starts, columns, np.arange(15, dtype=numpy).reshape(5, 3)
    compilation = Compilation(module, threads=3)
    assert len(compilation.program.hosts) == hosts, kind
    expected = hlo.evaluate(module, *given)
    assert np.array_equal(compilation.executable(*given), expected), kind
    for row in profile(compilation, *given, repeats=2).rows:
        print(kind, row.name, row.kind, row.calls, row.bytes_moved, row.flops)
hlo.register_custom_call("cpu_csr_sparse_dense_ffi", lambda v, s, c, r: r[:3])  # goes before
module = hlo.parse(program.replace("TYPE", "f32"))
assert np.array_equal(hlo.compile(module)(*(g.astype(p.shape.dtype.numpy) for g, p in
                      zip(given, module.entry.parameters))), -given[3][:3])
"""
FAMILIES = "hlo/backend/planning/families.py"


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> ProjectCopy:
    """The project with the family."""
    copy = ProjectCopy(tmp_path_factory.mktemp("project"))
    copy.add("hlo/backend/kernels/sparse_product.py", FILE)
    copy.insert(FAMILIES, CASE, before="        case _:")
    (copy.folder / "product.hlo").write_text(PROGRAM)
    return copy


def test_it_is_a_file_and_a_case(copy: ProjectCopy) -> None:
    assert copy.added == ["hlo/backend/kernels/sparse_product.py"]
    assert copy.edited == {FAMILIES: 3}  # the case: its target, its import, its function


def test_it_is_chosen_compiled_and_counted_and_may_decline(copy: ProjectCopy) -> None:
    rows = copy.script(USES).splitlines()
    moved = 4 * (6 + 4 + 6 + 15 + 9)
    assert f"f32 product kernel 1.0 {moved} {2 * 6 * 3}" in rows
    assert any(row.startswith("f64 product host 1.0 ") for row in rows)


def test_its_plan_is_shown(copy: ProjectCopy) -> None:
    (copy.folder / "shown.hlo").write_text(PROGRAM.replace("TYPE", "f32"))
    loops = copy.opt("--emit=loops", "--kernel=product", "shown.hlo")
    assert loops.splitlines() == [
        "kernel k0 (product): f32[3,3]{1,0} custom-call, 3 units",
        "  sparse product: for each of 3 rows its entries, 3 lanes each",
    ]
