"""Loops of long kernels as functions: which are cut, what they are given and give back."""

import numpy as np
import pytest

import hlo
from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.entry import llvm_ir
from hlo.backend.ir import outlining
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.outlining import outline
from hlo.tools.cases.inputs import made_up_inputs
from tests.support.llvm_text import function_of

BODY = "\n".join(f"  %x{n} = fadd float %a, %v" for n in range(80))
REST = "\n".join(f"  %z{n} = fadd float %v, %v" for n in range(30))
KERNEL = f"""define void @KERNEL(ptr %buffers, i64 %begin, i64 %end) {{
entry:
  %v = load float, ptr %buffers
  br label %pre1
pre1:
  br label %loop2
loop2:
  %i3 = phi i64 [ 0, %pre1 ], [ %i3.n, %next4 ]
  %a = phi float [ 0.0, %pre1 ], [ %x79, %next4 ]
{BODY}
  br label %next4
next4:
  %i3.n = add nsw i64 %i3, 1
  %i3.c = icmp sle i64 %i3.n, 99
  br i1 %i3.c, label %loop2, label %done5
done5:
  store float %x79, ptr %buffers
{REST}
  br label %pre6
pre6:
  br label %loop7
loop7:
  %i8 = phi i64 [ 0, %pre6 ], [ %i8.n, %next9 ]
  br label %next9
next9:
  %i8.n = add nsw i64 %i8, 1
  %i8.c = icmp sle i64 %i8.n, 9
  br i1 %i8.c, label %loop7, label %done10
done10:
  ret void
}}
"""

SOFTMAX = """HloModule m

max { a = f32[] parameter(0) b = f32[] parameter(1) ROOT m = f32[] maximum(a, b) }
sum { a = f32[] parameter(0) b = f32[] parameter(1) ROOT s = f32[] add(a, b) }

ENTRY e {
  x = f32[3,50,70]{2,1,0} parameter(0)
  low = f32[] constant(-inf)
  top = f32[3,70]{1,0} reduce(x, low), dimensions={1}, to_apply=max
  tops = f32[3,50,70]{2,1,0} broadcast(top), dimensions={0,2}
  d = f32[3,50,70]{2,1,0} subtract(x, tops)
  y = f32[3,50,70]{2,1,0} exponential(d)
  zero = f32[] constant(0)
  all = f32[3,70]{1,0} reduce(y, zero), dimensions={1}, to_apply=sum
  alls = f32[3,50,70]{2,1,0} broadcast(all), dimensions={0,2}
  ROOT r = f32[3,50,70]{2,1,0} divide(y, alls)
}
"""


def test_a_long_loop_becomes_a_function_that_returns_what_is_used_later() -> None:
    found = outline({"k": Kernel(function_of(KERNEL), 1)}, 40)
    (name,) = found.keys() - {"k"}
    assert found[name].text.startswith(
        "define float @KERNEL(float %v) {\nentry:\n  br label %loop2"
    )
    assert found[name].text.endswith("done5:\n  ret float %x79\n}\n")
    assert found["k"].declarations == (f"declare float @{name}(float)",)
    call = f"  %x79 = call float @{name}(float %v)\n  store"
    assert call in found["k"].text


def test_a_kernel_that_is_no_longer_than_wanted_stays_whole() -> None:
    kernel = Kernel(function_of(KERNEL), 1)
    assert outline({"k": kernel}, 130) == {"k": kernel}
    assert outline({"k": kernel}, 40, longest=150) == {"k": kernel}


def test_a_lone_loop_and_a_loop_that_does_little_stay() -> None:
    lone = KERNEL[: KERNEL.index("  br label %pre6")].replace(REST, "") + "  ret void\n}\n"
    assert list(outline({"k": Kernel(function_of(lone), 1)}, 40)) == ["k"]
    inner = KERNEL.replace("icmp sle i64 %i3.n, 99", "icmp sle i64 %i3.n, 9")
    around = inner.replace(
        "  br label %pre1\n",
        "  br label %pre11\npre11:\n  br label %loop12\n"
        "loop12:\n  %i13 = phi i64 [ 0, %pre11 ], [ %i13.n, %next14 ]\n  br label %pre1\n",
        1,
    )
    around = around.replace("done10:\n", "done10:\n  br label %next14\nnext14:\n"
        "  %i13.n = add nsw i64 %i13, 1\n  %i13.c = icmp sle i64 %i13.n, 9\n"
        "  br i1 %i13.c, label %loop12, label %done15\ndone15:\n")  # fmt: skip
    assert list(outline({"k": Kernel(function_of(around), 1)}, 40)) == ["k"]


@pytest.mark.parametrize("kind", ["f32", "bf16"])  # of which one is looked up in a table
def test_cut_kernels_compute_the_same_bits(monkeypatch, kind) -> None:
    module = hlo.parse(SOFTMAX.replace("f32", kind))
    values = made_up_inputs(module, "normal", 0)
    optimised = driver.optimize(module)
    counts, results = [], []
    for lines in (10_000, 60):
        monkeypatch.setattr(llvm_ir, "MOST_CUT", lines)
        monkeypatch.setattr(llvm_ir, "LEAST_CUT", lines)
        monkeypatch.setattr(outlining, "LEAST_LINES", 10)
        modules = Compilation(optimised, passes="", threads=1).ir
        counts.append(sum(m.text.count("define") for m in modules))
        results.append(np.asarray(driver.compile(module, cache=False)(*values)).view(np.uint8))
    assert counts[1] > counts[0]
    assert np.array_equal(*results)


def test_very_many_lines_without_a_branch_are_cut_where_few_values_are_alive() -> None:
    steps = [f"  %y{n} = fadd float %y{n - 1}, %v" for n in range(1, 900)]
    text = "\n".join(
        [
            "define void @KERNEL(ptr %buffers, i64 %begin, i64 %end) {",
            "entry:",
            "  %v = load float, ptr %buffers",
            "  %y0 = fadd float %v, %v",
            *steps,
            "  store float %y899, ptr %buffers",
            "  ret void",
            "}",
            "",
        ]
    )
    found = outline({"k": Kernel(function_of(text), 1)}, 300)
    heads = [found[name].text.split("\n")[0] for name in found if name != "k"]
    assert len(heads) == 2
    assert all(head.startswith("define ") and head.count("float") < 5 for head in heads)
    assert found["k"].text.count(" call ") == 2


def test_pieces_read_the_tables_that_the_kernel_declares() -> None:
    table = "@t = external constant [4 x i8], align 64"
    reads = KERNEL.replace("  %x0 =", "  %q = load i8, ptr @t\n  %x0 =")
    found = outline({"k": Kernel(function_of(reads), 1, (table,))}, 40)
    (name,) = found.keys() - {"k"}
    assert found[name].declarations == (table,)
    assert "%q = load i8, ptr @t\n" in found[name].text
    assert table not in found["k"].declarations
