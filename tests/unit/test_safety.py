"""What SECURITY.md promises of the sources themselves: nothing that is read is run."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np
import pytest

import hlo
from hlo.tools.files.input_size import DEFAULT_BYTES
from tests.support.source_files import FILES, ROOT, nodes_of

# Formats whose reader runs what it reads, or trusts it with the process's memory.
RUNNING = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve"}
EVALUATING = {"eval", "exec", "compile", "__import__"}
READING = {"read_bytes", "read_text", "fromfile", "memmap", "fdopen", "loadtxt"}
# Who reads files at all, and of whom. Inputs are read by one, which limits their size.
READERS = {
    "hlo/tools/files/reading.py": "inputs, through input_size.read_limited",
    "hlo/tools/files/writing.py": "writes",
    "hlo/cli/bug_report.py": "copies inputs of limited size, when the command has failed",
    "hlo/verifier/rules.py": "the pages of the package itself",
    "hlo/tools/inspection/report.py": "the page of the package itself",
    "hlo/cli/streams.py": "the null device, for closed streams",
    "hlo/tools/cases/trials.py": "the null device, for processes that answer with their exit code",
    "hlo/cache.py": "files of our own",
    "hlo/backend/linking/identity.py": "the system's list of features",
    "hlo/backend/isa/arm_features.py": "the system's list of features",
    "hlo/backend/linking/perf_map.py": "appends for perf",
    "hlo/runtime/threads.py": "the system's limit of processors",
    "hlo/process/memory.py": "the system's limits of memory",
    "hlo/parser/grammar.py": "this package's grammar, for its developers",
}


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


ASKED = ast.Import | ast.ImportFrom | ast.Call | ast.keyword  # no other node runs or reads


def reads_a_file(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name("open")):
            return True
        case ast.Call(func=ast.Attribute(value, "open")):
            return ast.unparse(value).startswith(("os", "io", "Path("))
        case ast.Call(func=ast.Attribute(attr=name)):
            return name in READING
    return False


def runs(node: ast.AST) -> bool:
    """Whether it lets data be code."""
    match node:
        case ast.Import(names):
            return any(alias.name.split(".")[0] in RUNNING for alias in names)
        case ast.ImportFrom(module=str(module)):
            return module.split(".")[0] in RUNNING
        case ast.Call(func=ast.Name(name)):
            return name in EVALUATING
        case ast.keyword(arg="allow_pickle", value=ast.Constant(value)):
            return value is not False
    return False


def test_data_is_no_code_and_inputs_are_read_by_one() -> None:
    found = [
        f"{name_of(path)}: {ast.unparse(node)}"
        for path in FILES
        for node in nodes_of(path.read_text())
        if isinstance(node, ASKED)
        and (runs(node) or (name_of(path) not in READERS and reads_a_file(node)))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_refused"),
    [
        ("import pickle", True),
        ("from marshal import loads", True),
        ("np.load(x, allow_pickle=True)", True),
        ("np.load(x, allow_pickle=False)", False),
        ("eval(text)", True),
        ("re.compile(text)", False),
        ("open(path)", True),
        ("Path(path).open()", True),
        ("path.read_bytes()", True),
        ("read_bytes(path)", False),
        ("builder.open(scope)", False),
    ],
)
def test_the_rules_see(line: str, is_refused: bool) -> None:  # noqa: FBT001
    nodes = nodes_of(line)
    assert any(runs(node) or reads_a_file(node) for node in nodes) is is_refused


def test_commands_speak_through_one_door() -> None:
    """The one that escapes the controls of a source."""
    doors = {"terminal.py", "streams.py"}
    for path in (ROOT / "hlo" / "cli").glob("*.py"):
        assert path.name in doors or "echo(" not in path.read_text(), name_of(path)


def test_the_policy_is_kept_up() -> None:
    """Its tests exist, its figure is the limit, and the README leads to it."""
    policy = (ROOT / "SECURITY.md").read_text()
    named = re.findall(r"`(tests/[\w/.]+)`", policy)
    assert len(named) > 8
    assert [path for path in named if not (ROOT / path).is_file()] == []
    assert f"at most {DEFAULT_BYTES >> 30} GiB" in policy
    assert "(SECURITY.md)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("target", ["system", "abort", "hlo_lapack_system", "../x", "os.system"])
def test_texts_name_no_code(target: str) -> None:
    """Functions of the process are no targets of custom calls."""
    call = f'custom-call(x), custom_call_target="{target}"'
    module = hlo.parse(f"ENTRY e {{ x = f32[] parameter(0) ROOT r = f32[] {call} }}")
    for engine in (hlo.evaluate, lambda m, x: hlo.compile(m, cache=False)(x)):
        with pytest.raises(hlo.HloError, match="unsupported"):
            engine(module, np.float32(0))
