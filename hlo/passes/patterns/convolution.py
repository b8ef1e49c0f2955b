"""convolution: a base with holes is convolved once for each group of phases of the outputs.

Along a dimension whose base is dilated by d, output d * q + r meets base elements at every d-th tap
only: those of a kernel of its own. What is computed is what was, without the products with holes:
the gradient of a strided convolution does a d-th of its work in each such dimension. Phases that
see the same elements, with as many taps, are output features of one convolution: where windows do
not overlap (patches, d = window) it is a single product. Outputs may be counted from before the
first one, so that more phases see the same.
"""

from __future__ import annotations

from itertools import product
from math import prod

from msgspec.structs import replace

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.padding import PaddingDim
from hlo.attributes.slices import SliceDim
from hlo.attributes.window import Window
from hlo.ir.instruction import Instruction
from hlo.ops.making import make
from hlo.passes.patterns.matching import ints, is_plain, splat
from hlo.passes.patterns.phases import Holes, Phases, interleaved
from hlo.passes.rewriting import rewrite

LEAST_DEPTH = 32  # Products of an output from which those saved outweigh moving the outputs.
LEAST_PRODUCTS = 1 << 21  # Products in all: each kernel takes its time to be made.
LARGE_PRODUCTS = 1 << 26  # Products in all from which a tenth of them more is dear.
MOST_PARTS = 8  # The most convolutions that stand for one.


@rewrite("convolution")
def convolution_of_holes(root: Instruction) -> Instruction | None:
    """conv(x dilated by d, w) at d * q + r => conv(x, every d-th tap of w from one on) at q
    or 0 where w has no such tap; where the window moves by one; large ones, and all of which
    every phase sees the same; phases that see the same elements are features of one convolution
    """
    window, labels = root.get("window"), root.get("dim_labels")
    if not isinstance(window, Window) or not isinstance(labels, DimLabels):
        return None
    is_large = _depth(root, labels) * root.shape.size >= LARGE_PRODUCTS
    holes = tuple(h.joined(is_large=is_large) for h in _holes(root, window, labels))
    if not holes or not _pays(root, holes, labels):
        return None
    kernel = _forwards(root, holes)
    parts = {}
    for phases in product(*(h.groups for h in holes)):
        parts[phases] = _spread(root, holes, phases, _part(root, kernel, holes, phases))
    # Between the spatial dimensions of a part are the features of its phases.
    before = [sum(o.out < h.out for o in holes) + (labels.out_feature < h.out) for h in holes]
    places = [h.out + n + 1 for h, n in zip(holes, before, strict=True)]
    return interleaved(root, holes, parts, places)


@rewrite("convolution")
def convolution_of_reverse(root: Instruction) -> Instruction | None:
    """conv(x, reverse(w, d)) => conv(x, w)  whose window reads w backwards along d, where d are
    the kernel's spatial dimensions
    """
    window, labels = root.get("window"), root.get("dim_labels")
    x, kernel = root.operands
    if not isinstance(window, Window) or not isinstance(labels, DimLabels):
        return None
    if kernel.opcode != "reverse" or kernel.shape.is_dynamic:
        return None
    (w,) = kernel.operands
    backwards = ints(kernel, "dimensions")
    if not set(backwards) <= set(labels.rhs_spatial):
        return None
    dims = tuple(
        replace(d, reversed=d.reversed != (place in backwards))
        for d, place in zip(window.dims, labels.rhs_spatial, strict=True)
    )
    attributes = {**root.attributes, "window": replace(window, dims=dims)}
    return make(root, "convolution", x, w, shape=root.shape, **attributes)


def _holes(root: Instruction, window: Window, labels: DimLabels) -> tuple[Holes, ...]:
    """The dimensions with holes; none where some of them is of another form."""
    x, w = root.operands
    if not all(is_plain(i.shape) for i in (root, x, w)) or not root.shape.size:
        return ()
    spatial = zip(
        window.dims, labels.lhs_spatial, labels.rhs_spatial, labels.out_spatial, strict=True
    )
    found = tuple(
        Holes(d, n, k, y, x.shape.dims[b], root.shape.dims[y])
        for n, (d, b, k, y) in enumerate(spatial)
        if d.base_dilation > 1
    )
    for h in found:
        is_moved = h.window.stride != 1 or h.window.window_dilation != 1
        if is_moved or not h.window.size or h.outputs < h.phases or not h.base:
            return ()
    return found


def _pays(root: Instruction, holes: tuple[Holes, ...], labels: DimLabels) -> bool:
    """Whether there is much to be saved by few convolutions."""
    if root.get("batch_group_count") not in (None, 1):
        return False
    parts = prod(len(h.groups) for h in holes)
    if parts == 1 and _groups(root) == 1:
        return True  # One product is less work at any size, and less code than zeros between.
    depth = _depth(root, labels)
    is_deep = depth >= LEAST_DEPTH and depth * root.shape.size >= LEAST_PRODUCTS
    return is_deep and parts <= MOST_PARTS


def _depth(root: Instruction, labels: DimLabels) -> int:
    """Products of an output, those with holes among them."""
    w = root.operands[1].shape
    return w.size // max(1, w.dims[labels.rhs_output_feature])


def _forwards(root: Instruction, holes: tuple[Holes, ...]) -> Instruction:
    """The kernel as windows without reversal read it along the dimensions with holes."""
    kernel = root.operands[1]
    backwards = tuple(sorted(h.rhs for h in holes if h.window.reversed))
    return make(root, "reverse", kernel, dimensions=backwards) if backwards else kernel


