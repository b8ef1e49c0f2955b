"""Shape: element type, dimensions and layout of an array, or a tuple, token, opaque or buffer.

Shapes are frozen and interned where they are made in numbers, so `is` is a fast path of `==`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache

from msgspec import Struct
from msgspec.structs import replace

from hlo.errors import HloError
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.ir.layout import Layout, default_layout

# Tuples in tuples: what walks a shape may call itself for each level. Text may have 100; ops and
# passes put a few around.
DEEPEST_TUPLE = 120
UNBOUNDED = -1  # the size of a dimension written `?`
# Within Shape `tuple` is its own method; who asks for a field's type at run time is told these.
Ints = tuple[int, ...]
Flags = tuple[bool, ...]
Shapes = tuple["Shape", ...]


class Shape(Struct, frozen=True):
    """The shape of an array, with its element type and layout; of a tuple, a token, a buffer.

    dims holds the bound of a dynamic dimension (`<=n`), UNBOUNDED for `?`; `dynamic` one flag each.
    An array always has a layout. `elements` are the parts of a tuple, or the one shape in a buffer;
    `depth`: how many tuples lie in one another. Build with the class methods, not the constructor.

    >>> hlo.Shape.tuple([hlo.Shape.array("f32", [2, 3]), hlo.Shape.array("s8", [])]).size_bytes
    25
    """

    dtype: DType
    dims: Ints = ()
    dynamic: Flags = ()
    layout: Layout | None = None
    elements: Shapes = ()
    depth: int = 0

    @staticmethod
    def array(
        dtype: DType | str,
        dims: Iterable[int] = (),
        *,
        layout: Layout | None = None,
        dynamic: Iterable[bool] | None = None,
    ) -> Shape:
        """An array shape; the layout is row-major and the dimensions static unless given."""
        sizes = tuple(dims)
        flags = (False,) * len(sizes) if dynamic is None else tuple(dynamic)
        return _array(dt.dtype(dtype), sizes, flags, layout or default_layout(len(sizes)))

    @staticmethod
    def tuple(elements: Iterable[Shape]) -> Shape:
        """A tuple shape. Raises HloError where tuples nest more than DEEPEST_TUPLE deep."""
        parts = tuple(elements)
        depth = 1 + max([p.depth for p in parts], default=0)
        if depth > DEEPEST_TUPLE:
            message = f"a tuple of depth {depth}, expected at most {DEEPEST_TUPLE}"
            raise HloError("nesting", message)
        return Shape(dt.TUPLE, elements=parts, depth=depth)

    @staticmethod
    def token() -> Shape:
        return _TOKEN

    @staticmethod
    def opaque() -> Shape:
        return _OPAQUE

    @staticmethod
    def buffer(element: Shape) -> Shape:
        return Shape(dt.BUFFER, elements=(element,), depth=element.depth)

    @property
    def is_array(self) -> bool:
        return self.dtype.items != ""

    @property
    def is_tuple(self) -> bool:
        return self.dtype is dt.TUPLE

    @property
    def is_token(self) -> bool:
        return self.dtype is dt.TOKEN

    @property
    def is_scalar(self) -> bool:
        return self.is_array and not self.dims

    @property
    def rank(self) -> int:
        return len(self.dims)

    @property
    def is_dynamic(self) -> bool:
        """Whether any array in it has a dynamic dimension."""
        if self.elements:
            return any(e.is_dynamic for e in self.elements)
        return True in self.dynamic

    @property
    def size(self) -> int:
        """Number of elements (bounds for dynamic dimensions); 1 for a scalar."""
        return math.prod(self.dims)

    @property
    def size_bytes(self) -> int:
        """Bytes of the array as we hold it, or of all a tuple's leaves together."""
        if self.is_array:
            return self.size * self.dtype.item_bytes
        return sum(e.size_bytes for e in self.elements)

    def leaves(self) -> Iterator[Shape]:
        """Arrays, tokens, opaques and buffers in order; an empty tuple has none."""
        if self.is_tuple:
            for element in self.elements:
                yield from element.leaves()
        else:
            yield self

    def with_dims(self, dims: Iterable[int], dynamic: Iterable[bool] | None = None) -> Shape:
        """Same element type, other dimensions, default layout."""
        return Shape.array(self.dtype, dims, dynamic=dynamic)

    def with_dtype(self, dtype: DType | str) -> Shape:
        """Same dimensions, dynamism and layout, other element type.

        A layout's element size goes with the type that it was for.
        """
        new = dt.dtype(dtype)
        return self if new is self.dtype else replace(self.without_element_size(new), dtype=new)

    def without_element_size(self, dtype: DType) -> Shape:
        """As XLA leaves the layout when it sets an element type: smaller ones than a byte keep
        their size.
        """
        layout = self.layout
        if layout is None or not layout.element_size or (dtype.bits < 8 and not dtype.is_pred):
            return self
        return replace(self, layout=replace(layout, element_size=0))

    def with_layout(self, layout: Layout) -> Shape:
        return replace(self, layout=layout)

    def without_layout(self) -> Shape:
        """Default layouts everywhere, for comparison and for shapes that text gives no layout."""
        if self.is_array:
            return Shape.array(self.dtype, self.dims, dynamic=self.dynamic)
        return replace(self, elements=tuple(e.without_layout() for e in self.elements))

    def __str__(self) -> str:
        return shape_text(self)


