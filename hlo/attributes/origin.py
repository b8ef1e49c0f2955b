"""origin: which values of the original program an instruction's leaves stand for.

And the table that says how to compute lost ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from msgspec import Struct

from hlo.attributes.escape import quoted, unquoted
from hlo.attributes.ints import ints_text
from hlo.attributes.kind import MODULE_READERS, AttributeKind
from hlo.attributes.tree import Tree, ints_of, subtrees, token_type, tokens
from hlo.errors import HloError, Violation

Ints = tuple[int, ...]
SYNTHETIC_CALL = "synthetic_call"
_BYTES = "surrogateescape"
DEEPEST = 200  # levels of tuples; no program comes near


class OriginalArray(Struct, frozen=True):
    """A leaf: an instruction of the original program, and where in its tuple."""

    name: str
    index: Ints = ()


class Origin(Struct, frozen=True):
    """Values of the original program that an instruction stands for.

    tree: a leaf, None (unknown), or a tuple of trees; or a call that no program text holds.
    """

    tree: object = ()
    synthetic_call: bool = False


def _origin(tree: Tree) -> Origin:
    words = tokens(tree, "IDENT")
    if words:
        if words != [SYNTHETIC_CALL]:
            raise Violation("attribute-value", "", f"[{words[0]}]", f"[{SYNTHETIC_CALL}]")
        return Origin(synthetic_call=True)
    return Origin(_tuples(_filled(tree))[0])


def _filled(tree: Tree) -> list[object]:
    """XLA's loose automaton (docs/text.md 2.9): what stands at each index path; the last one wins.

    A node is a list of nodes or a leaf; the answer is a list with the root in it. Behind a `)` that
    closes nothing XLA reads and writes beside its path, and most often ends for lack of memory.
    """
    path: list[int] = []
    opened = lost = False
    top: list[object] = [[]]
    for part in tree.children[1:-1]:
        kind = token_type(part)
        if kind == "LPAR":
            if len(path) == DEEPEST:
                raise Violation("attribute-value", "", "deeper tuples", f"at most {DEEPEST} levels")
            path.append(0)
            opened = True
        elif kind == "RPAR":
            lost = lost or not path
            del path[-1:]
        elif kind == "COMMA":
            if not opened:
                raise Violation("attribute-value", "", "a comma outside ()", "one value")
            if path:
                path[-1] += 1
        elif lost:
            raise Violation("attribute-value", "", "a value behind a ) that closes nothing", "a (")
        else:
            leaf = build_array(part)  # type: ignore[arg-type]  # a tree
            _put(top, [0, *path], leaf if leaf and leaf.name else None)  # as XLA prints ""
    return top


def _put(top: list[object], path: list[int], leaf: OriginalArray | None) -> None:
    """Set a leaf; nodes on the way that are none yet become lists."""
    nodes = top
    for k, index in enumerate(path):
        nodes += ([] for _ in range(index + 1 - len(nodes)))
        if k == len(path) - 1:
            nodes[index] = leaf
            continue
        below = nodes[index]
        if not isinstance(below, list):
            below = nodes[index] = []
        nodes = below


def _tuples(nodes: list[object]) -> tuple[object, ...]:
    """Recursive: at most DEEPEST levels."""
    return tuple(_tuples(n) if isinstance(n, list) else n for n in nodes)


def build_array(tree: Tree) -> OriginalArray | None:
    """From rule origin_array; None for `{}`."""
    names = tokens(tree, "STRING")
    if not names:
        return None
    indices = [ints_of(t) for t in subtrees(tree, "shape_index")]
    return OriginalArray(unquoted(names[0]), indices[0] if indices else ())


def _nested(leaves: dict[Ints, OriginalArray | tuple[()] | None]) -> object:
    """Tuples from index paths, deepest first; places that nothing fills are None."""
    children: dict[Ints, dict[int, object]] = {}
    if not leaves:
        return ()
    for path in sorted(leaves, key=len, reverse=True):
        value = leaves[path]
        below = children.pop(path, None)
        if below is not None:
            value = tuple(below.get(k) for k in range(max(below) + 1))  # type: ignore[assignment]  # a tuple
        if not path:
            return value
        children.setdefault(path[:-1], {})[path[-1]] = value
        leaves.setdefault(path[:-1], ())
    return ()


def origin_text(origin: Origin, *, escape: bool = True) -> str:
    """`{({"a"}, {"b" {0}})}`; escape: XLA writes the names as they are."""
    if origin.synthetic_call:
        return f"{{[{SYNTHETIC_CALL}]}}"
    return "{" + "".join(_tree_texts(origin.tree, escape=escape)) + "}"


def _tree_texts(tree: object, *, escape: bool) -> Iterator[str]:
    """Pieces of text; an explicit stack, for trees may be deep."""
    stack: list[object] = [tree]
    while stack:
        top = stack.pop()
        if isinstance(top, str):
            yield top
        elif isinstance(top, tuple):
            yield "("
            stack.append(")")
            for k, part in reversed(list(enumerate(top))):
                stack.append(part)
                if k:
                    stack.append(", ")
        else:
            yield array_text(top, escape=escape)  # type: ignore[arg-type]  # a leaf


def array_text(array: OriginalArray | None, *, escape: bool = True) -> str:
    """`{"name" {0}}`, `{}` for an unknown one."""
    if array is None:
        return "{}"
    name = quoted(array.name) if escape else f'"{array.name}"'
    index = f" {ints_text(array.index)}" if array.index else ""
    return f"{{{name}{index}}}"


class Recovery(Struct, frozen=True):
    """How to get a lost original value from another: by a module, or as it is.

    module: the text of a module in the form that reads back, or "".
    """

    lost: OriginalArray
    replacing: OriginalArray
    module: str = ""


RecoveryTable = tuple[Recovery, ...]


def _recovery_table(tree: Tree) -> RecoveryTable:
    """Sorted by what is lost; the first entry for it counts."""
    found: dict[OriginalArray, Recovery] = {}
    for entry in subtrees(tree, "recovery_entry"):
        lost, replacing = (
            build_array(t) or OriginalArray("") for t in subtrees(entry, "origin_array")
        )
        texts = tokens(entry, "STRING")
        module = _checked_module(unquoted(texts[0])) if texts else ""
        found.setdefault(lost, Recovery(lost, replacing, module))
    return tuple(
        sorted(found.values(), key=lambda r: (r.lost.name.encode(errors=_BYTES), r.lost.index))
    )


def _checked_module(text: str) -> str:
    for read in MODULE_READERS:
        try:
            return str(read(text))
        except HloError as error:
            found = f"a module that does not parse ({error.message})"
            raise Violation("attribute-value", "", found, "the text of a module") from None
    return text


def recovery_table_text(
    table: RecoveryTable,
    inner: Callable[[str], str] | None = None,
    *,
    escape: bool = True,
    indent: int = 0,
) -> str:
    """Over several lines; the closing brace stands at the left margin.

    inner: the printer's way to write a module's text, two steps further in; escape: XLA writes
    quotation marks as they are.
    """
    tab, write = "  " * (indent + 1), inner or _indented
    rows = []
    for recovery in table:
        lost = array_text(recovery.lost, escape=escape)
        row = f"{tab}{lost} : {array_text(recovery.replacing, escape=escape)}"
        if recovery.module:
            body = write(recovery.module)
            if escape:
                body = body.replace("\\", "\\\\").replace('"', '\\"')
            row += f',\n{tab}"\n{body}\n{tab}"'
        rows.append(row + "\n")
    return "{\n" + "".join(rows) + "}\n"


def _indented(text: str) -> str:
    return "".join(f"    {line}\n" if line else "\n" for line in text.split("\n")[:-1])


ORIGIN = AttributeKind("ORIGIN", "kind_origin", _origin, origin_text)
ORIGIN_RECOVERY_TABLE = AttributeKind(
    "ORIGIN_RECOVERY_TABLE", "kind_origin_recovery_table", _recovery_table, recovery_table_text
)
