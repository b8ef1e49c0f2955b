"""The grammar as one text, its digest, and what Lark makes of it as data.

    hlo.lark + attributes.lark + one `value` alternative per attribute kind --Lark--> tables

The data begin with a digest of the text: tables.py takes them by it, from the package (a build puts
them there, and `python -m hlo.parser.grammar`, for a source tree) or from the cache, and has them
made where neither has them. Imports no other third party: a build loads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from hlo.hashing import hasher

FILE = "tables.json"
FORM = 2  # of the data, and of how they are made
SOURCES = ("hlo.lark", "attributes.lark")
STARTS = (
    "module_text", "computations_text", "instruction_text", "header_prefix", "tables_prefix",
    "computation_prefix", "instruction_prefix", "operands_text", "attributes_text", "literal_text",
    "shape_text",
)  # fmt: skip
_KIND = re.compile(r"^(kind_\w+):", re.MULTILINE)


def packaged(name: str) -> bytes:
    """A file of this package; b"" where it is not there."""
    try:
        return Path(__file__).with_name(name).read_bytes()
    except OSError:
        return b""


def grammar_text() -> str:
    """The whole grammar: the files, and `value` with an alternative for each rule of a kind."""
    text = "\n".join(packaged(name).decode() for name in SOURCES)
    rules = sorted(_KIND.findall(text))
    values = "\n     | ".join(f"{marker(rule)} {rule}" for rule in rules)
    markers = "".join(f"{marker(rule)}: /as {rule}/\n" for rule in rules)
    return f"{text}\nvalue: {values}\n{markers}"


def marker(rule: str) -> str:
    """The terminal that the machine puts in front of a value, to say which rule it follows."""
    return "AS_" + rule.upper()


def digest(text: str) -> str:
    """What the tables of a grammar are named by."""
    return hasher(f"{FORM}\n{text}".encode()).hexdigest()


def made(text: str, starts: Iterable[str] = STARTS) -> bytes:
    """The tables of a grammar, as JSON; a third of a second."""
    import json  # what reads them is quicker, and no part of a build

    from hlo.parser.lark_machine import compiled  # Lark takes as long to load as all of parsing

    data = {"digest": digest(text), **compiled(text, starts)}
    return json.dumps(data, separators=(",", ":")).encode()


if __name__ == "__main__":
    Path(__file__).with_name(FILE).write_bytes(made(grammar_text()))
