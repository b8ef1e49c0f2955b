"""A panel: a kernel's output features of one chunk side by side, where they lie apart in memory.

panel[the kernel's other dimensions, row-major][vector][part][lane], in the ring's numbers
"""

from __future__ import annotations

from math import prod

from msgspec import Struct

from hlo.backend.codegen.writer import Value, Writer
from hlo.backend.kernels.contraction.axes import row_major_strides
from hlo.backend.kernels.contraction.convolution_form import Form
from hlo.backend.kernels.contraction.loops import add, advanced, each, times
from hlo.backend.kernels.contraction.ring import Parts, element_address, loaded
from hlo.backend.kernels.contraction.transpose import transposed
from hlo.backend.kernels.kernel import Kernel

FEWEST = 2  # positions for which a panel is made
LARGEST = 1 << 22  # bytes


class Panel(Struct, frozen=True):
    """strides: of the kernel's dimensions in it, in numbers; 0 for the output features."""

    form: Form
    strides: tuple[int, ...]

    @classmethod
    def of(cls, form: Form) -> Panel | None:
        """None where neighbours are side by side already, or it would not pay."""
        shape, o = form.shapes[1], form.labels.rhs_output_feature
        others = [1 if d == o else size for d, size in enumerate(shape.dims)]
        row = form.vectors * form.ring.parts * form.lanes
        is_apart = form.lanes > 1 and form.strides[1][o] > 1
        size = prod(others) * row * form.ring.scalar_bytes
        if not is_apart or form.border < FEWEST or size > LARGEST:
            return None
        strides = row_major_strides(tuple(others))
        return cls(form, tuple(0 if d == o else row * s for d, s in enumerate(strides)))

    @property
    def type(self) -> str:
        return self.form.ring.type(self.form.lanes)

    @property
    def rows(self) -> int:
        shape = self.form.shapes[1]
        return prod(shape.dims) // shape.dims[self.form.labels.rhs_output_feature]

    @property
    def size_bytes(self) -> int:
        form = self.form
        return self.rows * form.vectors * form.ring.parts * form.lanes * form.ring.scalar_bytes

    def row(self, w: Writer, panel: Value, at: Value) -> Parts:
        form = self.form
        start = advanced(w, panel, at, form.ring.scalar)
        places = [advanced(w, start, k, self.type) for k in range(form.ring.parts)]
        return tuple(w.load(place, self.type, form.ring.scalar_bytes) for place in places)

    def packing(self) -> Kernel:
        """A function of the kernel, the panel and the chunk of features."""
        w, form = Writer(), self.form
        o, parts = form.labels.rhs_output_feature, form.ring.parts
        stride = form.strides[1][o]
        kernel, panel = Value("%rhs", "ptr"), Value("%panel", "ptr")
        run, starts = form.starts(w, Value("%chunk", "i64"))
        first = times(w, run, form.run)
        features = [times(w, add(w, first, s), stride) for s in starts]

        depth = min(form.lanes, stride)  # rows of the panel that are made together
        depth = depth if depth == form.lanes else 1
        blocks = -(-stride // depth)

        def block(before: Value, b: Value) -> None:
            after = w.intrinsic("llvm.umin", "i64", times(w, b, depth), w.int(stride - depth))
            number = add(w, times(w, before, stride), after)
            moved = add(w, times(w, before, stride * form.features), after)
            for v, feature in enumerate(features):
                rows = self._square(w, kernel, add(w, moved, feature), depth)
                for r, values in enumerate(rows):
                    at = times(w, add(w, number, w.int(r)), form.vectors * parts)
                    for k, value in enumerate(values):
                        place = advanced(w, panel, add(w, at, w.int(v * parts + k)), self.type)
                        w.store(value, place, form.ring.scalar_bytes)

        def rows_before(before: Value) -> None:
            each(w, w.int(0), w.int(blocks), lambda b: block(before, b))

        each(w, w.int(0), w.int(self.rows // stride), rows_before)
        head = "define void @KERNEL(ptr %rhs, ptr %panel, i64 %chunk) nounwind {"
        text = "\n".join([head, *w.lines, "  ret void", "}"])
        return Kernel(text, 0, tuple(w.declarations.values()), tuple(w.globals.values()))

    def _square(self, w: Writer, kernel: Value, at: Value, depth: int) -> list[Parts]:
        """Vectors of features at neighbouring places of the other dimensions."""
        form = self.form
        stride = form.strides[1][form.labels.rhs_output_feature]
        if depth == 1:
            return [form.load(w, kernel, 1, at, stride)]
        dtype = form.shapes[1].dtype
        columns = []
        for lane in range(form.lanes):
            place = element_address(w, kernel, add(w, at, w.int(lane * stride)), dtype)
            columns.append(loaded(w, form.ring, dtype, place, depth))
        parts = [transposed(w, list(column)) for column in zip(*columns, strict=True)]
        return list(zip(*parts, strict=True))
