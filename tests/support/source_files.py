"""The package's source files: each is parsed once in a process for all tests that ask of it.

What they ask is kept, trees are not: those of all files are a million nodes, and to walk them for
cycles again and again took the collector three times as long as to parse them.
"""

from __future__ import annotations

import ast
import gc
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "hlo").rglob("*.py"))
# Most of what a node holds: asked by type, which is fast, before whether it is a node.
NO_NODES = {int, str, type(None), ast.Load, ast.Store, ast.Del}


@dataclass(frozen=True)
class SourceFile:
    """What rules of the house are about."""

    name: str
    text: str
    imports: tuple[str, ...]
    imports_for_types: frozenset[str]
    names_from: tuple[tuple[str, str], ...]  # module and name of each `from module import name`
    functions: tuple[tuple[str, int], ...]  # names, and the number of lines
    texts: tuple[str, ...]  # in the code; what is said about the code stands aside
    classes: tuple[tuple[str, str], ...]  # names, and the first lines of their docstrings


@cache
def source_file(path: Path) -> SourceFile:
    text = path.read_text()
    nodes = nodes_of(text)
    said = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    checks = (n for n in nodes if isinstance(n, ast.If) and _asks_for_types(n.test))
    return SourceFile(
        name=path.relative_to(ROOT).as_posix(),
        text=text,
        imports=tuple(_imports(nodes)),
        imports_for_types=frozenset(
            m for check in checks for m, _ in _names_from(descendants(check))
        ),
        names_from=tuple(_names_from(nodes)),
        functions=tuple(
            (n.name, (n.end_lineno or 0) - n.lineno + 1)
            for n in nodes
            if isinstance(n, ast.FunctionDef)
        ),
        texts=tuple(
            n.value
            for n in nodes
            if isinstance(n, ast.Constant) and isinstance(n.value, str) and id(n) not in said
        ),
        classes=tuple(
            (n.name, (ast.get_docstring(n) or "").partition("\n")[0])
            for n in nodes
            if isinstance(n, ast.ClassDef)
        ),
    )


def tree_of(text: str) -> ast.Module:
    """A file's tree, made while the collector rests."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        return ast.parse(text)
    finally:
        if was_enabled:
            gc.enable()


def nodes_of(text: str) -> list[ast.AST]:
    """The nodes of a file's tree, outer ones first."""
    return descendants(tree_of(text))


def descendants(root: ast.AST) -> list[ast.AST]:
    """The node and what is in it, outer ones first, as `ast.walk` has them; contexts aside."""
    found = [root]
    for node in found:
        found += children(node)
    return found


def children(node: ast.AST) -> list[ast.AST]:
    """The nodes right below one, contexts aside."""
    found: list[ast.AST] = []
    for value in node.__dict__.values():
        kind = type(value)
        if kind in NO_NODES:
            continue
        if kind is list:
            found += [each for each in value if isinstance(each, ast.AST)]
        elif isinstance(value, ast.AST):
            found.append(value)
    return found


def _asks_for_types(test: ast.expr) -> bool:
    return any(
        "TYPE_CHECKING" in (getattr(node, "id", ""), getattr(node, "attr", ""))
        for node in descendants(test)
    )


def _imports(nodes: Iterable[ast.AST]) -> list[str]:
    found = []
    for node in nodes:
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            found.append(node.module)
    return found


def _names_from(nodes: Iterable[ast.AST]) -> list[tuple[str, str]]:
    return [
        (node.module, alias.name)
        for node in nodes
        if isinstance(node, ast.ImportFrom) and node.module
        for alias in node.names
    ]
