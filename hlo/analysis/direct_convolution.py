"""Direct convolutions: those whose groups have so few features that no product fills a vector.

    convolution --direct_form--> DirectForm, or None: it is a contraction

Lanes are neighbours among the output features, of which each belongs to a group of its own or of a
few, or neighbours along a row of results or of the window. A result is then a sum over the window's
positions and a few features, for all lanes at once, and positions beside the base or in its holes
are left out: nothing is copied between zeros, so that no number that is not finite meets one. Which
positions of the last spatial dimension are left out is known when code is written, those of the
others when a row begins.

What decides is the instruction alone: passes and kernels ask here, for any machine.
"""

from __future__ import annotations

from enum import Enum
from math import gcd

from msgspec import Struct
from msgspec.structs import replace

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.window import Window, WindowDim
from hlo.indexing.affine import row_major_strides
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Ints
from hlo.ops.convolution import ConvolutionAttributes

Dims = tuple[Ints, Ints, Ints]
MOST_FEATURES = 8  # Of a group, on either side; more fill the columns of a product.
LEAST_LANES = 8  # Output features.
MOST_TAPS = 32  # Of a row whose window is written out; a longer one is a loop.
MOST_TERMS = 256  # That one chain of additions takes.
MOST_CLIPPED = 8  # Results at an end of a row, or positions of a long window, that miss the base.
MOST_OUTPUTS = 8  # Results of a row of long windows.
# Where lanes are neighbours along a row: features of a group, the least elements of a row, how far
# they may be apart in the base, or it in them, how far a window may reach beside a result, and the
# products that are written out for one.
MOST_ROW_FEATURES, LEAST_ROW, MOST_STRIDE, MOST_SHIFT, MOST_WRITTEN = 2, 4, 2, 16, 128


