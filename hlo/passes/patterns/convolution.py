"""convolution: a base with holes is convolved once for each phase of the outputs.

Along a dimension whose base is dilated by d, output d * q + r meets base elements at every d-th tap
only: those of a kernel of its own. What is computed is what was, without the products with holes:
the gradient of a strided convolution does a d-th of its work in each such dimension.
"""

from __future__ import annotations

from itertools import product
from math import prod

from msgspec import Struct
from msgspec.structs import replace

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.slices import SliceDim
from hlo.attributes.window import Window, WindowDim
from hlo.ir.instruction import Instruction
from hlo.ops.making import make
from hlo.passes.patterns.matching import is_plain, splat
from hlo.passes.rewriting import rewrite

LEAST_DEPTH = 128  # Products of an output from which those saved outweigh moving the outputs.
LEAST_PRODUCTS = 1 << 22  # Products in all: each kernel takes its time to be made.
MOST_PHASES = 4  # The most kernels that stand for one.


class _Holes(Struct, frozen=True):
    """A dimension with holes: its window, its dimensions in the base, in the kernel and the result,
    sizes."""

    window: WindowDim
    number: int
    rhs: int
    out: int
    base: int
    outputs: int

    @property
    def phases(self) -> int:
        return self.window.base_dilation

    @property
    def outputs_each(self) -> int:
        """Outputs of a phase, those counted that the last ones have beyond the end."""
        return -(-self.outputs // self.phases)

    def first_tap(self, phase: int) -> int:
        return (self.window.pad_low - phase) % self.phases

    def part(self, phase: int) -> WindowDim:
        """The window of a phase's own convolution."""
        first, d = self.first_tap(phase), self.phases
        size = -(-(self.window.size - first) // d)
        low = (self.window.pad_low - phase - first) // d
        return WindowDim(size, 1, low, self.outputs_each - 1 + size - self.base - low)


@rewrite("convolution")
def convolution_of_holes(root: Instruction) -> Instruction | None:
    """conv(x dilated by d, w) at d * q + r => conv(x, every d-th tap of w from one on) at q
    or 0 where w has no such tap; where the window moves by one; large ones
    """
    window, labels = root.get("window"), root.get("dim_labels")
    if not isinstance(window, Window) or not isinstance(labels, DimLabels):
        return None
    holes = _holes(root, window, labels)
    if not holes or not _pays(root, holes, labels):
        return None
    parts = {}
    for phases in product(*(range(h.phases) for h in holes)):
        parts[phases] = _part(root, window, holes, phases)
    return _interleaved(root, holes, parts)


def _holes(root: Instruction, window: Window, labels: DimLabels) -> tuple[_Holes, ...]:
    """The dimensions with holes; none where some of them is of another form."""
    x, w = root.operands
    if not all(is_plain(i.shape) for i in (root, x, w)) or not root.shape.size:
        return ()
    spatial = zip(
        window.dims, labels.lhs_spatial, labels.rhs_spatial, labels.out_spatial, strict=True
    )
    found = tuple(
        _Holes(d, n, k, y, x.shape.dims[b], root.shape.dims[y])
        for n, (d, b, k, y) in enumerate(spatial)
        if d.base_dilation > 1
    )
    for h in found:
        is_moved = h.window.stride != 1 or h.window.window_dilation != 1 or h.window.reversed
        if is_moved or not h.window.size or h.outputs < h.phases or not h.base:
            return ()
    return found


def _pays(root: Instruction, holes: tuple[_Holes, ...], labels: DimLabels) -> bool:
    """Whether there is much to be saved by few convolutions."""
    w = root.operands[1].shape
    depth = w.size // max(1, w.dims[labels.rhs_output_feature])
    if root.get("batch_group_count") not in (None, 1) or depth < LEAST_DEPTH:
        return False
    phases = prod(h.phases for h in holes)
    return phases <= MOST_PHASES and depth * root.shape.size >= LEAST_PRODUCTS


def _part(
    root: Instruction, window: Window, holes: tuple[_Holes, ...], phases: tuple[int, ...]
) -> Instruction:
    """The convolution of one phase in each dimension; zeros where no tap meets an element."""
    sizes = list(root.shape.dims)
    for h in holes:
        sizes[h.out] = h.outputs_each
    shape = root.shape.with_dims(tuple(sizes))
    if any(h.first_tap(phase) >= h.window.size for h, phase in zip(holes, phases, strict=True)):
        return splat(root, 0, shape)
    x, w = root.operands
    taps = [SliceDim(0, n) for n in w.shape.dims]
    dims = list(window.dims)
    for h, phase in zip(holes, phases, strict=True):
        taps[h.rhs] = SliceDim(h.first_tap(phase), h.window.size, h.phases)
        dims[h.number] = h.part(phase)
    kernel = make(root, "slice", w, slice=tuple(taps))
    attributes = {**root.attributes, "window": replace(window, dims=tuple(dims))}
    return make(root, "convolution", x, kernel, shape=shape, **attributes)


def _interleaved(
    root: Instruction, holes: tuple[_Holes, ...], parts: dict[tuple[int, ...], Instruction]
) -> Instruction:
    """The outputs of all phases, each where it belongs: from the last dimension on."""
    sizes = list(next(iter(parts.values())).shape.dims)
    for n in range(len(holes) - 1, -1, -1):
        h = holes[n]
        split = (*sizes[: h.out + 1], 1, *sizes[h.out + 1 :])
        sizes[h.out] *= h.phases
        joined: dict[tuple[int, ...], Instruction] = {}
        for before in dict.fromkeys(phases[:n] for phases in parts):
            each = [
                make(root, "reshape", parts[*before, r], shape=root.shape.with_dims(split))
                for r in range(h.phases)
            ]
            both = make(root, "concatenate", *each, dimensions=(h.out + 1,))
            joined[before] = make(root, "reshape", both, shape=root.shape.with_dims(tuple(sizes)))
        parts = joined
    (whole,) = parts.values()
    if whole.shape.dims == root.shape.dims:
        return whole
    ends = tuple(SliceDim(0, n) for n in root.shape.dims)
    return make(root, "slice", whole, slice=ends)
