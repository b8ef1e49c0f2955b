"""Every case of tests/ops/*.hlo on the reference interpreter."""

import pytest

from tests.support.op_files import Case, cases, run_case


@pytest.mark.parametrize("case", cases(), ids=str)
def test_op_file_on_interpreter(case: Case) -> None:
    if not case.runs_on("interpreter"):
        pytest.skip("other engines only")
    assert run_case(case) == []
