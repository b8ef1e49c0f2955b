"""The house's rules: layers, doors of third parties, sizes, no drawers, the op table."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from hlo.machine import NAMED
from tests.support.rooms import imported, picture

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "hlo").rglob("*.py"))

# Each layer may import itself and what stands before it.
LAYERS = (
    ("source", "garbage", "once", "forking", "choices", "progress", "hashing"),
    ("entered", "lazy_functions"),
    ("errors", "error_codes"),
    ("process_memory", "cache"),
    ("ir",),
    ("machine",),
    ("attributes",),
    ("ops",),
    ("indexing",),
    ("analysis",),
    ("parser", "printer", "verifier", "passes", "runtime"),
    ("interpreter",),
    ("backend",),
    ("tools",),
    ("formats",),
    ("driver",),
    ("frontend",),
    ("cli",),
    ("__main__",),
)
RANK = {room: i for i, rooms in enumerate(LAYERS) for room in rooms}
# The same for rooms inside of rooms; files beside them stand above all of them.
INNER_LAYERS = {
    "hlo/backend": (
        ("ir",),
        ("isa",),
        ("loops",),
        ("math", "lanes"),
        ("emitters",),
        ("kernels",),
        ("planning",),
        ("entry",),
        ("linking",),
        ("ahead",),
    ),
    "hlo/backend/kernels/contraction": (
        ("problem",),
        ("microkernels",),
        ("packing",),
        ("words",),
        ("vectors",),
        ("products",),
        ("matrix_units", "convolutions", "direct"),
    ),
}
# Rooms of one rank stand beside each other; these pairs look sideways, for the reason given.
SIDEWAYS = {
    ("parser", "printer"): "the parser prints no text, but round trips share number formats",
}
DOORS = {
    "lark": "parser/lark_machine.py",
    "llvmlite": "backend",
    "click": "cli",
    "jax": "tools/jax_door.py",
    "jaxlib": "tools/jax_door.py",
    "lsprotocol": "tools/language_server.py",
    "pygls": "tools/language_server.py",
}
LONGEST_FILE = 500
LONGEST_FUNCTION = 60
# A file or function may stand here only with a reason; the list may only shrink.
LONG: dict[str, str] = {}

# Instructions are asked about in one room, which knows machines, the writer and types.
INSTRUCTIONS = "hlo/backend/isa"
BELOW_INSTRUCTIONS = {"hlo.machine", "hlo.once", "hlo.backend.ir.writer", "hlo.backend.ir.kernel"}
BELOW_INSTRUCTIONS |= {"hlo.backend.ir.values", "hlo.backend.ir.records", "hlo.ir", "hlo.ir.dtype"}
BELOW_INSTRUCTIONS |= {"hlo.backend.ir.procedure", "hlo.backend.ir.words"}
BELOW_INSTRUCTIONS |= {"hlo.backend.ir.interface"}
# Those that describe machines, and that tell LLVM of one.
KNOW_FEATURES = {"hlo/machine.py", "hlo/backend/linking/toolchain.py"}
HLO_WORDS = {"bf16", "popcnt"}  # a type, an op
FEATURES = {f for machine in NAMED.values() for f in machine.features} - HLO_WORDS
OF_INSTRUCTIONS = re.compile(r"llvm\\?\.(x86|aarch64)|\basm (sideeffect|\")| asm |\b[xyz]mm\d*\b")


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "hlo").parts[0].removesuffix(".py")


def imports_of(path: Path) -> list[str]:
    found = []
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


def type_checking_imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for inner in ast.walk(node):
                if isinstance(inner, ast.ImportFrom) and inner.module:
                    found.add(inner.module)
    return found


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    own = room_of(path)
    if own == "__init__":
        return
    for module in set(imports_of(path)) - type_checking_imports(path):
        parts = module.split(".")
        if parts[0] == "hlo" and len(parts) > 1:
            target = parts[1]
            allowed = RANK[target] < RANK[own] or target == own or (own, target) in SIDEWAYS
            assert allowed, f"{path.relative_to(ROOT)} ({own}) imports {module}"


BACKEND = [p for p in FILES if room_of(p) == "backend"]


def inner_room(path: Path, house: str) -> str:
    """The room of a file inside of a house of rooms, empty for those beside the rooms."""
    parts = path.relative_to(ROOT / house).parts
    return parts[0] if len(parts) > 1 else ""


@pytest.mark.parametrize("house", INNER_LAYERS)
def test_imports_point_down_inside_a_room(house: str) -> None:
    layers = INNER_LAYERS[house]
    ranks = {room: i for i, rooms in enumerate(layers) for room in rooms}
    files = {p for p in FILES if p.is_relative_to(ROOT / house)}
    assert {inner_room(p, house) for p in files} == {*ranks, ""}
    for path in files:
        own = inner_room(path, house)
        for target in imported(path) & files:
            room = inner_room(target, house)
            allowed = room == own or ranks.get(room, len(layers)) < ranks.get(own, len(layers))
            assert allowed, f"{path.relative_to(ROOT)} ({own}) imports {target.relative_to(ROOT)}"


def test_the_picture_of_the_rooms_is_what_the_imports_are() -> None:
    """python -m tests.support.rooms prints it."""
    assert picture() in (ROOT / "docs" / "compiler.md").read_text()


def test_loops_are_chosen_without_writing_code() -> None:
    for path in BACKEND:
        if inner_room(path, "hlo/backend") == "loops":
            assert ROOT / "hlo/backend/ir/writer.py" not in imported(path), path


# The nodes of a program point at each other, and so do their types.
NODES = {ROOT / "hlo" / "ir" / f"{name}.py" for name in ("module", "computation", "instruction")}


def test_no_files_import_each_other_in_a_circle() -> None:
    """Inside functions and for types alone as well."""
    graph = {p: imported(p) - (NODES if p in NODES else set()) for p in FILES}
    reached: dict[Path, set[Path]] = {}
    for path in FILES:
        reached[path], stack = set(), [path]
        while stack:
            for target in graph.get(stack.pop(), set()) - reached[path]:
                reached[path].add(target)
                stack.append(target)

    def name(path: Path) -> str:
        return "/".join(path.with_suffix("").parts[-2:])

    found = {
        frozenset(name(q) for q in reached[p] if p in reached[q]) for p in FILES if p in reached[p]
    }
    assert found == set()


# Whose names are known at run time only.
BY_NAME = {
    "hlo/__init__.py": "the public names, each at its first use",
    "hlo/passes/pass_lookup.py": "a pass by its own name, where a program has the ops it is about",
    "hlo/tools/jax_door.py": "jax, if it is there, without its types",
}


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_are_statements(path: Path) -> None:
    """Where the type checker sees what is imported."""
    is_by_name = re.search(r"\b(import_module|__import__)\(", path.read_text()) is not None
    assert is_by_name == (str(path.relative_to(ROOT)) in BY_NAME)


def test_tests_and_benchmarks_are_of_short_files_too() -> None:
    paths = [p for room in ("tests", "benchmarks") for p in (ROOT / room).rglob("*.py")]
    long = [p for p in paths if p.read_text().count("\n") > LONGEST_FILE]
    assert [str(p.relative_to(ROOT)) for p in long] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_third_parties_have_one_door(path: Path) -> None:
    for module in imports_of(path):
        door = DOORS.get(module.split(".")[0], "")
        name = str(path.relative_to(ROOT / "hlo"))
        assert name.startswith(door), f"{name} imports {module}"


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_sizes(path: Path) -> None:
    text = path.read_text()
    name = str(path.relative_to(ROOT))
    assert text.count("\n") <= LONGEST_FILE or name in LONG, f"{name} is too long"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            size = (node.end_lineno or 0) - node.lineno + 1
            key = f"{name}:{node.name}"
            assert size <= LONGEST_FUNCTION or key in LONG, f"{key} has {size} lines"


def test_no_drawers() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc", "base"}
    assert [str(p) for p in FILES if p.stem in drawers] == []


def texts_of(path: Path) -> Iterator[str]:
    """The texts in a file's code; what is said about the code stands aside."""
    tree = ast.parse(path.read_text())
    said = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in said:
            yield node.value


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_instructions_are_asked_about_in_one_room(path: Path) -> None:
    """Elsewhere no feature, no intrinsic of a machine and no assembly is named."""
    name = str(path.relative_to(ROOT))
    if name.startswith(INSTRUCTIONS):
        outside = {m for m in imports_of(path) if m.startswith("hlo") and "backend.isa" not in m}
        assert outside <= BELOW_INSTRUCTIONS, f"{name} imports what rests on instructions"
        return
    for text in texts_of(path):
        assert not OF_INSTRUCTIONS.search(text), f"{name}: {text!r} belongs to {INSTRUCTIONS}"
        is_feature = text in FEATURES and name not in KNOW_FEATURES
        assert not is_feature, f"{name}: {text!r} is a question for {INSTRUCTIONS}"