class Along(Struct, frozen=True):
    """A spatial dimension: its window, the sizes of base and result, and how far a step moves in
    base, kernel and result."""

    window: WindowDim
    size: int
    outputs: int
    lhs: int
    rhs: int
    out: int

    @property
    def first_tap(self) -> int:
        """Where the kernel's element of position 0 lies, in its own steps; reversed, the last."""
        return self.window.size - 1 if self.window.reversed else 0

    @property
    def tap(self) -> int:
        """How far a position of the window moves in the kernel."""
        return -self.rhs if self.window.reversed else self.rhs

    def element(self, output: int, tap: int) -> int | None:
        """The element of the base at a position of an output's window, if there is one."""
        w = self.window
        moved = output * w.stride + tap * w.window_dilation - w.pad_low
        element, rest = divmod(moved, w.base_dilation)
        return element if not rest and 0 <= element < self.size else None

    @property
    def pairs(self) -> int:
        """Of an output and a position of its window that is an element; in holes about."""
        w = self.window
        found = 0
        for tap in range(w.size):
            before = w.pad_low - tap * w.window_dilation
            last = (self.size - 1) * w.base_dilation + before
            outputs = min(self.outputs - 1, last // w.stride) - max(0, -(-before // w.stride)) + 1
            found += max(0, outputs)
        return found // w.base_dilation

    @property
    def inside(self) -> range:
        """The outputs of which no position is beside the base; in a hole they may be."""
        w = self.window
        reach = (self.size - 1) * w.base_dilation - (w.size - 1) * w.window_dilation
        first, last = -(-w.pad_low // w.stride), (reach + w.pad_low) // w.stride
        return range(max(0, first), min(self.outputs, last + 1))

    @property
    def met(self) -> range:
        """The positions that are an element for every output; in holes are those between them."""
        w = self.window
        reach = (self.size - 1) * w.base_dilation - (self.outputs - 1) * w.stride
        first, last = -(-w.pad_low // w.window_dilation), (reach + w.pad_low) // w.window_dilation
        taps = range(max(0, first), min(w.size, last + 1))
        step = w.base_dilation // gcd(w.base_dilation, w.window_dilation)
        start = next((tap for tap in taps[:step] if self._is_met(tap)), taps.stop)
        return range(start, taps.stop, step)

    def _is_met(self, tap: int) -> bool:
        return all(self.element(y, tap) is not None for y in (0, self.outputs - 1))


class LanesAlong(Enum):
    """What lanes are neighbours along: output features, a row of results, a row of the window."""

    FEATURES = "features"
    RESULTS = "results"
    TAPS = "taps"


class Moves(Struct, frozen=True):
    """A loop over images or features: how many, and how far a step moves in each array."""

    size: int
    lhs: int = 0
    rhs: int = 0
    out: int = 0


class DirectForm(Struct, frozen=True):
    """A direct convolution: its sizes, and how its results are computed.

    inputs, outputs: features of a group. In batch groups the inputs are images, of which each
    gives results of its own (is_batch).

    images: what results are beside; summed: what is added up beside the window and a group's
    inputs; group: of the inputs one after the other. rows: the outer spatial dimensions, row: the
    innermost one. run: neighbours of the result that lanes stay within. Where lanes are neighbours
    along a row, groups: from one to the next, feature: from one of a group's outputs to the next.
    """

    features: int
    inputs: int
    outputs: int
    is_batch: bool
    images: Moves
    summed: Moves
    group: Moves
    rows: tuple[Along, ...]
    row: Along
    run: int
    lanes: LanesAlong = LanesAlong.FEATURES
    groups: Moves = Moves(1)
    feature: Moves = Moves(1)

    @property
    def along(self) -> tuple[Along, ...]:
        """All spatial dimensions."""
        return (*self.rows, self.row)

    @property
    def is_long(self) -> bool:
        """Whether the window of a row is a loop, and all results of a row are written out."""
        has_holes = any(a.window.base_dilation > 1 for a in self.along)
        outputs, adds_images = self.row.outputs, self.is_batch and self.summed.size > 1
        is_longer = self.row.window.size > outputs or adds_images
        return is_longer and outputs <= MOST_OUTPUTS and not has_holes


def direct_form(convolution: Instruction) -> DirectForm | None:
    """The form of a convolution that is computed so; None of others."""
    if not _is_plain(convolution):
        return None
    attrs = ConvolutionAttributes.of(convolution.attributes)
    lhs, rhs = (o.shape.dims for o in convolution.operands)
    return _form((lhs, rhs, convolution.shape.dims), attrs)


def is_direct(convolution: Instruction) -> bool:
    """Whether a convolution is computed so."""
    return direct_form(convolution) is not None


def is_direct_as(convolution: Instruction, labels: DimLabels, kernel: Ints) -> bool:
    """Whether it would be with other labels and a kernel of those dimensions."""
    if not _is_plain(convolution):
        return False
    attrs = replace(ConvolutionAttributes.of(convolution.attributes), dim_labels=labels)
    dims = (convolution.operands[0].shape.dims, kernel, convolution.shape.dims)
    return _form(dims, attrs) is not None


def _form(dims: Dims, attrs: ConvolutionAttributes) -> DirectForm | None:
    """dims: of base, kernel and result."""
    labels, last = attrs.dim_labels, len(dims[2]) - 1
    spatial = zip(labels.lhs_spatial, labels.rhs_spatial, labels.out_spatial, strict=True)
    inner = next(((k, y) for d, k, y in spatial if d == last), None)
    if inner is None:
        return _of_features(dims, attrs) if labels.out_feature == last else None
    if inner[1] == last and attrs.batch_group_count == 1:
        return _of_columns(dims, attrs)
    return _of_sums(dims, attrs) if inner[0] == last else None


def _of_features(dims: Dims, attrs: ConvolutionAttributes) -> DirectForm | None:
    """Lanes along the features."""
    labels = attrs.dim_labels
    lhs, rhs, out = dims
    ls, rs, os = map(row_major_strides, (lhs, rhs, out))
    is_batch = attrs.batch_group_count > 1
    count = max(attrs.feature_group_count, attrs.batch_group_count)
    if count == 1:
        return None
    lane = labels.lhs_batch if is_batch else labels.lhs_feature
    inputs, outputs = lhs[lane] // count, out[labels.out_feature] // count
    if not _is_lane(labels, lane, rhs) or not _are_few(inputs, outputs, out[labels.out_feature]):
        return None
    i = labels.rhs_input_feature
    if is_batch:
        images, group = Moves(1), Moves(inputs, 1, 0, os[labels.out_batch])
        summed = Moves(rhs[i], ls[labels.lhs_feature], rs[i])
    else:
        b = labels.lhs_batch
        images = Moves(lhs[b], ls[b], 0, os[labels.out_batch])
        group, summed = Moves(inputs, 1, rs[i]), Moves(1)
    *rows, row = _alongs(attrs.window, labels, dims)
    features = out[labels.out_feature]
    form = DirectForm(
        features, inputs, outputs, is_batch, images, summed, group, tuple(rows), row, features
    )
    return form if _is_written(form) else None


def _of_columns(dims: Dims, attrs: ConvolutionAttributes) -> DirectForm | None:
    """Lanes along a row of results, each of which is all of a window."""
    labels, count = attrs.dim_labels, attrs.feature_group_count
    lhs, rhs, out = dims
    ls, rs, os = map(row_major_strides, (lhs, rhs, out))
    f, i, o = labels.lhs_feature, labels.rhs_input_feature, labels.rhs_output_feature
    b, y = labels.lhs_batch, labels.out_feature
    inputs, outputs = lhs[f] // count, out[y] // count
    if max(inputs, outputs) > MOST_ROW_FEATURES:
        return None
    *rows, row = _alongs(attrs.window, labels, dims)
    form = DirectForm(
        out[y],
        inputs,
        outputs,
        False,
        Moves(lhs[b], ls[b], 0, os[labels.out_batch]),
        Moves(1),
        Moves(inputs, ls[f], rs[i]),
        tuple(rows),
        row,
        row.outputs,
        LanesAlong.RESULTS,
        Moves(count, inputs * ls[f], outputs * rs[o], outputs * os[y]),
        Moves(outputs, 0, rs[o], os[y]),
    )
    w = row.window
    is_narrow = row.outputs < LEAST_ROW or w.stride > MOST_STRIDE or w.base_dilation > MOST_STRIDE
    written = w.size * inputs * outputs * (rows[-1].window.size if rows else 1)
    is_dense = all(
        a.window.base_dilation == 1 or max(a.window.stride, a.window.window_dilation) == 1
        for a in form.along
    )
    reach = (w.size - 1) * w.window_dilation
    is_near = max(abs(w.pad_low), abs(reach - w.pad_low), w.pad_high) <= MOST_SHIFT
    terms = inputs
    for a in form.along:
        terms *= a.window.size
    is_short = written <= MOST_WRITTEN and terms <= MOST_TERMS
    return form if is_short and is_dense and is_near and not is_narrow else None


def _of_sums(dims: Dims, attrs: ConvolutionAttributes) -> DirectForm | None:
    """Lanes along a row of the window, of which there are few results: of a feature each."""
    labels, count = attrs.dim_labels, attrs.batch_group_count
    lhs, rhs, out = dims
    ls, rs, os = map(row_major_strides, dims)
    b, o, i = labels.lhs_batch, labels.rhs_output_feature, labels.rhs_input_feature
    if count == 1 or not count == lhs[b] == out[labels.out_feature]:
        return None
    alongs = _alongs(attrs.window, labels, dims)
    inner = labels.out_spatial[labels.lhs_spatial.index(len(lhs) - 1)]
    row = alongs.pop(sorted(labels.out_spatial).index(inner))
    form = DirectForm(
        count,
        1,
        1,
        True,
        Moves(1),
        Moves(rhs[i], ls[labels.lhs_feature], rs[i]),
        Moves(1, 1),
        tuple(alongs),
        row,
        out[-1],
        LanesAlong.TAPS,
        Moves(count, ls[b], rs[o], os[labels.out_feature]),
    )
    w = row.window
    is_few = row.outputs <= MOST_OUTPUTS and w.size >= LEAST_ROW and not w.reversed
    has_holes = any(a.window.base_dilation > 1 for a in form.along)
    last = (row.outputs - 1) * w.stride - w.pad_low + (w.size - 1) * w.window_dilation
    beyond = max(w.pad_low, last - (row.size - 1))
    is_near = beyond <= MOST_SHIFT and w.window_dilation <= MOST_STRIDE
    return form if is_few and is_near and not has_holes else None


def _is_plain(convolution: Instruction) -> bool:
    """Whether it is one of two arrays of real numbers."""
    if convolution.opcode != "convolution" or len(convolution.operands) != 2:
        return False
    if convolution.get("convolution_kind") not in (None, "", "unset", "fprop"):
        return False
    shapes = (*(o.shape for o in convolution.operands), convolution.shape)
    if not all(s.is_array and s.size and s.rank > 2 for s in shapes):
        return False
    return not any(s.is_dynamic or s.dtype.is_complex or s.dtype.is_pred for s in shapes)


def _is_lane(labels: DimLabels, lane: int, rhs: Ints) -> bool:
    """Whether neighbours among the output features lie side by side in all arrays."""
    rank = len(rhs)
    last = labels.rhs_output_feature
    is_kernels = all(n == 1 for n in rhs[last + 1 :])
    return lane == labels.out_feature == rank - 1 and is_kernels


def _are_few(inputs: int, outputs: int, features: int) -> bool:
    """Whether a group's features are so few, in numbers that lanes are made of."""
    is_even = outputs.bit_count() == 1
    return is_even and max(inputs, outputs) <= MOST_FEATURES and features >= LEAST_LANES


def _alongs(window: Window, labels: DimLabels, dims: Dims) -> list[Along]:
    """The spatial dimensions as they lie in the result, the outermost first."""
    lhs, _, out = dims
    ls, rs, os = map(row_major_strides, dims)
    places = zip(labels.lhs_spatial, labels.rhs_spatial, labels.out_spatial, strict=True)
    found = {
        y: Along(w, lhs[d], out[y], ls[d], rs[k], os[y])
        for w, (d, k, y) in zip(window.dims, places, strict=True)
    }
    return [found[y] for y in sorted(found)]


def _is_written(form: DirectForm) -> bool:
    """Whether what is written out for a row is little."""
    row, w = form.row, form.row.window
    for a in form.along:
        if a.window.base_dilation > 1 and max(a.window.stride, a.window.window_dilation) > 1:
            return False
    if form.is_long:
        return max(_ends(row.met, w.size)) <= MOST_CLIPPED
    terms = form.summed.size * (1 if form.is_batch else form.inputs)
    for a in form.along:
        terms *= a.window.size
    ends = _ends(row.inside, row.outputs)
    return w.size <= MOST_TAPS and terms <= MOST_TERMS and max(ends) <= MOST_CLIPPED


def _ends(run: range, size: int) -> tuple[int, int]:
    """How many of so many stand before a run, and behind it."""
    return (run[0], size - 1 - run[-1]) if run else (size, 0)
