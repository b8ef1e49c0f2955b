"""A convolution as its repair sees it: dimensions, sizes, and how its results are cut into chunks.

Lanes are neighbours among the output features. A run of them shares its part of the base (a group;
all of them where each has its own: lanes then have bases side by side), a chunk is the vectors of a
run that are summed together.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.window import WindowDim
from hlo.backend.ir.arithmetic import add, split_index, times
from hlo.backend.ir.values import counted
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.convolutions.convolution import is_swapped
from hlo.backend.kernels.contraction.problem.ring import (
    Parts,
    Ring,
    element_address,
    gathered,
    loaded,
    ring_of,
)
from hlo.indexing.affine import row_major_strides
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.machine import COMMON
from hlo.ops.convolution import ConvolutionAttributes

SUMS = 8  # Vectors that are summed side by side.
VECTORS = 2  # Those of them that lie along the features.
FEW_IMAGES = 3
# The largest kernel that stays in the cache which processors share.
NEAR_BYTES = COMMON.last_cache.bytes


class Spatial(Struct, frozen=True):
    """A spatial dimension: its window, and its dimensions in base, kernel and result."""

    window: WindowDim
    lhs: int
    rhs: int
    out: int


class Form(Struct, frozen=True):
    """A convolution's sizes and strides, as its repair loops over them.

    groups: of outputs; group_moves: from one to the next in the base.
    """

    ring: Ring
    shapes: tuple[Shape, Shape, Shape]
    labels: DimLabels
    spatial: tuple[Spatial, ...]
    groups: int
    group_moves: int

    @classmethod
    def of(cls, instruction: Instruction, target: Target) -> Form:
        attrs = ConvolutionAttributes.of(instruction.attributes)
        n, window = attrs.dim_labels, attrs.window
        groups, batch_groups = attrs.feature_group_count, attrs.batch_group_count
        lhs, rhs = (o.shape for o in instruction.operands)
        dims_of_each = zip(window.dims, n.lhs_spatial, n.rhs_spatial, n.out_spatial, strict=True)
        strides = row_major_strides(lhs.dims)
        moved = rhs.dims[n.rhs_input_feature] * strides[n.lhs_feature]
        if batch_groups > 1:
            moved = lhs.dims[n.lhs_batch] // batch_groups * strides[n.lhs_batch]
        return cls(
            ring_of(instruction.shape.dtype, target),
            (lhs, rhs, instruction.shape),
            n,
            tuple(Spatial(*place) for place in dims_of_each),
            groups * batch_groups,
            moved,
        )

    @property
    def dtype(self) -> DType:
        return self.shapes[2].dtype

    @property
    def out(self) -> tuple[int, ...]:
        return self.shapes[2].dims

    @property
    def strides(self) -> tuple[tuple[int, ...], ...]:
        return tuple(row_major_strides(s.dims) for s in self.shapes)

    @property
    def features(self) -> int:
        return self.out[self.labels.out_feature]

    @property
    def is_diagonal(self) -> bool:
        """Whether each output feature has a part of the base for itself."""
        return self.groups == self.features > 1

    @property
    def lhs_features(self) -> int | None:
        """The dimension of the base that output features run over, if one does."""
        for d in (self.labels.lhs_feature, self.labels.lhs_batch):
            moves = self.strides[0][d], self.shapes[0].dims[d]
            if self.is_diagonal and moves == (self.group_moves, self.features):
                return d
        return None

    @property
    def run(self) -> int:
        """Output features that lanes run over."""
        return self.features if self.is_diagonal else self.features // self.groups

    @property
    def lanes(self) -> int:
        return min(self.ring.lanes, 1 << (self.run.bit_length() - 1))

    @property
    def is_near(self) -> bool:
        """Whether the kernel stays in the cache that processors share."""
        return self.shapes[1].size_bytes <= NEAR_BYTES

    @property
    def vectors(self) -> int:
        """Along the features: more of them where images are few, unless the kernel, which each
        group of positions reads, then comes from far away."""
        most, abreast = -(-self.run // self.lanes), SUMS // self.ring.parts
        if self.images < FEW_IMAGES and self.is_near:
            return min(abreast // self.images, most)
        return min(VECTORS // self.ring.parts, most)

    @property
    def chunks(self) -> int:
        """Parts of all features that are summed together: `vectors` of them, of one run."""
        return self.runs * -(-self.run // (self.vectors * self.lanes))

    @property
    def runs(self) -> int:
        return self.features // self.run

    @property
    def positions(self) -> int:
        """Side by side."""
        most = SUMS // (self.vectors * self.ring.parts)
        return min(self.images, most) if self.is_near or self.images >= FEW_IMAGES else most

    @property
    def is_uniform(self) -> bool:
        """Whether images fill what goes side by side: one position in several of them."""
        filled = -(-self.images // self.positions) * self.positions
        return 3 * filled <= 4 * self.images

    @property
    def entry(self) -> int:
        """Numbers that say where a position is: offset in the result, image, spatial indices."""
        return 2 + len(self.spatial)

    def inside(self, s: Spatial) -> tuple[int, int]:
        """The positions in the result, from first to end, whose windows do not leave the base."""
        w, size, outputs = s.window, self.shapes[0].dims[s.lhs], self.out[s.out]
        if w.base_dilation > 1 or is_swapped(w, size):
            return outputs, outputs
        low = min(max(0, -(-w.pad_low // w.stride)), outputs)
        reach = (w.size - 1) * w.window_dilation
        end = (size - 1 - reach + w.pad_low) // w.stride + 1
        return low, max(low, min(end, outputs))

    @property
    def images(self) -> int:
        return self.out[self.labels.out_batch]

    @property
    def border(self) -> int:
        """Positions whose windows leave the base, in all images."""
        ranges = [self.inside(s) for s in self.spatial]
        all_positions = prod(self.out[s.out] for s in self.spatial)
        return self.images * (all_positions - prod(end - first for first, end in ranges))

    def starts(self, w: Writer, chunk: Value) -> tuple[Value, list[Value]]:
        """A chunk's run, and the first features of its vectors in that; the last one overlaps."""
        run, c = split_index(w, chunk, [self.runs, self.chunks // self.runs])
        run = run if self.runs > 1 else w.int(0)
        start = times(w, c, self.vectors * self.lanes)
        firsts = [add(w, start, w.int(v * self.lanes)) for v in range(self.vectors)]
        most = w.int(self.run - self.lanes)
        return run, [w.intrinsic("llvm.umin", "i64", first, most) for first in firsts]

    def load(self, w: Writer, memory: Value, side: int, at: Value, stride: int) -> Parts:
        """Lanes of an array from an element on; all the same where the stride is 0."""
        dtype, ring = self.shapes[side].dtype, self.ring
        address = element_address(w, memory, at, dtype)
        if stride == 1 or self.lanes == 1:
            return loaded(w, ring, dtype, address, self.lanes)
        if stride == 0:
            parts = loaded(w, ring, dtype, address, 1)
            return tuple(w.splat(p, self.lanes) for p in parts)
        return gathered(w, ring, dtype, address, self.offsets(w, stride))

    def offsets(self, w: Writer, stride: int) -> Value:
        each = counted("i64", self.lanes)
        return w.binary("mul", each, w.int(stride, f"<{self.lanes} x i64>"))


def is_nan(w: Writer, parts: Parts) -> Value:
    """Whether a part of a number is."""
    found = [w.compare("fcmp uno", p, p) for p in parts]
    return found[0] if len(found) == 1 else w.binary("or", *found)
