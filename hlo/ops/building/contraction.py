"""The Builder's products: dots and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from hlo.attributes.dim_labels import DimLabels
from hlo.attributes.window import Window, WindowDim
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ops.building.caller import error
from hlo.ops.building.instruction_builder import Operand
from hlo.ops.building.movement import Movement
from hlo.ops.building.python_values import ints
from hlo.ops.shape_rules import text
from hlo.ops.windows import dilated

Ints = Sequence[int]
Pads = Sequence[tuple[int, int]]
DotNumbers = tuple[tuple[Ints, Ints], tuple[Ints, Ints]]
_SPATIAL_FIRST = 2  # in the customary order [batch, feature, spatial...]


class Contraction(Movement):
    """dot, dot_general and the convolutions."""

    def dot(
        self, lhs: Operand, rhs: Operand, *, name: str = "", **attributes: object
    ) -> Instruction:
        """HLO's dot with dimension numbers; without, lhs's last dimension with rhs's first."""
        x, y = self.array("dot", lhs), self.array("dot", rhs)
        if not any(key.endswith("_dims") for key in attributes):
            if not (1 <= x.shape.rank <= 2 and 1 <= y.shape.rank <= 2):
                message = f"dot: operands are {text(x.shape)} and {text(y.shape)}, expected vectors"
                raise error("shape-mismatch", f"{message} or matrices", "use dot_general")
            attributes |= {
                "lhs_contracting_dims": (x.shape.rank - 1,), "rhs_contracting_dims": (0,),
            }  # fmt: skip
        return self.emit("dot", x, y, name=name, **attributes)  # type: ignore[arg-type]  # attributes, no other option

    def dot_general(
        self,
        lhs: Operand,
        rhs: Operand,
        dimension_numbers: DotNumbers,
        *,
        operand_precision: str | Sequence[str] | None = None,
        preferred_element_type: DType | str | None = None,
        name: str = "",
    ) -> Instruction:
        """dimension_numbers: ((lhs contracting, rhs contracting), (lhs batch, rhs batch))."""
        try:
            (lc, rc), (lb, rb) = dimension_numbers
        except (TypeError, ValueError):
            message = f"dot_general: dimension_numbers is {dimension_numbers!r}, expected "
            message += "((lhs contracting, rhs contracting), (lhs batch, rhs batch))"
            raise error("attribute-value", message) from None
        attributes: dict[str, object] = {
            "lhs_batch_dims": lb, "rhs_batch_dims": rb,
            "lhs_contracting_dims": lc, "rhs_contracting_dims": rc,
            "operand_precision": operand_precision,
        }  # fmt: skip
        made = self.emit("dot", lhs, rhs, name=name, **attributes)  # type: ignore[arg-type]  # attributes, no other option
        return self._preferred("dot_general", made, preferred_element_type)

    def _preferred(self, what: str, made: Instruction, wanted: DType | str | None) -> Instruction:
        """The product just made, accumulated in another type."""
        if wanted is not None:
            made.shape = made.shape.with_dtype(self.element_type(what, wanted))
        return made

    def conv(  # XLA's vocabulary
        self,
        lhs: Operand,
        rhs: Operand,
        window_strides: Ints,
        padding: str,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
    ) -> Instruction:
        """[batch, feature, spatial...] with [out, in, spatial...]; padding: SAME or VALID."""
        return self.conv_general_dilated(
            lhs, rhs, window_strides, padding, feature_group_count=feature_group_count,
            batch_group_count=batch_group_count,
        )  # fmt: skip

    def conv_with_general_padding(  # XLA's vocabulary
        self,
        lhs: Operand,
        rhs: Operand,
        window_strides: Ints,
        padding: Pads,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
    ) -> Instruction:
        """As `conv`, with (low, high) per spatial dimension."""
        return self.conv_general_dilated(
            lhs, rhs, window_strides, padding, feature_group_count=feature_group_count,
            batch_group_count=batch_group_count,
        )  # fmt: skip

    def conv_general_dilated(  # noqa: PLR0913, PLR0917  # XLA's vocabulary
        self,
        lhs: Operand,
        rhs: Operand,
        window_strides: Ints | None = None,
        padding: Pads | str = "VALID",
        lhs_dilation: Ints | None = None,
        rhs_dilation: Ints | None = None,
        dimension_numbers: DimLabels | str | None = None,
        feature_group_count: int = 1,
        batch_group_count: int = 1,
        *,
        window_reversal: Sequence[bool] | None = None,
        operand_precision: str | Sequence[str] | None = None,
        preferred_element_type: DType | str | None = None,
        name: str = "",
    ) -> Instruction:
        """dimension_numbers: labels as HLO writes them, by default bf01_oi01->bf01."""
        what = "conv_general_dilated"
        x, y = self.array(what, lhs), self.array(what, rhs)
        labels = self._labels(what, x.shape.rank, dimension_numbers)
        rank = len(labels.lhs_spatial)
        if not len(labels.rhs_spatial) + _SPATIAL_FIRST == x.shape.rank == y.shape.rank:
            message = f"{what}: operands are {text(x.shape)} and {text(y.shape)}, "
            raise error("shape-mismatch", f"{message}expected {rank} spatial dimensions in both")
        columns = {
            "window_strides": (window_strides, 1), "lhs_dilation": (lhs_dilation, 1),
            "rhs_dilation": (rhs_dilation, 1), "window_reversal": (window_reversal, 0),
        }  # fmt: skip
        strides, base, holes, flips = (
            self._column(what, key, value, rank, default)
            for key, (value, default) in columns.items()
        )
        sizes = [y.shape.dims[d] for d in labels.rhs_spatial]
        inputs = [
            dilated(x.shape.dims[d], b) for d, b in zip(labels.lhs_spatial, base, strict=True)
        ]
        reaches = [dilated(n, h) for n, h in zip(sizes, holes, strict=True)]
        pads = self._pads(what, padding, inputs, reaches, strides)
        rows = zip(sizes, strides, pads, base, holes, flips, strict=True)
        window = Window(
            tuple(WindowDim(n, s, low, high, b, h, bool(f)) for n, s, (low, high), b, h, f in rows)
        )
        made = self.emit(
            "convolution", x, y, window=window, dim_labels=labels,
            feature_group_count=feature_group_count, batch_group_count=batch_group_count,
            operand_precision=operand_precision, name=name,
        )  # fmt: skip
        return self._preferred(what, made, preferred_element_type)

    def _labels(self, what: str, rank: int, numbers: DimLabels | str | None) -> DimLabels:
        if rank < _SPATIAL_FIRST:
            raise error("shape-mismatch", f"{what}: operand 0 has rank {rank}, expected 2 or more")
        if numbers is None:
            spatial = tuple(range(_SPATIAL_FIRST, rank))
            return DimLabels(0, 1, spatial, 1, 0, spatial, 0, 1, spatial)
        value = self.attribute("convolution", "dim_labels", numbers)
        assert isinstance(value, DimLabels), "what the kind holds"
        return value

    @staticmethod
    def _column(
        what: str, key: str, given: Sequence[int] | None, rank: int, default: int
    ) -> tuple[int, ...]:
        column = (default,) * rank if given is None else ints(given)
        if len(column) != rank:
            message = f"{what}: {key} has {len(column)} entries, expected {rank}"
            raise error("attribute-value", f"{message}, one per spatial dimension")
        return column

    @staticmethod
    def _pads(
        what: str, padding: Pads | str, sizes: Ints, reaches: Ints, strides: Ints
    ) -> Sequence[tuple[int, int]]:
        """SAME: as many windows as ceil(size / stride), the odd element at the high end."""
        if not isinstance(padding, str):
            pads = [ints(row) for row in padding]
            if len(pads) != len(sizes) or any(len(row) != 2 for row in pads):
                message = f"{what}: padding is {padding!r}, expected (low, high) for each of "
                raise error("attribute-value", f"{message}{len(sizes)} spatial dimensions")
            return [(low, high) for low, high in pads]
        if padding.upper() == "VALID":
            return [(0, 0)] * len(sizes)
        if padding.upper() != "SAME":
            raise error(
                "attribute-value", f"{what}: padding is {padding!r}, expected SAME or VALID"
            )
        missing = [
            max(0, (-(-n // s) - 1) * s + reach - n)
            for n, s, reach in zip(sizes, (max(s, 1) for s in strides), reaches, strict=True)
        ]
        return [(m // 2, m - m // 2) for m in missing]
