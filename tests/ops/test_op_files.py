"""Every case of tests/ops/*.hlo on the reference interpreter and compiled."""

import pytest

import hlo
from hlo.ir.module import Module
from tests.support.op_files import Case, cases, run_case


def compiled(module: Module, *arguments: object) -> object:
    return hlo.compile(module, cache=False, threads=2)(*arguments)


@pytest.mark.parametrize("case", cases(), ids=str)
def test_op_file_on_interpreter(case: Case) -> None:
    if not case.runs_on("interpreter"):
        pytest.skip("other engines only")
    assert run_case(case) == []


@pytest.mark.parametrize("case", [c for c in cases() if "ERROR" not in c.values], ids=str)
def test_op_file_compiled(case: Case) -> None:
    if not case.runs_on("compiled"):
        pytest.skip("other engines only")
    assert run_case(case, compiled) == []
