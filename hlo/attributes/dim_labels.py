"""Dimension numbers of a convolution: `b01f_01io->b01f`."""

from __future__ import annotations

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.attributes.tree import Tree, tokens
from hlo.errors import Violation

Ints = tuple[int, ...]


class DimLabels(Struct, frozen=True):
    """Which dimension of each array is what; `lhs_spatial[k]` is where spatial dimension k lies."""

    lhs_batch: int
    lhs_feature: int
    lhs_spatial: Ints
    rhs_input_feature: int
    rhs_output_feature: int
    rhs_spatial: Ints
    out_batch: int
    out_feature: int
    out_spatial: Ints


def _dim_labels(tree: Tree) -> DimLabels:
    (text,) = tokens(tree, "DIM_LABELS")
    return dim_labels(text)


def dim_labels(text: str) -> DimLabels:
    """The numbers that labels such as `b01f_01io->b01f` say."""
    if text.count("->") != 1 or text.split("->")[0].count("_") != 1:
        raise Violation("attribute-value", "", text, "labels such as b01f_01io->b01f")
    inputs, out = text.split("->")
    lhs, rhs = inputs.split("_")
    parts = _part(lhs, "bf"), _part(rhs, "io"), _part(out, "bf")
    if len({len(spatial) for _, _, spatial in parts}) > 1:
        raise Violation("attribute-value", "", text, "as many spatial digits in each part")
    return DimLabels(*parts[0], *parts[1], *parts[2])


def _part(labels: str, letters: str) -> tuple[int, int, Ints]:
    """Positions of the two letters (0 where one is missing) and of the digits 0, 1, ..."""
    used = labels.replace("?", "")
    digits = sorted(c for c in used if c.isdigit())
    if len(set(used)) != len(used) or digits != [str(k) for k in range(len(digits))]:
        raise Violation(
            "attribute-value", "", labels, f"each of {letters[0]}, {letters[1]}, 0, 1, ... once"
        )
    first, second = (max(labels.find(letter), 0) for letter in letters)
    return first, second, tuple(labels.index(d) for d in digits)


def dim_labels_text(n: DimLabels, *, reads_back: bool = True) -> str:
    """As long as the largest position asks; `?` where nothing stands.

    reads_back: XLA writes a single letter, which is no label again.
    """
    width = 2 if reads_back else 1
    lhs = _labels(n.lhs_batch, n.lhs_feature, n.lhs_spatial, "bf", width)
    rhs = _labels(n.rhs_input_feature, n.rhs_output_feature, n.rhs_spatial, "io", width)
    return f"{lhs}_{rhs}->{_labels(n.out_batch, n.out_feature, n.out_spatial, 'bf', width)}"


def _labels(first: int, second: int, spatial: Ints, letters: str, width: int) -> str:
    """Later labels overwrite earlier ones at the same place, as XLA writes `f0` for `?0`."""
    row = ["?"] * (max(first, second, *spatial) + 1)
    row[first] = letters[0]
    row[second] = letters[1]
    for k, at in enumerate(spatial):
        row[at] = str(k)
    return "".join(row).ljust(width, "?")


DIM_LABELS = AttributeKind("DIM_LABELS", "kind_dim_labels", _dim_labels, dim_labels_text)
