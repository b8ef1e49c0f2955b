"""Donation: which results the header lets live in an argument's memory.

`input_output_alias={ {out}: (parameter, {index}, may-alias) }`: the compiled program then works on
that memory in place; the runtime hands it a copy of any argument that the caller keeps.
"""

from __future__ import annotations

from hlo.analysis.leaves import leaf_offset, leaves_of, value_bytes
from hlo.attributes.aliasing import InputAlias
from hlo.ir.module import Module
from hlo.ir.shape import Shape


def donated_leaves(module: Module) -> dict[int, int]:
    """Result leaf -> argument leaf that becomes it; each argument leaf once, sizes equal."""
    entry = module.entry
    aliases = module.attributes.get("input_output_alias", ())
    first = [0]
    for parameter in entry.parameters:
        first.append(first[-1] + len(leaves_of(parameter.shape)))
    found: dict[int, int] = {}
    for alias in aliases:  # type: ignore[attr-defined]  # a tuple of InputAlias
        assert isinstance(alias, InputAlias)
        if alias.parameter >= len(entry.parameters):
            continue
        shape = entry.parameters[alias.parameter].shape
        result = _leaf(entry.root.shape, alias.output)
        argument = _leaf(shape, alias.index)
        if result is None or argument is None:
            continue
        same = leaves_of(entry.root.shape)[result], leaves_of(shape)[argument]
        if value_bytes(same[0]) == value_bytes(same[1]) and same[0].dtype is same[1].dtype:
            number = first[alias.parameter] + argument
            if number not in found.values():
                found[result] = number
    return found


def _leaf(shape: Shape, index: tuple[int, ...]) -> int | None:
    """The number of the array leaf at an index; None where there is none."""
    number = 0
    for element in index:
        if not shape.is_tuple or element >= len(shape.elements):
            return None
        number += leaf_offset(shape, element)
        shape = shape.elements[element]
    return None if shape.is_tuple else number
