"""What is said of numbers that an option cannot mean: the number, and which are expected."""

from __future__ import annotations

import pytest

from tests.support.command import call

SAID = {
    ("hlo-opt", "graph", "--depth=1,,2"): "'1,,2', expected an integer: 0 or more",
    ("hlo-opt", "graph", "--depth=-1"): "-1, expected 0 or more",
    ("hlo-opt", "check", "--jobs=99"): "99, expected 1 to 64",
    ("hlo-run", "run", "--threads=0"): "0, expected 1 to 1024",
    ("hlo-run", "bench", "--threads=1,2000"): "2000, expected 1 to 1024",
    ("hlo-run", "bench", "--threads=1,x"): "'x', expected an integer: 1 to 1024",
    ("hlo-run", "bench", "--seconds=1e400"): "'1e400', expected a number: 0 or more, at most 86400",
    ("hlo-run", "run", "--timeout=0"): "'0', expected a number: more than 0, at most 86400",
    ("hlo-opt", "bisect", "--ulp=nan"): "'nan', expected a number: 0 or more",
    ("hlo-opt", "bisect", "--ulp=much"): "'much', expected a number: 0 or more",
}


@pytest.mark.parametrize(("command", "said"), SAID.items(), ids=str)
def test_numbers_out_of_range(command: tuple[str, str, str], said: str) -> None:
    name, subcommand, option = command
    outcome = call(name, subcommand, "module.hlo", option)
    assert outcome.code == 2
    assert outcome.err.rstrip().endswith(said)
