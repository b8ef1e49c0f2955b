"""A panel: a factor's features of one chunk side by side, where they lie apart in memory.

panel[the factor's other dimensions, row-major][vector][part][lane], in the ring's numbers

The kernel has output features; the base has them where each output feature has a part of the base
for itself (a channel, or, with batch groups, an image).
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hlo.backend.ir.arithmetic import add, advanced, divided, times
from hlo.backend.ir.called import as_function
from hlo.backend.ir.control import each
from hlo.backend.ir.kernel import Kernel
from hlo.backend.ir.writer import Value, Writer
from hlo.backend.kernels.contraction.convolutions.form import Form
from hlo.backend.kernels.contraction.problem.ring import Parts
from hlo.indexing.affine import row_major_strides

FEWEST = 2  # Positions at the border from which a panel of the kernel is made.
# Reads of a row of the base from which its panel is made; gathering fewer takes less.
FEWEST_READS = 0.5
LARGEST = 1 << 22  # The most bytes of a panel.


class Panel(Struct, frozen=True):
    """Of the factor at `side` (0: the base), whose dimension `features` the lanes run over.

    strides: of its dimensions in the panel, in numbers; 0 for the features.
    """

    form: Form
    side: int
    features: int
    strides: tuple[int, ...]

    @classmethod
    def of(cls, form: Form, side: int) -> Panel | None:
        """None where neighbours are side by side already, or it would not pay."""
        features = form.lhs_features if side == 0 else form.labels.rhs_output_feature
        if features is None or form.lanes == 1 or form.strides[side][features] == 1:
            return None
        others = [1 if d == features else size for d, size in enumerate(form.shapes[side].dims)]
        row = form.vectors * form.ring.parts * form.lanes
        if prod(others) * row * form.ring.scalar_bytes > LARGEST:
            return None
        reads = form.border * prod(s.window.size for s in form.spatial)
        pays = form.border >= FEWEST if side == 1 else reads >= FEWEST_READS * prod(others)
        if not pays:
            return None
        strides = row_major_strides(tuple(others))
        return cls(
            form,
            side,
            features,
            tuple(0 if d == features else row * s for d, s in enumerate(strides)),
        )

    @property
    def type(self) -> str:
        return self.form.ring.type(self.form.lanes)

    @property
    def rows(self) -> int:
        dims = self.form.shapes[self.side].dims
        return prod(dims) // dims[self.features]

    @property
    def size_bytes(self) -> int:
        form = self.form
        return self.rows * form.vectors * form.ring.parts * form.lanes * form.ring.scalar_bytes

    def row(self, w: Writer, panel: Value, at: Value) -> Parts:
        form = self.form
        start = advanced(w, panel, at, form.ring.scalar)
        addresses = [advanced(w, start, k, self.type) for k in range(form.ring.parts)]
        return tuple(w.load(place, self.type, form.ring.scalar_bytes) for place in addresses)

    def packing(self) -> Kernel:
        """A function of the factor, the panel and the chunk of features, which gathers:
        squares that are turned in registers would gain a few per cent of a convolution of infinite
        numbers, and take LLVM as long as all of a small one.
        """
        w, form = Writer(), self.form
        parts, stride = form.ring.parts, form.strides[self.side][self.features]
        factor, panel = Value("%factor", "ptr"), Value("%panel", "ptr")
        run, firsts = form.starts(w, Value("%chunk", "i64"))
        first = add(w, times(w, run, form.run), firsts[0])
        last = add(w, times(w, run, form.run), w.int(form.run - form.lanes))

        def row(number: Value) -> None:
            before = divided(w, number, stride)
            after = w.binary("sub", number, times(w, before, stride))
            moved = add(w, times(w, before, stride * form.features), after)

            def vector(v: Value) -> None:
                start = add(w, first, times(w, v, form.lanes))
                feature = times(w, w.intrinsic("llvm.umin", "i64", start, last), stride)
                values = form.load(w, factor, self.side, add(w, moved, feature), stride)
                at = times(w, add(w, times(w, number, form.vectors), v), parts)
                for k, value in enumerate(values):
                    place = advanced(w, panel, add(w, at, w.int(k)), self.type)
                    w.store(value, place, form.ring.scalar_bytes)

            each(w, w.int(0), w.int(form.vectors), vector)

        each(w, w.int(0), w.int(self.rows), row)
        parameters = factor, panel, Value("%chunk", "i64")
        return as_function(w, parameters, has_entry=False, is_glue=True)
