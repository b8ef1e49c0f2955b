"""Annotated assembly: the same code, HLO names beside it, loops by nesting, instruction mixes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hlo import driver
from hlo.backend.compilation import Compilation
from hlo.backend.isa.mnemonics import kinds
from hlo.backend.linking import toolchain
from hlo.backend.stages.annotate import annotated
from hlo.errors import HloError
from hlo.ir.module import Module
from hlo.parser.parse import parse
from tests.support.command import call

ROWS = """HloModule rows
sum { a = f32[] parameter(0)
  b = f32[] parameter(1)
  ROOT c = f32[] add(a, b) }
ENTRY e { x = f32[64,4096] parameter(0)
  zero = f32[] constant(0)
  doubled = f32[64,4096] multiply(x, x)
  ROOT total = f32[64] reduce(doubled, zero), dimensions={1}, to_apply=sum
}
"""
is_x86 = pytest.mark.skipif(
    toolchain.host_machine().architecture != "x86_64", reason="x86 assembly"
)


def optimised() -> Module:
    return driver.optimize(parse(ROWS, "rows.hlo"))


def code(text: str) -> list[str]:
    """The instructions of an assembly text, without comments, bars and spaces."""
    lines = [re.sub(r"#.*", "", line).replace("|", "").strip() for line in text.splitlines()]
    return [" ".join(line.split()) for line in lines if line and not line.startswith((".", "hlo"))]


def test_names_stand_beside_the_same_code() -> None:
    module = optimised()
    text = annotated(Compilation(module, passes=""), "k0")
    lines = text.splitlines()
    assert any("doubled = f32[64,4096]" in line and "rows.hlo:7" in line for line in lines)
    assert any("total = f32[64]" in line and "rows.hlo:8" in line for line in lines)
    plain = "\n".join(code(driver.emit_stage(module, "asm")))
    assert "\n".join(code(text)) in plain


@is_x86
def test_loops_are_nested_and_counted() -> None:
    text = annotated(Compilation(optimised(), passes=""), "k0")
    rows = {
        line[2:16].rstrip(): [int(n) for n in line[16:].split()]
        for line in text.splitlines()
        if re.match(r"# +(outside|BB)", line)
    }
    inner = next(counts for name, counts in rows.items() if name.startswith("    BB"))
    assert inner[0] >= 1, "the inner loop loads"
    assert inner[1] == 0, "and stores nothing"
    assert any(line.startswith("| | ") for line in text.splitlines())


def test_kernels_are_named_in_three_ways() -> None:
    module = optimised()
    by_number = annotated(Compilation(module, passes=""), "k0")
    (symbol,) = re.findall(r"\((k_\w+)\)", by_number)
    assert annotated(Compilation(module, passes=""), symbol) == by_number
    assert (
        annotated(Compilation(module, passes=""), re.findall(r"#   (\S+) = ", by_number)[0])
        == by_number
    )


def test_unknown_kernels_are_refused_with_those_there_are() -> None:
    with pytest.raises(HloError, match=r"no kernel nowhere, expected one of: k0 \("):
        annotated(Compilation(optimised(), passes=""), "nowhere")


def test_command_prints_one_kernel(tmp_path: Path) -> None:
    file = tmp_path / "rows.hlo"
    file.write_text(ROWS)
    made = call("hlo-opt", str(file), "--emit=asm", "--kernel=k0")
    assert made.code == 0
    assert made.out.startswith("# kernel k0 (")
    assert call("hlo-opt", str(file), "--emit=asm", "--kernel=none").code == 1
    assert call("hlo-opt", str(file), "--kernel=k0").code == 2


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("vmovups (%rax), %zmm1", ("load",)),
        ("vmovups %zmm1, 64(%rax,%rcx,4)", ("store",)),
        ("vmovups %zmm1, (%rax) {%k1}", ("store",)),
        ("vmovups (%rax), %zmm1 {%k1} {z}", ("load",)),
        ("vfmadd231ps (%rax), %zmm0, %zmm1", ("fma", "load")),
        ("vaddps %zmm0, %zmm1, %zmm2", ("vector",)),
        ("vbroadcastss 4(%rax), %zmm0", ("load",)),
        ("leaq 8(%rax), %rcx", ("other",)),
        ("jne .LBB0_1", ("branch",)),
        ("ldp q9, q8, [x14], #32", ("load",)),
        ("ld1r { v10.4s }, [x15], #4", ("load",)),
        ("stp d9, d8, [sp, #-16]!", ("store",)),
        ("fmla v14.4s, v9.4s, v11.s[0]", ("fma",)),
        ("fmadd s0, s1, s2, s3", ("fma",)),
        ("fcvtns v0.4s, v0.4s", ("vector",)),
        ("b.lo .LBB0_13", ("branch",)),
        ("add x13, x13, #1", ("other",)),
    ],
)
def test_kinds_of_instructions(line: str, expected: tuple[str, ...]) -> None:
    opcode, _, operands = line.partition(" ")
    assert kinds(opcode, operands) == expected
