"""Which outputs share memory with operands or parameters, and which parameters are donated."""

from __future__ import annotations

from msgspec import Struct

from hlo.attributes.ints import ints_text
from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, int64, ints_of, subtrees, tokens
from hlo.errors import Violation

Ints = tuple[int, ...]
_KINDS = ("may-alias", "must-alias")


class OperandAlias(Struct, frozen=True):
    """The output at `output` uses the memory of operand number `operand` at `index`."""

    output: Ints
    operand: int
    index: Ints


class InputAlias(Struct, frozen=True):
    """The module's output at `output` may or must use the memory of a parameter at `index`."""

    output: Ints
    parameter: int
    index: Ints
    kind: str = "may-alias"


class Donation(Struct, frozen=True):
    """A parameter's buffer at `index` that the program may overwrite."""

    parameter: int
    index: Ints

    def __lt__(self, other: Donation) -> bool:
        return (self.parameter, self.index) < (other.parameter, other.index)


def _number(tree: Tree) -> int:
    return int64(tokens(tree, "INT")[0])


def _indices(tree: Tree) -> list[Ints]:
    return [ints_of(t) for t in subtrees(tree, "shape_index")]


def _operand_aliases(tree: Tree) -> tuple[OperandAlias, ...]:
    return tuple(
        OperandAlias(_indices(alias)[0], _number(alias), _indices(alias)[1])
        for alias in subtrees(tree, "alias")
    )


def _operand_aliases_text(aliases: tuple[OperandAlias, ...]) -> str:
    pairs = (f"{ints_text(a.output)}: ({a.operand}, {ints_text(a.index)})" for a in aliases)
    return "{" + ", ".join(pairs) + "}"


def _input_aliases(tree: Tree) -> tuple[InputAlias, ...]:
    """Sorted by output; the first of two entries for one output wins."""
    found: dict[Ints, InputAlias] = {}
    for alias in subtrees(tree, "alias"):
        output, index = _indices(alias)
        kind = (tokens(alias, "IDENT") or ["may-alias"])[0]
        if kind not in _KINDS:
            raise Violation("attribute-value", "", kind, "may-alias or must-alias")
        if output in found:
            continue  # the first wins; XLA looks no further at the others
        if _number(alias) < 0:
            raise Violation("attribute-value", "", f"parameter {_number(alias)}", "0 or more")
        found[output] = InputAlias(output, _number(alias), index, kind)
    return tuple(found[output] for output in sorted(found))


def _input_aliases_text(aliases: tuple[InputAlias, ...]) -> str:
    entries = (
        f"{ints_text(a.output)}: ({a.parameter}, {ints_text(a.index)}, {a.kind})" for a in aliases
    )
    return "{ " + ", ".join(entries) + " }"


def _donations(tree: Tree) -> tuple[Donation, ...]:
    found = sorted({Donation(_number(d), _indices(d)[0]) for d in subtrees(tree, "donation")})
    if found and found[0].parameter < 0:
        raise Violation("attribute-value", "", f"parameter {found[0].parameter}", "0 or more")
    return tuple(found)


def _donations_text(donations: tuple[Donation, ...]) -> str:
    return "{ " + ", ".join(f"({d.parameter}, {ints_text(d.index)})" for d in donations) + " }"


OUTPUT_TO_OPERAND_ALIASING = AttributeKind(
    "OUTPUT_TO_OPERAND_ALIASING",
    "kind_output_to_operand_aliasing",
    _operand_aliases,
    _operand_aliases_text,
)
INPUT_OUTPUT_ALIAS = AttributeKind(
    "INPUT_OUTPUT_ALIAS", "kind_input_output_alias", _input_aliases, _input_aliases_text
)
BUFFER_DONOR = AttributeKind("BUFFER_DONOR", "kind_buffer_donor", _donations, _donations_text)
