"""Shapes as messages, in both directions.

    Shape --shape_message--> ShapeProto --shape_text--> the text that the parser reads

What comes from outside goes through the parser, which checks it.
"""

from __future__ import annotations

from functools import lru_cache

from hlo.errors import HloError
from hlo.formats.message import Message, enum_numbers, enum_words
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.layout import COMBINE, Layout
from hlo.ir.shape import UNBOUNDED, ProgramShape, Shape, join_indexed

TYPES = "PrimitiveType"
LEAST = -(1 << 63)  # stands for a dimension written `?`, and for one of a tile written `*`
OTHER_NAMES = {"OPAQUE_TYPE": "opaque"}  # types whose text is not their word in lower case
WORDS = {name: word for word, name in OTHER_NAMES.items()}


def type_number(dtype: DType) -> int:
    """The number of an element type."""
    return enum_numbers(TYPES)[WORDS.get(dtype.name, dtype.name.upper())]


@lru_cache(maxsize=4096)
def shape_message(shape: Shape) -> Message:
    """The message of a shape, shared between those that have it: it is not to be changed."""
    made = Message("ShapeProto", element_type=type_number(shape.dtype))
    if shape.is_tuple or shape.dtype is dt.BUFFER:
        made["tuple_shapes"] = [shape_message(element) for element in shape.elements]
    if shape.is_array and shape.layout is not None:
        made["dimensions"] = [LEAST if n == UNBOUNDED else n for n in shape.dims]
        made["is_dynamic_dimension"] = list(shape.dynamic)
        made["layout"] = _layout_message(shape.layout)
    return made


def _layout_message(layout: Layout) -> Message:
    made = Message("LayoutProto", minor_to_major=list(layout.minor_to_major))
    made["tail_padding_alignment_in_elements"] = layout.tail_padding
    made["element_size_in_bits"] = layout.element_size
    made["memory_space"] = layout.memory_space
    made["dynamic_shape_metadata_prefix_bytes"] = layout.dynamic_prefix_bytes
    for key, value in (("index", layout.index_type), ("pointer", layout.pointer_type)):
        if value is not None:
            made[f"{key}_primitive_type"] = type_number(value)
    for tile in layout.tiles:
        made.add("tiles", dimensions=[LEAST if n == COMBINE else n for n in tile])
    for split in layout.split_configs:
        made.add("split_configs", dimension=split.dimension, split_indices=list(split.indices))
    return made


def program_shape_message(shape: ProgramShape, names: list[str]) -> Message:
    """Parameters, result and the parameters' names."""
    made = Message("ProgramShapeProto", result=shape_message(shape.result), parameter_names=names)
    made["parameters"] = [shape_message(p) for p in shape.parameters]
    return made


def shape_text(message: Message) -> str:
    """The text of a shape. Calls itself for each level of tuples, which decoding bounds."""
    kind = _type_name(message, "element_type")
    parts = message.children("tuple_shapes")
    if kind == "tuple":
        return f"({join_indexed([shape_text(part) for part in parts])})"
    if kind == "buffer":
        return f"b({', '.join(shape_text(part) for part in parts)})"
    flags = message.numbers("is_dynamic_dimension")
    dims = message.numbers("dimensions")
    flags = flags + [False] * (len(dims) - len(flags))
    sizes = ",".join(_size_text(n, flag) for n, flag in zip(dims, flags, strict=False))
    layout = _layout_text(message.child("layout")) if "layout" in message else ""
    return f"{kind}[{sizes}]" + (layout if dims or layout != "{}" else "")


def _size_text(size: int, dynamic: object) -> str:
    if size == LEAST:
        return "?"
    return f"<={size}" if dynamic else str(size)


def _type_name(message: Message, field: str) -> str:
    number = message.number(field)
    word = enum_words(TYPES).get(number, "")
    if word in ("", "PRIMITIVE_TYPE_INVALID"):
        what = f"{message.type.name}.{field} is {number}"
        raise HloError("message", f"{what}, expected the number of an element type")
    return OTHER_NAMES.get(word, word.lower())


def _layout_text(layout: Message) -> str:
    """`{1,0:T(8,128)S(1)}`."""
    for field in ("dim_level_types", "dim_unique", "dim_ordered", "physical_shape"):
        if field in layout:
            raise HloError("unsupported", f"a layout with {field}, expected a dense one")
    order = ",".join(map(str, layout.numbers("minor_to_major")))
    properties = "".join(_properties(layout))
    return f"{{{order}:{properties}}}" if properties else f"{{{order}}}"


def _properties(layout: Message) -> list[str]:
    texts = []
    if tiles := layout.children("tiles"):
        rows = [",".join("*" if n < 0 else str(n) for n in t.numbers("dimensions")) for t in tiles]
        texts.append("T" + "".join(f"({row})" for row in rows))
    padding = layout.number("tail_padding_alignment_in_elements")
    if padding not in (0, 1):
        texts.append(f"L({padding})")
    for sign, field in (("#", "index_primitive_type"), ("*", "pointer_primitive_type")):
        if layout.number(field):
            texts.append(f"{sign}({_type_name(layout, field)})")
    for sign, field in (("E", "element_size_in_bits"), ("S", "memory_space")):
        if layout.number(field):
            texts.append(f"{sign}({layout.number(field)})")
    if splits := layout.children("split_configs"):
        rows = [
            f"({s.number('dimension')}:{','.join(map(str, s.numbers('split_indices')))})"
            for s in splits
        ]
        texts.append("SC" + "".join(rows))
    if layout.number("dynamic_shape_metadata_prefix_bytes"):
        texts.append(f"M({layout.number('dynamic_shape_metadata_prefix_bytes')})")
    return texts
