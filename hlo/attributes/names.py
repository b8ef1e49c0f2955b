"""References by name: a computation, computations, instructions of the same computation.

`build` gives the names as written; the parser resolves them, and the printer turns the nodes back
into names before it calls `print`.
"""

from __future__ import annotations

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, name_of, subtrees, token_type


def _computation(tree: Tree) -> str:
    (part,) = tree.children
    return name_of(part) if token_type(part) else str(part)  # a body's name, made by the parser


def _computations(tree: Tree) -> tuple[str, ...]:
    return tuple(_computation(t) for t in subtrees(tree, "kind_computation"))


def _instructions(tree: Tree) -> tuple[str, ...]:
    """Repeats are dropped: `{p,p}` means `{p}`."""
    named = (name_of(c) for c in tree.children if token_type(c) in ("NAME", "IDENT"))
    return tuple(dict.fromkeys(named))


def name_text(name: str) -> str:
    """`%name`."""
    return f"%{name}"


def names_text(names: tuple[str, ...]) -> str:
    """`{%a, %b}`."""
    return "{" + ", ".join(map(name_text, names)) + "}"


COMPUTATION = AttributeKind(
    "COMPUTATION", "kind_computation", _computation, name_text, refers="computation"
)
COMPUTATIONS = AttributeKind(
    "COMPUTATIONS", "kind_computations", _computations, names_text, refers="computations"
)
INSTRUCTIONS = AttributeKind(
    "INSTRUCTIONS", "kind_instructions", _instructions, names_text, refers="instructions"
)
