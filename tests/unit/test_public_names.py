"""The public names as users meet them: with types, copied, pickled, shown."""

from __future__ import annotations

import ast
import copy
import inspect
import pickle
from pathlib import Path

import numpy as np

import hlo

TEXT = """HloModule m
ENTRY e { p = f32[3] parameter(0)
  c = f32[3] constant({1, 2, 0.1})
  ROOT r = f32[3] multiply(p, c), metadata={op_name="f<g>" source_file="f.py" source_line=7} }"""
X = np.array([1, 2, 3], np.float32)


def test_checkers_see_every_name_where_it_is() -> None:
    tree = ast.parse(Path(hlo.__file__).read_text())
    (guarded,) = [n for n in tree.body if isinstance(n, ast.If)]
    seen = {
        alias.asname: node.module
        for node in guarded.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name == alias.asname
    }
    assert seen == hlo._PUBLIC
    assert all(inspect.getdoc(getattr(hlo, name)) for name in seen)


def test_a_module_is_copied_and_pickled() -> None:
    module = hlo.parse(TEXT)
    for other in (module.clone(), copy.deepcopy(module), pickle.loads(pickle.dumps(module))):
        assert str(other) == str(module)
        assert other.entry is not module.entry
        other.entry.root.name = "other"
        assert module.entry.root.name == "r"


def test_what_commands_show_is_a_value() -> None:
    module = hlo.parse(TEXT)
    assert hlo.lint(module) == []
    assert hlo.memory(module).argument_bytes == 12
    assert hlo.compare(module, X).verdict == "equal"
    assert hlo.compare(module, X, other=hlo.parse(TEXT.replace("0.1", "3"))).verdict == "different"
    (found,) = hlo.nans(module, X * np.float32(np.inf), kinds=("inf",))
    assert found.instruction.endswith("parameter()")
    assert "&lt;g&gt;" in module._repr_html_()
    assert "equal" in hlo.compare(module, X)._repr_html_()
    made = hlo.compile(module)
    assert repr(made).startswith("<hlo.Executable (")
    assert "arena" in made._repr_html_()
