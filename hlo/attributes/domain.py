"""domain: `{kind="sharding", entry={...}, exit={...}}`."""

from __future__ import annotations

from msgspec import Struct

from hlo.attributes.escape import unquoted
from hlo.attributes.kind import AttributeKind
from hlo.attributes.sharding import Sharding, build_sharding, sharding_text
from hlo.attributes.tree import Tree, fields, subtrees, tokens, unknown_field
from hlo.errors import Violation


class Domain(Struct, frozen=True):
    """The shardings on both sides of a domain boundary."""

    entry: Sharding
    exit: Sharding


_FIELDS = ("kind", "entry", "exit")


def _domain(tree: Tree) -> Domain:
    sides: dict[str, Sharding] = {}
    kind = ""
    for key, field in fields(tree, "domain_field"):
        if key == "kind" and tokens(field, "STRING"):
            kind = unquoted(tokens(field, "STRING")[0])
        elif key in ("entry", "exit") and subtrees(field, "kind_sharding"):
            sides[key] = build_sharding(subtrees(field, "kind_sharding")[0])
        else:
            raise unknown_field(key, _FIELDS)
    if kind != "sharding" or len(sides) != 2:
        raise Violation("attribute-value", "", "a domain", 'kind="sharding", entry and exit')
    return Domain(sides["entry"], sides["exit"])


def domain_text(domain: Domain, *, reads_back: bool = True) -> str:
    """XLA never prints the shardings' metadata here."""
    entry = sharding_text(domain.entry, metadata=reads_back, reads_back=reads_back)
    exit_ = sharding_text(domain.exit, metadata=reads_back, reads_back=reads_back)
    return f'{{kind="sharding", entry={entry}, exit={exit_}}}'


DOMAIN = AttributeKind("DOMAIN", "kind_domain", _domain, domain_text)
