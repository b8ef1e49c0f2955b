"""Whatever is made at first use is made once: every public function first on many threads."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import pytest

import hlo
from tests.support.first_use import CASES
from tests.support.source_files import FILES, ROOT, descendants, tree_of

CACHES = {"cache", "lru_cache"}
LOCKS = {"Lock", "RLock"}
CHANGES = {
    "append", "add", "setdefault", "update", "pop", "popitem", "clear", "extend", "move_to_end",
    "insert", "remove", "discard",
}  # fmt: skip
# Module-level values that functions change, each with the reason why threads may do so at once.
CHANGED = {
    "frontend/ownership.py _returned": "each entry by the array that it is for, which it ends with",
    "cache.py _refused": "folders that a warning named; at worst twice",
    "backend/linking/compile.py _memory": "under a lock",
    "backend/linking/jit.py _defined": "one entry at a time, always the same for a name",
    "backend/linking/toolchain.py _machines": "under a lock",
    "backend/linking/toolchain.py _options": "in a value that is made once",
    "backend/math/complex_term.py _definitions": "a text, the same whoever writes it",
    "backend/math/term.py _definitions": "a text, the same whoever writes it",
    "analysis/leaves.py _known": "checked after it is found; the same whoever counts",
    "process/garbage.py _pending": "a count that says when to collect",
    "process/garbage.py _resting": "as the collector's own state; at worst it collects",
    "process/once.py _locks": "a set of weak references",
    "parser/actions.py _idle": "a stack: what is taken from it is one thread's",
    "passes/rewriting.py RULES": "entered while modules are imported",
    "ir/dtype.py _NUMPY": "each entry the same whoever enters it",
    "ir/dtype.py _BY_NUMPY": "entered before what says that all are there",
    "analysis/selections.py _known": "an answer, the same whoever asks",
}


def first_use(name: str) -> str:
    command = [sys.executable, "-m", "tests.support.first_use", name]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_public_name_has_a_case() -> None:
    assert set(hlo.__all__) <= set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_first_on_many_threads(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each call gives what one thread gets alone."""
    monkeypatch.setenv("HLO_CACHE_DIR", "")
    assert first_use(name) == repr(CASES[name]())


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_first_on_many_threads_again(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """`pytest -m slow tests/unit/test_first_use.py`: a race needs its moment."""
    monkeypatch.setenv("HLO_CACHE_DIR", "")
    assert {first_use(name) for _ in range(20)} == {repr(CASES[name]())}


def trees(*words: str) -> Iterator[tuple[str, ast.Module]]:
    """Names and trees of the files whose text has one of the words."""
    for path in FILES:
        text = path.read_text()
        if any(word in text for word in words):
            yield str(path.relative_to(ROOT / "hlo")), tree_of(text)


def test_what_has_no_parameters_is_made_once() -> None:
    """functools' caches may make a value on several threads: two tables are not one."""
    found = []
    for name, tree in trees(*CACHES, "cached_property"):
        for function in descendants(tree):
            if not isinstance(function, ast.FunctionDef) or ast.unparse(function.args):
                continue  # a method has self
            marks = {n.id for d in function.decorator_list for n in descendants(d)
                     if isinstance(n, ast.Name)}  # fmt: skip
            found += [f"{name} {function.name}"] if marks & CACHES else []
        found += [
            f"{name} cached_property" for n in descendants(tree)
            if isinstance(n, ast.ImportFrom) and n.module == "functools"
            and any(imported.name == "cached_property" for imported in n.names)
        ]  # fmt: skip
    assert not found, "expected @once, or the cached_property of hlo.process.once"


def test_locks_come_from_one_place() -> None:
    """A fork resets those of hlo/process/once.py; others stay held in a child."""
    for name, tree in trees(*LOCKS):
        made = {n.attr for n in descendants(tree) if isinstance(n, ast.Attribute)} & LOCKS
        assert not made or name in ("process/once.py", "process/forking.py"), (
            f"{name}: expected hlo.process.once.lock()"
        )


def _values(tree: ast.Module) -> set[str]:
    """The names that a module's own statements assign."""
    found = set()
    for statement in tree.body:
        if isinstance(statement, ast.Assign):
            found |= {t.id for t in statement.targets if isinstance(t, ast.Name)}
        elif isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            found.add(statement.target.id)
    return found


def _own(nodes: list[ast.AST]) -> set[str]:
    """The parameters and variables of a function with these nodes."""
    names = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    shared = {n for g in nodes if isinstance(g, ast.Global) for n in g.names}
    return (names | {a.arg for a in nodes if isinstance(a, ast.arg)}) - shared


def changed_values(tree: ast.Module) -> set[str]:
    """The module-level values that functions change."""
    found: set[str] = set()
    values = _values(tree)
    for function in (n for n in descendants(tree) if isinstance(n, ast.FunctionDef)):
        nodes = descendants(function)
        theirs = values - _own(nodes)
        for n in nodes:
            match n:
                case ast.Global():
                    found |= set(n.names)
                case ast.Subscript(value=ast.Name(id=id), ctx=ast.Store() | ast.Del()):
                    found |= {id} & theirs
                case ast.Call(func=ast.Attribute(value=ast.Name(id=id), attr=attr)):
                    found |= {id} & theirs if attr in CHANGES else set()
    return found


def test_changed_module_values_have_a_reason() -> None:
    found = {f"{name} {value}" for name, tree in trees("") for value in changed_values(tree)}
    assert found == set(CHANGED)


IMPORTS = """
import importlib, pkgutil
from hlo.process import once
def refused(self, *args, **kwargs):
    raise AssertionError(f"{self.__name__} is asked for while a module is imported")
once.Once.__call__ = refused
import hlo
for info in pkgutil.walk_packages(hlo.__path__, "hlo."):
    if "__main__" not in info.name:
        importlib.import_module(info.name)
"""


def test_no_import_asks_for_what_is_made_once() -> None:
    """The thread that makes the value may be waiting for that import."""
    command = [sys.executable, "-c", IMPORTS]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
