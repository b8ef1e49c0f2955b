"""Grouping: kernels shared out among modules by what LLVM takes for them."""

from __future__ import annotations

import pytest

from hlo.backend.ir.functions import Function
from hlo.backend.ir.grouping import GLUE, KERNELS, MOST_US, Shares, expected_us
from hlo.backend.ir.ir_module import IrModule
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.records import Instruction


def of_lines(*lengths: int) -> dict[str, Kernel]:
    """Kernels of so many records, named by their numbers."""
    record = Instruction("", "void", "ret void", ())
    return {
        f"k{n}": Kernel(Function(records=[record] * length), 1) for n, length in enumerate(lengths)
    }


@pytest.mark.parametrize(
    ("workers", "lengths", "groups"),
    [
        (2, [10], [{"k0"}]),
        (1, [40, 40], [{"k0", "k1"}]),
        (2, [40, 30], [{"k0"}, {"k1"}]),
        (2, [100, 60, 50, 10], [{"k0", "k3"}, {"k1", "k2"}]),
        (8, [100, 100, 100], [{"k0"}, {"k1"}, {"k2"}]),
    ],
)
def test_each_processor_gets_as_much(
    workers: int, lengths: list[int], groups: list[set[str]]
) -> None:
    found = Shares(workers).grouped(of_lines(*lengths), KERNELS)
    assert sorted(map(sorted, found)) == sorted(map(sorted, groups))


def test_short_plain_code_is_one_module() -> None:
    assert len(Shares(2).grouped(of_lines(30, 30), GLUE)) == 1
    assert len(Shares(2).grouped(of_lines(30, 30), KERNELS)) == 2
    assert len(Shares(2).grouped(of_lines(150, 150), GLUE)) == 2


def test_who_has_a_long_module_gets_less() -> None:
    module = IrModule("define void @f() {\n" + "  ret void\n" * 100 + "}\n", ("f",))
    kernels = of_lines(100, 60, 40, 20)
    groups = Shares(2, [module]).grouped(kernels, KERNELS)
    assert sorted(map(len, groups)) == [1, 3]
    long = IrModule(module.text * 50, ("f",))
    assert [len(g) for g in Shares(2, [long]).grouped(kernels, KERNELS)] == [4]


def test_no_module_costs_more_than_what_is_in_it() -> None:
    module = IrModule("define void @f() {\n" + "  ret void\n" * 100 + "}\n", ("f",))
    assert len(Shares(2, [module]).grouped(of_lines(400, 6), GLUE)) == 1


def test_no_module_takes_too_long() -> None:
    groups = Shares(2).grouped(of_lines(*[400] * 30), KERNELS)
    costs = [sum(KERNELS.of_kernel(k) for k in group.values()) for group in groups]
    assert len(groups) == 6
    assert max(costs) < MOST_US


def test_estimates_follow_lines_and_levels() -> None:
    text = "define void @f() {\n  ret void\n}\n"
    kernels, glue = IrModule(text, ("f",)), IrModule(text, ("f",), is_glue=True)
    optimised = IrModule(text, ("f",), optimised=True)
    assert expected_us(glue) < expected_us(kernels) < expected_us(optimised)
    assert expected_us(kernels) < expected_us(IrModule(2 * text, ("f", "f")))
