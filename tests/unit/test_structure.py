"""The house's rules: layers, doors of third parties, sizes, no drawers, the op table."""

import ast
import re
from pathlib import Path

import pytest

from hlo.machine import NAMED
from tests.support.rooms import imported, listing, picture, sentence
from tests.support.source_files import FILES, ROOT, source_file

# Each layer may import itself and what stands before it.
LAYERS = (
    ("source", "choices", "progress", "hashing"),
    ("errors", "error_codes"),
    ("process", "cache"),
    ("ir",),
    ("machine",),
    ("given_machines",),
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
# The same for rooms inside of rooms; files beside them that are not named here stand above all of
# them.
INNER_LAYERS = {
    "hlo/passes": (
        ("liveness", "remarks", "settling"),
        ("loop_making", "rewriting"),
        ("patterns",),
        ("simplify",),
        ("padding", "while_loops"),
        ("expand", "reduction"),
        ("fusion",),
        ("movement",),
        ("contraction", "blocks", "scores"),
    ),
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
        ("host", "interpreted", "padded", "perf_labels", "refusals"),
        ("compilation",),
        ("ahead", "profiling", "stages", "probing"),
    ),
    "hlo/tools": (
        ("bench", "files"),
        ("cases",),
        ("jax",),
        ("comparison",),
        ("faults",),
        ("inspection", "editors"),
    ),
    "hlo/backend/kernels/contraction": (
        ("problem",),
        ("microkernels",),
        ("packing",),
        ("words",),
        ("vectors",),
        ("products",),
        ("matrix_units",),
        ("convolutions", "direct"),
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
    "jax": "tools/jax/jax_door.py",
    "jaxlib": "tools/jax/jax_door.py",
    "lsprotocol": "tools/editors/language_server.py",
    "pygls": "tools/editors/language_server.py",
}
LONGEST_FILE = 500
LONGEST_FUNCTION = 60
# A file or function may stand here only with a reason; the list may only shrink.
LONG: dict[str, str] = {}

# Instructions are asked about in one room, which knows machines, the writer and types.
INSTRUCTIONS = "hlo/backend/isa"
BELOW_INSTRUCTIONS = {
    "hlo.machine",
    "hlo.process.once",
    "hlo.backend.ir.writer",
    "hlo.backend.ir.kernel",
}
BELOW_INSTRUCTIONS |= {"hlo.backend.ir.values", "hlo.backend.ir.records", "hlo.ir", "hlo.ir.dtype"}
BELOW_INSTRUCTIONS |= {"hlo.backend.ir.procedure", "hlo.backend.ir.words"}
BELOW_INSTRUCTIONS |= {"hlo.backend.ir.interface", "hlo.process.tile_permission"}
# Those that describe machines, and that tell LLVM of one.
KNOW_FEATURES = {
    "hlo/machine.py",
    "hlo/given_machines.py",
    "hlo/backend/linking/toolchain.py",
}
HLO_WORDS = {"bf16", "popcnt"}  # a type, an op
FEATURES = {f for machine in NAMED.values() for f in machine.features} - HLO_WORDS
OF_INSTRUCTIONS = re.compile(r"llvm\\?\.(x86|aarch64)|\basm (sideeffect|\")| asm |\b[xyz]mm\d*\b")


def room_of(path: Path) -> str:
    return path.relative_to(ROOT / "hlo").parts[0].removesuffix(".py")


def test_imports_point_down() -> None:
    found = []
    for path in FILES:
        own, file = room_of(path), source_file(path)
        for module in set(file.imports) - file.imports_for_types:
            parts = module.split(".")
            if own != "__init__" and parts[0] == "hlo" and len(parts) > 1:
                target = parts[1]
                allowed = RANK[target] < RANK[own] or target == own or (own, target) in SIDEWAYS
                found += [] if allowed else [f"{file.name} ({own}) imports {module}"]
    assert found == []


BACKEND = [p for p in FILES if room_of(p) == "backend"]


def inner_room(path: Path, house: str) -> str:
    """The room of a file inside of a house of rooms: of one beside the rooms its own name, where
    that has a layer, empty otherwise.
    """
    parts = path.relative_to(ROOT / house).parts
    beside = len(parts) == 1 and not any(path.stem in rooms for rooms in INNER_LAYERS[house])
    return "" if beside else parts[0].removesuffix(".py")


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


def test_every_file_says_what_it_is_in_a_line() -> None:
    """python -m tests.support.rooms ROOM lists them: the map of who is new here."""
    found = [path.relative_to(ROOT).as_posix() for path in FILES if sentence(path)[-1:] != "."]
    assert found == [], "the first line of a file's docstring is a sentence"
    listed = listing("backend/isa").splitlines()
    assert listed[1].split("  ", 1)[0] == "backend/isa/amx.py"
    assert listed[1].endswith(sentence(ROOT / "hlo/backend/isa/amx.py"))


def test_every_class_says_what_it_is_before_its_fields() -> None:
    field = re.compile(r"[a-z_]+(, [a-z_]+)*: ")
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in FILES
        for name, told in source_file(path).classes
        if field.match(told)
    ]
    assert found == [], "the first line of a class's docstring says what it is, not what a field is"


