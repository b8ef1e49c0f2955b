"""AttributeKind: how a kind of attribute value is read from its tree and written as text.

text --hlo.lark, start rule `rule`--> tree --build--> value --print--> text
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

# The parser stands above the attributes, so it enters itself here, for those that hold the text of
# a module: one function text -> Module.
MODULE_READERS: list[Callable[[str], object]] = []


class AttributeKind(Struct, frozen=True, eq=False):
    """A language that attributes are written in, in both directions.

    rule: the start rule of the grammar that its text follows.

    build(tree) -> value, raising Violation("attribute-value", at, found, expected) on a bad value;
    print(value) -> XLA's text; one property test checks build(parse(print(v))) == v for all kinds.
    """

    name: str
    rule: str
    build: Callable[..., object]
    print: Callable[..., str]
    # "computation", "computations", "instructions": build gives names, which the parser resolves.
    refers: str = ""
    words: tuple[str, ...] = ()  # of an enumeration: all that it may say