# Names and comments of a number that describes a machine.
OF_MACHINES = re.compile(
    r"PER_(US|CYCLE)\b|LATENCY|LINE_BYTES\b|CACHE|(_|\b)(L[123]|WAYS?|SETS|REGISTERS|BANDWIDTH)(_|\b)"
)
OF_CACHES = re.compile(r"\b(caches?|(in|the) L[123]|second-level|first-level)\b")
# Caches of files and of objects are none of a processor's; tiles are an instruction set's.
NOT_DESCRIBED = ("linking", "isa")
DESCRIBED = [
    p
    for p in FILES
    if {"passes", "backend"} & set(p.parts) and not set(NOT_DESCRIBED) & set(p.parts)
]


def numbers_of(text: str) -> list[tuple[str, str]]:
    """The module constants that are written as numbers: names, and the line with its comment."""
    lines, found = text.splitlines(), []
    for node in ast.parse(text).body:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
            continue
        inside = list(ast.walk(node.value))
        is_number = any(isinstance(n, ast.Constant) and n.value != str(n.value) for n in inside)
        if is_number and not any(isinstance(n, ast.Name | ast.Call | ast.Dict) for n in inside):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            line = lines[node.lineno - 1]
            above = lines[node.lineno - 2] if node.lineno > 1 else ""
            comment = line.partition("#")[2] + (above if above.startswith("#") else "")
            found.append((ast.unparse(targets[0]), comment))
    return found


@pytest.mark.parametrize("path", DESCRIBED, ids=lambda p: str(p.relative_to(ROOT)))
def test_what_describes_a_machine_stands_in_its_description(path: Path) -> None:
    """Rates, lines and sizes of caches are hlo/machine.py's: functions of it are derived."""
    text = path.read_text()
    numbers = numbers_of(text)
    assert [n for n, c in numbers if OF_MACHINES.search(n) or OF_CACHES.search(c)] == []
    assert not re.search(r"from hlo\.machine import .*\bCache\b|\bRates\(", text)


def test_the_scan_finds_numbers_of_machines() -> None:
    text = "L2_BYTES = 1 << 20\nFAR = 1 << 22  # comes from no cache\nBYTES_PER_US = 2.0\nFEW = 3\n"
    found = numbers_of(text)
    assert [OF_MACHINES.search(n) or OF_CACHES.search(c) for n, c in found][3] is None
    assert all(OF_MACHINES.search(n) or OF_CACHES.search(c) for n, c in found[:3])