@lru_cache(maxsize=65536)
def _array(dtype: DType, dims: Ints, dynamic: tuple[bool, ...], layout: Layout) -> Shape:
    assert len(dims) == len(dynamic), "one dynamic flag per dimension"
    return Shape(dtype, dims, dynamic, layout)


_TOKEN = Shape(dt.TOKEN)
_OPAQUE = Shape(dt.OPAQUE)


def compatible(a: Shape, b: Shape) -> bool:
    """Same tuple structure, element types and sizes; layouts and dynamism ignored (docs/text.md
    3.5).
    """
    if a is b:
        return True
    if a.dtype is not b.dtype or a.dims != b.dims or len(a.elements) != len(b.elements):
        return False
    return all(compatible(x, y) for x, y in zip(a.elements, b.elements, strict=True))


def shape_text(shape: Shape, *, layout: bool = True) -> str:
    """XLA's text of a shape (docs/text.md 3.4): `f32[2,<=3]{1,0}`, `(a, b)` with `/*index=5*/`."""
    if shape.is_tuple:
        return f"({join_indexed([shape_text(e, layout=layout) for e in shape.elements])})"
    if shape.dtype is dt.BUFFER:
        return f"b({shape_text(shape.elements[0], layout=layout)})"
    dims = ",".join(size_text(n, dynamic=d) for n, d in zip(shape.dims, shape.dynamic, strict=True))
    text = f"{shape.dtype.name}[{dims}]"
    if not layout or shape.layout is None:
        return text
    suffix = layout_text(shape.layout)
    return text if suffix == "{}" else text + suffix


def join_indexed(texts: Sequence[str], interval: int = 5) -> str:
    """Joined by `, ` with `/*index=n*/` before every `interval`-th (0: never)."""
    if not interval or len(texts) <= interval:
        return ", ".join(texts)
    return ", ".join(
        f"/*index={i}*/{t}" if i and i % interval == 0 else t for i, t in enumerate(texts)
    )


def size_text(size: int, *, dynamic: bool = False) -> str:
    """One size as shapes write it."""
    if size == UNBOUNDED:
        return "?"
    return f"<={size}" if dynamic else str(size)


@lru_cache(maxsize=4096)
def layout_text(layout: Layout) -> str:
    """`{1,0:T(8,128)S(1)}`; `{}` for a scalar without properties."""
    order = ",".join(map(str, layout.minor_to_major))
    properties = "".join(_layout_properties(layout))
    return f"{{{order}:{properties}}}" if properties else f"{{{order}}}"


def _layout_properties(layout: Layout) -> Iterator[str]:
    if layout.tiles:
        yield "T"
        for tile in layout.tiles:
            yield "(" + ",".join("*" if n < 0 else str(n) for n in tile) + ")"
    if layout.tail_padding != 1:
        yield f"L({layout.tail_padding})"
    if layout.index_type is not None:
        yield f"#({_index_type_text(layout.index_type)})"
    if layout.pointer_type is not None:
        yield f"*({_index_type_text(layout.pointer_type)})"
    if layout.element_size:
        yield f"E({layout.element_size})"
    if layout.memory_space:
        yield f"S({layout.memory_space})"
    if layout.split_configs:
        yield "SC"
        for split in layout.split_configs:
            yield f"({split.dimension}:{','.join(map(str, split.indices))})"
    if layout.dynamic_prefix_bytes > 0:
        yield f"M({layout.dynamic_prefix_bytes})"


def _index_type_text(dtype: DType) -> str:
    # XLA's lower-case name of a type that is no integer is "invalid" (docs/text.md 3.3).
    return dtype.name if dtype.is_integral else "invalid"


def stored(shape: Shape) -> Shape:
    """A row-major array that lies in memory as an array of this shape and layout does."""
    if shape.layout is None or shape.layout.is_default_order:
        return shape
    return shape.with_dims([shape.dims[d] for d in reversed(shape.layout.minor_to_major)])


class ProgramShape(Struct, frozen=True):
    """Parameters and result of a computation."""

    parameters: tuple[Shape, ...]
    result: Shape

    def __str__(self) -> str:
        parameters = ", ".join(shape_text(p, layout=False) for p in self.parameters)
        return f"({parameters}) -> {shape_text(self.result, layout=False)}"
