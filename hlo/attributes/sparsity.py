"""sparsity_config of a convolution: `{lhs={sparsity=2x4 dimension=1 stride=2}}`."""

from __future__ import annotations

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, fields, int64, tokens, unknown_field
from hlo.errors import Violation


class Sparsity(Struct, frozen=True):
    """n of m elements are kept along a dimension; idx: the operand of indices (newer XLA)."""

    n: int = 0
    m: int = 0
    dimension: int = 0
    stride: int = 0
    idx: int | None = None


class SparsityConfig(Struct, frozen=True):
    """What is sparse: the input, the kernel."""

    lhs: Sparsity | None = None
    rhs: Sparsity | None = None


_FIELDS = ("sparsity", "dimension", "stride", "idx")


def _sparsity_config(tree: Tree) -> SparsityConfig:
    sides: dict[str, Sparsity] = {}
    for key, side in fields(tree, "sparsity_side"):
        if key not in ("lhs", "rhs"):
            raise unknown_field(key, ("lhs", "rhs"))
        sides[key] = _sparsity(side)
    return SparsityConfig(sides.get("lhs"), sides.get("rhs"))


def _sparsity(side: Tree) -> Sparsity:
    found: dict[str, int] = {}
    for key, field in fields(side, "sparsity_field"):
        if key not in _FIELDS:
            raise unknown_field(key, _FIELDS)
        (text,) = tokens(field, "DXD", "INT")
        numbers = [int64(n) for n in text.split("x")]
        if len(numbers) != (2 if key == "sparsity" else 1):
            raise Violation("attribute-value", "", f"{key}={text}", "sparsity=NxM, dimension=D")
        if key == "sparsity":
            found["n"], found["m"] = numbers
        else:
            found[key] = numbers[0]
    return Sparsity(**found)


def _side_text(s: Sparsity) -> str:
    idx = "" if s.idx is None else f" idx={s.idx}"
    return f"{{sparsity={s.n}x{s.m} dimension={s.dimension} stride={s.stride}{idx}}}"


def sparsity_config_text(config: SparsityConfig) -> str:
    """Sides that were given, all their numbers."""
    sides = (("lhs", config.lhs), ("rhs", config.rhs))
    return "{" + " ".join(f"{key}={_side_text(s)}" for key, s in sides if s is not None) + "}"


SPARSITY = AttributeKind("SPARSITY", "kind_sparsity", _sparsity_config, sparsity_config_text)
