"""frontend_attributes: `{key="value",other={"raw": "dict"}}`, sorted by key."""

from __future__ import annotations

from hlo.attributes.backend_config import string_or_dict, string_or_dict_text
from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, key_of, subtrees

FrontendAttributes = tuple[tuple[str, str], ...]


def _frontend_attributes(tree: Tree) -> FrontendAttributes:
    """Pairs sorted by key; the last of a repeated key wins."""
    pairs = {key_of(t): string_or_dict(t) for t in subtrees(tree, "frontend_pair")}
    return tuple(sorted(pairs.items()))


def frontend_attributes_text(pairs: FrontendAttributes, *, reads_back: bool = True) -> str:
    """Pairs joined by a comma alone."""
    texts = (f"{key}={string_or_dict_text(value, reads_back=reads_back)}" for key, value in pairs)
    return "{" + ",".join(texts) + "}"


FRONTEND_ATTRIBUTES = AttributeKind(
    "FRONTEND_ATTRIBUTES",
    "kind_frontend_attributes",
    _frontend_attributes,
    frontend_attributes_text,
)
