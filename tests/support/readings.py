"""What a row's `infer`, `check` and `evaluate` take, from keywords as tests write them."""

from __future__ import annotations

from hlo.ops.table import OPS


def taken(opcode: str, **keywords: object) -> dict[str, object]:
    """The opcode's attributes among the keywords as its record, the others as they are."""
    record = OPS[opcode].record
    own = {name: keywords.pop(name) for name in record.__struct_fields__ if name in keywords}
    return {**keywords, "attrs": record(**own)} if record.__struct_fields__ else keywords
