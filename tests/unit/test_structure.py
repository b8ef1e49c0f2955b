"""The house's rules: layers, doors of third parties, sizes, no drawers, the op table."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "hlo").rglob("*.py"))

# Each layer may import itself and what stands before it.
LAYERS = (
    ("source", "garbage", "once", "forking"),
    ("errors", "error_codes"),
    ("memory",),
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
    ("driver",),
    ("cli",),
)
RANK = {room: i for i, rooms in enumerate(LAYERS) for room in rooms}
# The same for the rooms of the back end; its files beside them stand above all of them.
BACKEND_LAYERS = (
    ("loops",),
    ("ir",),
    ("math", "lanes"),
    ("emitters",),
    ("kernels",),
    ("planning",),
    ("entry",),
    ("linking",),
)
BACKEND_RANK = {room: i for i, rooms in enumerate(BACKEND_LAYERS) for room in rooms}
# Circles of files in the rooms below, with what each waits for; the list may only shrink.
CIRCLES: dict[frozenset[str], str] = {
    frozenset({"emitters/elemental", "emitters/chains", "emitters/code_tables"}): (
        "chains are found by the evaluation, which asks for them"
    ),
}
# Rooms of one rank stand beside each other; these pairs look sideways, for the reason given.
SIDEWAYS = {
    ("parser", "printer"): "the parser prints no text, but round trips share number formats",
}
DOORS = {"lark": "parser", "llvmlite": "backend", "click": "cli", "jax": "tools", "jaxlib": "tools"}
LONGEST_FILE = 500
LONGEST_FUNCTION = 60
# A file or function may stand here only with a reason; the list may only shrink.
LONG: dict[str, str] = {}


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


def backend_room(path: Path) -> str:
    """The room of a file of the back end, empty for those beside the rooms."""
    parts = path.relative_to(ROOT / "hlo" / "backend").parts
    return parts[0] if len(parts) > 1 else ""


def module_files(path: Path) -> set[Path]:
    """The files that a file imports anywhere in it, under TYPE_CHECKING too."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hlo"):
            home = ROOT.joinpath(*(node.module or "").split("."))
            each = [home / alias.name for alias in node.names]
            found |= {p.with_suffix(".py") for p in (*each, home)}
    return {p for p in found if p.exists()}


@pytest.mark.parametrize("path", BACKEND, ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down_inside_the_backend(path: Path) -> None:
    own, top = backend_room(path), len(BACKEND_LAYERS)
    for target in module_files(path):
        if target in BACKEND:
            room = backend_room(target)
            rank = BACKEND_RANK.get(room, top)
            allowed = room == own or rank < BACKEND_RANK.get(own, top)
            assert allowed, f"{path.relative_to(ROOT)} ({own}) imports {target.relative_to(ROOT)}"


LOOPS = [p for p in BACKEND if backend_room(p) == "loops"]


@pytest.mark.parametrize("path", LOOPS, ids=lambda p: p.name)
def test_loops_are_data_that_know_no_code(path: Path) -> None:
    known = {"ir", "indexing", "analysis", "machine"}
    for module in imports_of(path):
        parts = module.split(".")
        assert parts[0] != "hlo" or parts[1] in known or parts[:3] == ["hlo", "backend", "loops"]


def test_no_files_of_the_backend_import_each_other_in_a_circle() -> None:
    rooms = [p for p in FILES if room_of(p) in ("indexing", "analysis", "passes", "backend")]
    graph = {p: module_files(p) & set(rooms) for p in rooms}
    reached: dict[Path, set[Path]] = {}
    for path in rooms:
        reached[path], stack = set(), [path]
        while stack:
            for target in graph[stack.pop()] - reached[path]:
                reached[path].add(target)
                stack.append(target)

    def name(path: Path) -> str:
        return "/".join(path.with_suffix("").parts[-2:])

    found = {
        frozenset(name(q) for q in reached[p] if p in reached[q]) for p in rooms if p in reached[p]
    }
    assert found == set(CIRCLES)


def test_tests_and_benchmarks_are_of_short_files_too() -> None:
    paths = [p for room in ("tests", "benchmarks") for p in (ROOT / room).rglob("*.py")]
    long = [p for p in paths if p.read_text().count("\n") > LONGEST_FILE]
    assert [str(p.relative_to(ROOT)) for p in long] == []


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_third_parties_have_one_door(path: Path) -> None:
    for module in imports_of(path):
        door = DOORS.get(module.split(".")[0])
        assert door in (None, room_of(path)), f"{path.relative_to(ROOT)} imports {module}"


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
