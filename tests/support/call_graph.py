"""Call graph of the package's source, and the cycles in it: what may call itself, and through whom.

A function or class that is named anywhere in a function's body counts as called, so callbacks,
facts and tables handed on are followed. A method of an object that the source does not name is
followed where its name tells: one class of the package has it, or the method asks for its own
name of what is no field.
What is left to tests that run: a table of ops whose many classes have methods of the same names.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hlo.process.garbage import uncollected
from tests.support.source_files import children, descendants

# Methods of Python's own containers, texts and files: what has them need not be of the package.
BUILTIN = frozenset(
    name
    for kind in (
        dict,
        list,
        set,
        frozenset,
        str,
        bytes,
        tuple,
        int,
        float,
        complex,
        Path,
        memoryview,
    )
    for name in dir(kind)
)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Source:
    """Names of a package: functions with the class that they are in, classes, and imports."""

    functions: dict[str, tuple[Function, str]] = field(default_factory=dict)
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    imports: dict[str, dict[str, str]] = field(default_factory=dict)  # of each module
    methods: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    values: dict[str, set[str]] = field(default_factory=dict)  # parameters and variables of each

    def enter(self, module: str, text: str) -> None:
        tree = ast.parse(text)
        self.imports[module] = {
            alias.asname or alias.name: f"{node.module}.{alias.name}"
            for node in descendants(tree)
            if isinstance(node, ast.ImportFrom) and node.module
            for alias in node.names
        }
        pending: list[tuple[ast.AST, str, str]] = [(tree, module, "")]
        while pending:
            node, name, owner = pending.pop()
            for child in children(node):
                if isinstance(child, Function):
                    inner = f"{name}.{child.name}"
                    self.functions[inner] = child, owner
                    self.values[inner] = set(_values(child))
                    if owner:
                        self.methods[child.name].add(inner)
                    pending.append((child, inner, ""))
                elif isinstance(child, ast.ClassDef):
                    inner = f"{name}.{child.name}"
                    self.classes[inner] = child
                    pending.append((child, inner, inner))
                else:
                    pending.append((child, name, owner))

    def module_of(self, name: str) -> str:
        while name not in self.imports:
            name = name.rpartition(".")[0]
        return name

    def named(self, scope: str, name: str) -> str:
        """What a name means in a function, "" if it is nothing of the package."""
        module = self.module_of(scope)
        while True:
            found = f"{scope}.{name}"
            if scope not in self.classes and (found in self.functions or found in self.classes):
                return found
            if name in self.values.get(scope, ()):
                return ""  # what it is is seen where it is handed on
            if scope == module:
                found = self.imports[module].get(name, "")
                known = found in self.functions or found in self.classes or found in self.imports
                return found if known else ""
            scope = scope.rpartition(".")[0]

    def method(self, owner: str, name: str) -> str:
        """A method of a class or of the classes of the package that it is made from."""
        pending = [owner]
        while pending:
            cls = pending.pop(0)
            if f"{cls}.{name}" in self.functions:
                return f"{cls}.{name}"
            pending += self.bases(cls)
        return ""

    def bases(self, cls: str) -> list[str]:
        """The classes of the package that a class is made from."""
        given = self.classes[cls].bases if cls in self.classes else []
        found = [self.named(self.module_of(cls), b.id) for b in given if isinstance(b, ast.Name)]
        return [b for b in found if b in self.classes]


@uncollected()
def read(root: Path) -> Source:
    """The package in a folder."""
    source = Source()
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        module = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        source.enter(module, path.read_text())
    return source


def _own_nodes(function: Function) -> Iterator[ast.AST]:
    """Nodes of a function, those of functions in it aside."""
    pending = children(function)
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, Function | ast.ClassDef):
            pending += children(node)


def _values(function: Function) -> Iterator[str]:
    """Names of parameters and variables, which hide functions of the same names."""
    for node in descendants(function.args):
        if isinstance(node, ast.arg):
            yield node.arg
    for node in _own_nodes(function):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id


def call_graph(source: Source) -> dict[str, set[str]]:
    """What each function may call."""
    return {
        name: set(_calls(source, name, function, owner))
        for name, (function, owner) in source.functions.items()
    }


def _calls(source: Source, name: str, function: Function, owner: str) -> Iterator[str]:
    scope_owner = owner
    scope = name
    while not scope_owner and "." in scope:  # a function in a method knows the method's self
        scope = scope.rpartition(".")[0]
        scope_owner = source.functions[scope][1] if scope in source.functions else ""
    for node in _own_nodes(function):
        if isinstance(node, Function):
            continue  # it is called where it is named
        found: Iterable[str] = ()
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
            found = [source.named(name, node.id)]
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            found = _attribute(source, name, scope_owner, node)
        for called in found:
            if called in source.classes:
                called = source.method(called, "__init__")
            if called in source.functions:
                yield called


def _attribute(source: Source, name: str, owner: str, node: ast.Attribute) -> list[str]:
    if isinstance(node.value, ast.Name):
        if node.value.id in ("self", "cls") and owner:
            return [source.method(owner, node.attr)]
        of = source.named(name, node.value.id)
        if of in source.classes:
            return [source.method(of, node.attr)]
        if of in source.imports:
            return [f"{of}.{node.attr}"]
    if owner and _is_super(node.value):
        return [source.method(base, node.attr) for base in source.bases(owner)]
    found = source.methods.get(node.attr, set())
    if len(found) == 1 and node.attr not in BUILTIN:
        return list(found)
    is_other = not isinstance(node.value, ast.Attribute)  # a field is rarely of the same class
    is_own = owner and is_other and node.attr not in BUILTIN
    return [name] if is_own and name.endswith(f".{node.attr}") else []


def _is_super(node: ast.expr) -> bool:
    """Whether a method is asked of the classes that the own one is made from."""
    called = node.func if isinstance(node, ast.Call) else None
    return isinstance(called, ast.Name) and called.id == "super"


def cycles(graph: Mapping[str, Iterable[str]]) -> list[tuple[str, ...]]:
    """Functions that call themselves, and the largest sets of such as call one another (Tarjan)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: dict[str, None] = {}
    found = []
    for start in graph:
        frames = [(start, iter(graph[start]))] if start not in index else []
        if frames:
            index[start] = low[start] = len(index)
            open_[start] = None
        while frames:
            top, rest = frames[-1]
            for called in rest:
                if called not in index:
                    index[called] = low[called] = len(index)
                    open_[called] = None
                    frames.append((called, iter(graph[called])))
                    break
                if called in open_:
                    low[top] = min(low[top], index[called])
            else:
                frames.pop()
                if frames:
                    low[frames[-1][0]] = min(low[frames[-1][0]], low[top])
                if low[top] == index[top]:
                    members = []
                    while not members or members[-1] != top:
                        members.append(open_.popitem()[0])
                    if len(members) > 1 or top in graph[top]:
                        found.append(tuple(sorted(members)))
    return sorted(found)