def test_what_stands_above_the_rooms_of_the_back_end_is_named_there() -> None:
    home = ROOT / "hlo/backend"
    told = (home / "__init__.py").read_text()
    beside = {path.name for path in home.glob("*.py")} - {"__init__.py"}
    assert beside == set(re.findall(r"\b\w+\.py\b", told)), "hlo/backend/__init__.py names all"


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
    "hlo/tools/jax/jax_door.py": "jax, if it is there, without its types",
}


def test_imports_are_statements() -> None:
    """Where the type checker sees what is imported."""
    by_name = re.compile(r"\b(import_module|__import__)\(")
    files = map(source_file, FILES)
    assert {file.name for file in files if by_name.search(file.text)} == set(BY_NAME)


def test_tests_and_benchmarks_are_of_short_files_too() -> None:
    paths = [p for room in ("tests", "benchmarks") for p in (ROOT / room).rglob("*.py")]
    long = [p for p in paths if p.read_text().count("\n") > LONGEST_FILE]
    assert [str(p.relative_to(ROOT)) for p in long] == []


def test_third_parties_have_one_door() -> None:
    found = [
        f"{file.name} imports {module}"
        for file in map(source_file, FILES)
        for module in file.imports
        if not file.name.startswith(f"hlo/{DOORS.get(module.split('.')[0], '')}")
    ]
    assert found == []


def test_sizes() -> None:
    found = []
    for file in map(source_file, FILES):
        lines = {file.name: (file.text.count("\n"), LONGEST_FILE)}
        for function, size in file.functions:
            lines[f"{file.name}:{function}"] = size, LONGEST_FUNCTION
        found += [f"{key} has {n} lines" for key, (n, most) in lines.items()
                  if n > most and key not in LONG]  # fmt: skip
    assert found == []


def test_no_drawers() -> None:
    drawers = {"utils", "util", "helpers", "common", "misc", "base"}
    assert [str(p) for p in FILES if p.stem in drawers] == []


def test_instructions_are_asked_about_in_one_room() -> None:
    """Elsewhere no feature, no intrinsic of a machine and no assembly is named."""
    found = []
    for file in map(source_file, FILES):
        if file.name.startswith(INSTRUCTIONS):
            outside = {m for m in file.imports if m.startswith("hlo") and "backend.isa" not in m}
            above = outside - BELOW_INSTRUCTIONS
            found += [f"{file.name} imports {m}, which rests on instructions" for m in above]
            continue
        named = [t for t in file.texts if OF_INSTRUCTIONS.search(t)]
        if file.name not in KNOW_FEATURES:
            named += [t for t in file.texts if t in FEATURES]
        found += [f"{file.name}: {text!r} is a question for {INSTRUCTIONS}" for text in named]
    assert found == []


# Names and comments of a number that describes a machine.
OF_MACHINES = re.compile(
    r"PER_(US|CYCLE)\b|LATENCY|(LINE|PAGE)_BYTES\b|CACHE|(_|\b)(L[123]|WAYS?|SETS|REGISTERS|BANDWIDTH)(_|\b)"
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


def test_what_describes_a_machine_stands_in_its_description() -> None:
    """Rates, lines and sizes of caches are hlo/machine.py's: functions of it are derived."""
    other = re.compile(r"from hlo\.machine import .*\bCache\b|\bRates\(")
    found = []
    for file in map(source_file, DESCRIBED):
        numbers = numbers_of(file.text)
        names = [n for n, c in numbers if OF_MACHINES.search(n) or OF_CACHES.search(c)]
        found += [f"{file.name}: {name}" for name in names]
        found += [f"{file.name}: {made[0]}" for made in other.finditer(file.text)]
    assert found == []


def test_one_fact_has_one_name() -> None:
    """Numbers with equal names and comments in several files are one fact, written twice."""
    places: dict[tuple[str, str, str], list[str]] = {}
    number = re.compile(r"^_?([A-Z][A-Z0-9_]*) = ([^#\n]*\d[^#\n]*)  # (.+)$", re.MULTILINE)
    for file in map(source_file, FILES):
        for name, value, told in number.findall(file.text):
            places.setdefault((name, value, told), []).append(file.name)
    found = {key: names for key, names in places.items() if len(names) > 1}
    assert found == {}, "one of them imports it from the other"


def test_sizes_of_memory_are_rounded_up_by_one_function() -> None:
    rounding = re.compile(r"// (64|_?ALIGN\w*)\) \* (64|_?ALIGN\w*)")
    found = [f.name for f in map(source_file, FILES) if rounding.search(f.text)]
    assert found == ["hlo/machine.py"], "aligned() of hlo/machine.py"


def test_the_scan_finds_numbers_of_machines() -> None:
    text = "L2_BYTES = 1 << 20\nFAR = 1 << 22  # comes from no cache\nBYTES_PER_US = 2.0\nFEW = 3\n"
    found = numbers_of(text)
    assert [OF_MACHINES.search(n) or OF_CACHES.search(c) for n, c in found][3] is None
    assert all(OF_MACHINES.search(n) or OF_CACHES.search(c) for n, c in found[:3])
