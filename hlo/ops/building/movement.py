"""The Builder's ops that move elements: broadcasts, reshapes, slices, pads, concatenations."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.attributes.padding import PaddingDim
from hlo.attributes.slices import SliceDim
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.building.caller import error
from hlo.ops.building.elementwise import Elementwise
from hlo.ops.building.instruction_builder import Operand
from hlo.ops.building.python_values import ints
from hlo.ops.shape_rules import braces, text

Ints = Sequence[int]


class Movement(Elementwise):
    """Rank-changing and indexing ops under their customary names."""

    def array(self, what: str, x: Operand) -> Instruction:
        """One operand that has to be an array."""
        (made,) = self.operands(what, (x,))
        if not made.shape.is_array:
            raise error("dtype", f"{what}: operand 0 is {text(made.shape)}, expected an array")
        return made

    def dimension(self, what: str, x: Instruction, dimension: int) -> int:
        """A dimension number of x; negative ones are no dimensions in HLO."""
        if not 0 <= dimension < x.shape.rank:
            message = f"{what}: dimension is {dimension}, expected one of {text(x.shape)}: "
            raise error("attribute-value", f"{message}at least 0, below {x.shape.rank}")
        return dimension

    def iota(
        self, shape: Shape | DType | str, iota_dimension: int = 0, size: int = 0, *, name: str = ""
    ) -> Instruction:
        """Counts along a dimension of a shape; with an element type, a vector of `size`."""
        if not isinstance(shape, Shape):
            shape = Shape.array(self.element_type("iota", shape), (size,))
        return self.emit("iota", iota_dimension=iota_dimension, shape=shape, name=name)

    def broadcast(
        self,
        x: Operand,
        sizes: Ints = (),
        *,
        dimensions: Ints | None = None,
        shape: Shape | None = None,
        name: str = "",
    ) -> Instruction:
        """HLO's broadcast with `dimensions` and `shape`; with `sizes`, new leading dimensions."""
        array = self.array("broadcast", x)
        if shape is None:
            flags = (*[False] * len(sizes), *array.shape.dynamic)
            shape = array.shape.with_dims((*sizes, *array.shape.dims), flags)
            lead = len(sizes)
            default: Ints = range(lead, lead + array.shape.rank)
        else:
            default = ()
        onto_dims = tuple(default if dimensions is None else dimensions)
        return self.emit("broadcast", array, dimensions=onto_dims, shape=shape, name=name)

    def broadcast_in_dim(
        self, x: Operand, out_dims: Ints, broadcast_dimensions: Ints
    ) -> Instruction:
        """x as dimensions `broadcast_dimensions` of an array of sizes `out_dims`; sizes of 1 are
        repeated.
        """
        what = "broadcast_in_dim"
        array = self.array(what, x)
        dims, onto = ints(out_dims), ints(broadcast_dimensions)
        if len(onto) != array.shape.rank or any(not 0 <= d < len(dims) for d in onto):
            message = f"{what}: broadcast_dimensions is {braces(onto)}, expected "
            message += f"{array.shape.rank} numbers below {len(dims)}"
            raise error("attribute-value", message)
        for i, d in enumerate(onto):
            if array.shape.dims[i] not in (1, dims[d]):
                message = f"{what}: dimension {i} of {text(array.shape)} is {array.shape.dims[i]}, "
                raise error("shape-mismatch", f"{message}expected 1 or {dims[d]}")
        return self.stretch(array, dims, onto)

    def reshape(
        self, x: Operand, new_sizes: Ints | None = None, *, shape: Shape | None = None,
        inferred_dimension: int | None = None, name: str = "",
    ) -> Instruction:  # fmt: skip
        """The same elements under other sizes; or a whole `shape`, where some are dynamic."""
        array = self.array("reshape", x)
        if shape is None:
            if new_sizes is None:
                raise error("arguments", "reshape: given neither new_sizes nor shape, expected one")
            shape = array.shape.with_dims(ints(new_sizes))
        return self.emit(
            "reshape", array, shape=shape, inferred_dimension=inferred_dimension, name=name
        )

    def collapse(self, x: Operand, dimensions: Ints) -> Instruction:
        """Consecutive dimensions made one; fewer than two change nothing."""
        array = self.array("collapse", x)
        dims = ints(dimensions)
        for d in dims:
            self.dimension("collapse", array, d)
        if dims and dims != tuple(range(dims[0], dims[0] + len(dims))):
            message = f"collapse: dimensions is {braces(dims)}, expected consecutive numbers"
            raise error("attribute-value", message)
        if len(dims) < 2:
            return array
        sizes, merged = array.shape.dims, 1
        for d in dims:
            merged *= sizes[d]
        return self.reshape(array, (*sizes[: dims[0]], merged, *sizes[dims[-1] + 1 :]))

    def transpose(
        self, x: Operand, dimensions: Ints | None = None, *, name: str = ""
    ) -> Instruction:
        """result[j] = x[k] where k[dimensions[i]] = j[i]; without dimensions, all reversed."""
        array = self.array("transpose", x)
        order = range(array.shape.rank)[::-1] if dimensions is None else dimensions
        return self.emit("transpose", array, dimensions=tuple(order), name=name)

    def reverse(self, x: Operand, dimensions: Ints, *, name: str = "") -> Instruction:
        """The elements backwards along the dimensions."""
        return self.emit("reverse", x, dimensions=dimensions, name=name)

    rev = reverse

    def concat_in_dim(
        self, operands: Sequence[Operand], dimension: int, *, name: str = ""
    ) -> Instruction:
        """The operands one after the other along a dimension."""
        return self.emit("concatenate", *operands, dimensions=(dimension,), name=name)

    def slice(
        self,
        x: Operand,
        start_indices: Ints = (),
        limit_indices: Ints = (),
        strides: Ints | None = None,
        *,
        slice: Sequence[SliceDim | Ints] | None = None,
        name: str = "",
    ) -> Instruction:
        """From start to below limit, every stride-th; or HLO's `slice` as one list."""
        if slice is None:
            starts, limits = ints(start_indices), ints(limit_indices)
            steps = (1,) * len(starts) if strides is None else ints(strides)
            if not len(starts) == len(limits) == len(steps):
                message = f"slice: {len(starts)} starts, {len(limits)} limits, {len(steps)} strides"
                raise error("attribute-value", f"{message}, expected one of each per dimension")
            slice = [SliceDim(*row) for row in zip(starts, limits, steps, strict=True)]
        return self.emit("slice", x, slice=slice, name=name)

    def slice_in_dim(
        self, x: Operand, start: int, limit: int, stride: int = 1, dimension: int = 0,
        *, name: str = "",
    ) -> Instruction:  # fmt: skip
        """A slice along one dimension, all of the others."""
        array = self.array("slice_in_dim", x)
        rows = [SliceDim(0, n) for n in array.shape.dims]
        at = self.dimension("slice_in_dim", array, dimension)
        rows[at] = SliceDim(start, limit, stride)
        return self.emit("slice", array, slice=rows, name=name)

    def dynamic_slice(
        self, x: Operand, start_indices: Sequence[Operand], slice_sizes: Ints, *, name: str = ""
    ) -> Instruction:
        """slice_sizes elements from start indices, one scalar per dimension, clamped to fit."""
        return self.emit(
            "dynamic-slice", self.array("dynamic_slice", x), *self.indices(start_indices),
            dynamic_slice_sizes=slice_sizes, name=name,
        )  # fmt: skip

    def dynamic_update_slice(
        self, x: Operand, update: Operand, start_indices: Sequence[Operand], *, name: str = ""
    ) -> Instruction:
        """x with `update` laid over it at the start indices, clamped to fit."""
        arrays = self.operands("dynamic_update_slice", (x, update))
        starts = self.indices(start_indices)
        return self.emit("dynamic-update-slice", *arrays, *starts, name=name)

    def indices(self, starts: Sequence[Operand]) -> tuple[Instruction, ...]:
        """Scalars of one integer type; Python's numbers take that of the others, else s32."""
        return self.operands("start index", tuple(starts))

    def pad(
        self, x: Operand, padding_value: Operand,
        padding: Sequence[PaddingDim | Ints], *, name: str = "",
    ) -> Instruction:  # fmt: skip
        """(low, high, interior) elements of padding_value per dimension; negative edges crop."""
        return self.emit("pad", x, padding_value, padding=padding, name=name)

    def pad_in_dim(
        self, x: Operand, padding_value: Operand, dimension: int, low: int, high: int,
        *, name: str = "",
    ) -> Instruction:  # fmt: skip
        """Padding at both ends of one dimension."""
        array = self.array("pad_in_dim", x)
        rows = [PaddingDim(0, 0)] * array.shape.rank
        rows[self.dimension("pad_in_dim", array, dimension)] = PaddingDim(low, high)
        return self.emit("pad", array, padding_value, padding=rows, name=name)
