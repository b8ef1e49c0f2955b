"""Results in the order of memory that the header asks for, as HLO.

    f32[5,4]{0,1} r, the header's result  =>  f32[4,5] transpose(r), row-major

All native code writes row-major arrays. So a result with another layout is the row-major array of
its dimensions in the order of memory: passes fuse that transpose, or find that it undoes one of the
program's. The runtime shows the array to the caller under its own dimensions again (a view).
"""

from __future__ import annotations

from msgspec.structs import replace

from hlo.ir.computation import Computation
from hlo.ir.graph import clone_module
from hlo.ir.instruction import Instruction
from hlo.ir.module import Module
from hlo.ir.shape import ProgramShape, Shape, stored


def in_memory_order(module: Module) -> Module:
    """The module itself where all results are row-major; else one whose results lie so."""
    layout = module.attributes.get("entry_computation_layout")
    if not isinstance(layout, ProgramShape):
        return module
    result = _stored_tree(layout.result)
    if result == layout.result or module.has_dynamic_sizes:
        return module
    changed = clone_module(module)
    entry = changed.entry
    entry.root = _ordered(entry, entry.root, layout.result)
    header = {"entry_computation_layout": ProgramShape(layout.parameters, result)}
    changed.attributes = {**changed.attributes, **header, **_aliases(module)}
    return changed


def _aliases(module: Module) -> dict[str, object]:
    """Aliases that only ask for the same memory: a result's dimensions may be others now."""
    aliases = module.attributes.get("input_output_alias")
    if not isinstance(aliases, tuple):
        return {}
    return {"input_output_alias": tuple(replace(a, kind="may-alias") for a in aliases)}


def _stored_tree(shape: Shape) -> Shape:
    if shape.is_tuple:
        return Shape.tuple(_stored_tree(e) for e in shape.elements)
    return stored(shape) if shape.is_array else shape


def _ordered(entry: Computation, value: Instruction, shape: Shape) -> Instruction:
    """The value with its leaves in the order that the shape's layouts say."""
    if _stored_tree(shape) == shape:
        return value
    if not shape.is_tuple:
        layout = shape.layout
        assert layout is not None, "no layout is the default one"
        order = layout.minor_to_major[::-1]
        return entry.new("transpose", stored(shape), (value,), {"dimensions": order}, like=value)
    parts = []
    for k, element in enumerate(shape.elements):
        if value.opcode == "tuple":
            part = value.operands[k]
        else:
            of = value.shape.elements[k]
            part = entry.new("get-tuple-element", of, (value,), {"index": k}, like=value)
        parts.append(_ordered(entry, part, element))
    made = entry.new("tuple", Shape.tuple(p.shape for p in parts), parts, like=value)
    if value.opcode == "tuple" and not value.users:
        entry.root = made
        entry.remove(value)
    return made
