"""The public names as users meet them: with types, copied, pickled, shown."""

from __future__ import annotations

import ast
import copy
import doctest
import inspect
import pickle
import re
from pathlib import Path

import numpy as np
import pytest

import hlo

ROOT = Path(__file__).resolve().parents[2]

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


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("name", hlo.__all__)
def test_every_name_has_an_example_that_runs(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One as short as a session at a prompt, in the project's folder."""
    if name in ("from_jax", "jit"):
        pytest.importorskip("jax")
    monkeypatch.chdir(ROOT)
    finder = doctest.DocTestFinder(recurse=False)
    (example,) = finder.find(getattr(hlo, name), name, globs={"hlo": hlo, "np": np})
    assert example.examples or name == "register_ffi"  # a handler is C's
    told: list[str] = []
    assert doctest.DocTestRunner().run(example, out=told.append).failed == 0, "".join(told)


def test_the_page_of_the_interface_has_every_name() -> None:
    page = (ROOT / "docs/api.md").read_text()
    told = set(re.findall(r"^::: (\S+)", page, re.MULTILINE))
    for members in re.finditer(
        r"^::: (\S+)\n    options:\n      members: \[(.*)\]", page, re.MULTILINE
    ):
        told |= {f"{members[1]}.{name}" for name in members[2].split(", ")}
    missing = {f"{home}.{name}" for name, home in hlo._PUBLIC.items()} - told
    assert missing == set(), "docs/api.md has all public names"


@pytest.mark.parametrize("name", hlo.__all__)
def test_every_name_has_a_signature(name: str) -> None:
    assert inspect.signature(getattr(hlo, name)).parameters


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
