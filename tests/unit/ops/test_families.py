"""The family that is imported for an op is the one that files it."""

from __future__ import annotations

import ast
import inspect

import pytest

from hlo import ops
from hlo.ops import OPS


def families() -> list[tuple[str, str]]:
    """The cases of `_family_of`: (opcode, file)."""
    tree = ast.parse(inspect.getsource(ops._family_of))
    found = []
    for case in (node for node in ast.walk(tree) if isinstance(node, ast.match_case)):
        (imported,) = case.body
        assert isinstance(imported, ast.ImportFrom)
        words = [n.value for n in ast.walk(case.pattern) if isinstance(n, ast.Constant)]
        found += [(str(word), imported.names[0].name) for word in words]
    return found


def test_there_are_cases() -> None:
    assert ("dot", "contraction") in families()


@pytest.mark.parametrize(("opcode", "file"), families())
def test_a_case_imports_the_file_of_its_op(opcode: str, file: str) -> None:
    assert OPS[opcode].__module__ == f"hlo.ops.{file}"
