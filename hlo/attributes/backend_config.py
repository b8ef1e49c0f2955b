"""backend_config: a string, printed raw where it reads as a JSON dict."""

from __future__ import annotations

import re

from hlo.attributes.escape import is_raw_dict, quoted, unquoted
from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, has, tokens


def string_or_dict(tree: Tree) -> str:
    """The contents of a String, or a raw dict with its braces."""
    (text,) = tokens(tree, "STRING", "DICT")
    return text if has(tree, "DICT") else unquoted(text)


def string_or_dict_text(text: str, *, reads_back: bool = True) -> str:
    """Raw where it reads as one JSON dict, else quoted.

    reads_back: XLA leaves blanks and comments around the dict, which then are lost or end the text.
    """
    return text if is_raw_dict(text, alone=reads_back) else quoted(text)


# A retired GPU field; where it is empty and others follow, XLA's reader takes it out of the text.
_RETIRED = re.compile(r'"wait_on_operation_queues"\s*:\s*\[\s*\]\s*,', re.ASCII)


def _config(tree: Tree) -> str:
    return _RETIRED.sub("", string_or_dict(tree))


BACKEND_CONFIG = AttributeKind(
    "BACKEND_CONFIG", "kind_backend_config", _config, string_or_dict_text
)