def _part(
    root: Instruction, kernel: Instruction, holes: tuple[Holes, ...], phases: tuple[Phases, ...]
) -> Instruction:
    """The convolution of some phases in each dimension, in order of a group's features: phases of
    each dimension, then the feature; zeros where no tap meets an element."""
    window, labels = root["window"], root["dim_labels"]
    assert isinstance(window, Window)
    assert isinstance(labels, DimLabels)
    sizes = list(root.shape.dims)
    dims = list(window.dims)
    for h, p in zip(holes, phases, strict=True):
        sizes[h.out] = h.outputs_each
        sizes[labels.out_feature] *= p.count
        dims[h.number] = h.part(p)
    shape = root.shape.with_dims(tuple(sizes))
    if not all(p.taps for p in phases):
        return splat(root, 0, shape)
    for h, p in zip(holes, phases, strict=True):
        kernel = _taps(root, kernel, h, p)
    kernel = _as_features(root, kernel, holes, phases)
    attributes = {**root.attributes, "window": replace(window, dims=tuple(dims))}
    return make(root, "convolution", root.operands[0], kernel, shape=shape, **attributes)


def _taps(root: Instruction, w: Instruction, h: Holes, p: Phases) -> Instruction:
    """Along one dimension the taps of some phases: theirs at each of their elements, from the last
    phase to the first, for as many elements as they see."""
    d, sizes = h.phases, w.shape.dims
    ends = [SliceDim(0, n) for n in sizes]
    if p.count == 1:
        ends[h.rhs] = SliceDim(p.tap, h.window.size, d)
        return make(root, "slice", w, slice=tuple(ends))
    whole = p.taps * d
    end = min(h.window.size, p.tap + whole)
    ends[h.rhs] = SliceDim(p.tap, end)
    w = make(root, "slice", w, slice=tuple(ends))
    if p.tap + whole > end:  # what is filled up is cut off again
        room = [PaddingDim(0, 0) for _ in sizes]
        room[h.rhs] = PaddingDim(0, p.tap + whole - end)
        zero = splat(root, 0, w.shape.with_dims(()))
        w = make(root, "pad", w, zero, padding=tuple(room))
    split = (*sizes[: h.rhs], p.taps, d, *sizes[h.rhs + 1 :])
    w = make(root, "reshape", w, shape=w.shape.with_dims(split))
    if p.count < d:
        first = [SliceDim(0, n) for n in split]
        first[h.rhs + 1] = SliceDim(0, p.count)
        w = make(root, "slice", w, slice=tuple(first))
    joined = (*sizes[: h.rhs], p.taps * p.count, *sizes[h.rhs + 1 :])
    return make(root, "reshape", w, shape=w.shape.with_dims(joined))


def _as_features(
    root: Instruction, w: Instruction, holes: tuple[Holes, ...], phases: tuple[Phases, ...]
) -> Instruction:
    """The kernel whose features are each group's (phases of each dimension, feature)."""
    if all(p.count == 1 for p in phases):
        return w
    labels = root["dim_labels"]
    assert isinstance(labels, DimLabels)
    counts = {h.rhs: p.count for h, p in zip(holes, phases, strict=True)}
    groups = _groups(root)
    split: list[int] = []
    places: dict[int, int] = {}  # Where each dimension begins among the split ones.
    for d, n in enumerate(w.shape.dims):
        places[d] = len(split)
        parted = (n // counts.get(d, 1), counts.get(d, 1))
        if d == labels.rhs_output_feature:
            parted = (groups, n // groups)
        split += parted
    turned = tuple(places[d] + 1 for d in counts)
    order: list[int] = []
    for d in places:
        is_features = d == labels.rhs_output_feature
        order += [places[d], *turned, places[d] + 1] if is_features else [places[d]]
        order += [] if is_features or d in counts else [places[d] + 1]
    dims = [n // counts.get(d, 1) for d, n in enumerate(w.shape.dims)]
    dims[labels.rhs_output_feature] *= prod(counts.values())
    w = make(root, "reshape", w, shape=w.shape.with_dims(split))
    w = make(root, "reverse", w, dimensions=turned)
    w = make(root, "transpose", w, dimensions=tuple(order))
    return make(root, "reshape", w, shape=w.shape.with_dims(dims))


def _groups(root: Instruction) -> int:
    groups = root.get("feature_group_count") or 1
    assert isinstance(groups, int)
    return groups


def _spread(
    root: Instruction,
    holes: tuple[Holes, ...],
    phases: tuple[Phases, ...],
    part: Instruction,
) -> Instruction:
    """What a part's features hold beside the outputs, along a dimension of its own behind each
    dimension with holes."""
    labels = root["dim_labels"]
    assert isinstance(labels, DimLabels)
    groups, at = _groups(root), labels.out_feature
    counts = [p.count for p in phases]
    features = (groups, *counts, root.shape.dims[at] // groups)
    split = (*part.shape.dims[:at], *features, *part.shape.dims[at + 1 :])
    order: list[int] = []
    for d in range(root.shape.rank):
        place = d if d <= at else d + len(features) - 1
        order.append(place)
        if d == at:
            order.append(at + len(features) - 1)
        order += [at + 1 + n for n, h in enumerate(holes) if h.out == d]
    spread = make(root, "reshape", part, shape=part.shape.with_dims(split))
    return make(root, "transpose", spread, dimensions=tuple(order))
