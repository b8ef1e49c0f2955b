"""Windows of convolution, reduce-window, select-and-scatter: `{size=3x3 pad=0_1x0_1}`."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, fields, has, int64, tokens, unknown_field
from hlo.errors import Violation


class WindowDim(Struct, frozen=True):
    """One dimension. Pads may be negative (they crop); base_dilation is text's lhs_dilate."""

    size: int
    stride: int = 1
    pad_low: int = 0
    pad_high: int = 0
    base_dilation: int = 1
    window_dilation: int = 1
    reversed: bool = False


class Window(Struct, frozen=True):
    """A window over all dimensions that it moves in."""

    dims: tuple[WindowDim, ...] = ()


_FIELDS = ("size", "stride", "pad", "lhs_dilate", "rhs_dilate", "rhs_reversal")


def _window(tree: Tree) -> Window:
    columns: dict[str, list[int]] = {}
    pads: list[tuple[int, ...]] = []
    for key, field in fields(tree, "window_field"):
        if key not in _FIELDS:
            raise unknown_field(key, _FIELDS)
        if key == "pad":
            pads = _pads(field)
        else:
            columns[key] = _sizes(key, field)
    sizes = columns.get("size", [])
    rank = len(sizes)
    # XLA takes a reversal of another length than size: what is missing is not reversed.
    flips = (columns.pop("rhs_reversal", []) + [0] * rank)[:rank]
    lengths = {key: len(column) for key, column in columns.items()}
    if pads:
        lengths["pad"] = len(pads)
    for key, length in lengths.items():
        if length != len(sizes):
            raise Violation(
                "attribute-value", "", f"{key} of {length} dimensions", f"{len(sizes)} as size"
            )
    ones = [1] * rank
    return Window(
        tuple(
            WindowDim(size, stride, low, high, base, window, flip == 1)
            for size, stride, (low, high), base, window, flip in zip(
                sizes,
                columns.get("stride", ones),
                pads or [(0, 0)] * rank,
                columns.get("lhs_dilate", ones),
                columns.get("rhs_dilate", ones),
                flips,
                strict=True,
            )
        )
    )


def _sizes(key: str, field: Tree) -> list[int]:
    (text,) = tokens(field, "DXD", "INT", "PAD")
    if has(field, "PAD"):
        raise Violation("attribute-value", "", f"{key}={text}", "sizes joined by x, such as 2x1")
    return [int64(n) for n in text.split("x")]


def _pads(field: Tree) -> list[tuple[int, ...]]:
    (text,) = tokens(field, "DXD", "INT", "PAD")
    pads = [tuple(int64(n) for n in dim.split("_")) for dim in text.split("x")]
    if not has(field, "PAD") or any(len(p) != 2 for p in pads):
        raise Violation("attribute-value", "", f"pad={text}", "low_high per dimension: 0_1x0_1")
    return pads


def window_text(window: Window) -> str:
    """`{}` without dimensions; a field appears for all dimensions when one differs."""
    return "{" + " ".join(_field_texts(window.dims)) + "}"


def _field_texts(dims: tuple[WindowDim, ...]) -> Iterator[str]:
    if dims:
        yield "size=" + "x".join(str(d.size) for d in dims)
    if any(d.stride != 1 for d in dims):
        yield "stride=" + "x".join(str(d.stride) for d in dims)
    if any(d.pad_low or d.pad_high for d in dims):
        yield "pad=" + "x".join(f"{d.pad_low}_{d.pad_high}" for d in dims)
    if any(d.base_dilation != 1 for d in dims):
        yield "lhs_dilate=" + "x".join(str(d.base_dilation) for d in dims)
    if any(d.window_dilation != 1 for d in dims):
        yield "rhs_dilate=" + "x".join(str(d.window_dilation) for d in dims)
    if any(d.reversed for d in dims):
        yield "rhs_reversal=" + "x".join(str(int(d.reversed)) for d in dims)


WINDOW = AttributeKind("WINDOW", "kind_window", _window, window_text)
