"""The Builder's elementwise ops, with implicit broadcasting written out.

HLO itself never broadcasts: `add(f32[2,3], f32[3])` with broadcast_dimensions={1} is a broadcast
instruction and an add; size 1 against another size is a reshape, a broadcast, an add.
Source: XLA operation semantics, "Broadcasting".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import index

from hlo.ir.dtype import ARRAY_TYPES, DType, dtype
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.building.caller import error
from hlo.ops.building.instruction_builder import InstructionBuilder, Operand
from hlo.ops.foreign_names import ALIASES
from hlo.ops.shape_rules import braces, text
from hlo.ops.table import OPS, Trait

_SCALARS = frozenset({"clamp", "select"})  # three operands: only scalars are broadcast


class Elementwise(InstructionBuilder):
    """Every elementwise op: operands are broadcast to one shape."""

    def __getattr__(self, name: str) -> partial[Instruction]:
        opcode = ALIASES.get(name, name.rstrip("_").replace("_", "-"))
        if opcode not in OPS:
            raise AttributeError(f"no opcode {opcode}")
        row = OPS[opcode]
        if row.traits & Trait.ELEMENTWISE and (row.arity or 0) > 1:
            return partial(self._ternary if opcode in _SCALARS else self._binary, opcode)
        return partial(self.emit, opcode)

    def _binary(  # what every binary op takes
        self,
        opcode: str,
        x: Operand,
        y: Operand,
        broadcast_dimensions: Sequence[int] = (),
        *,
        shape: Shape | None = None,
        name: str = "",
        **attributes: object,
    ) -> Instruction:
        """An op of two operands. broadcast_dimensions: which dimension of the one of higher rank
        each dimension of the other is.
        """
        pair = self.broadcast_together(opcode, x, y, broadcast_dimensions)
        return self.emit(opcode, *pair, shape=shape, name=name, **attributes)

    def broadcast_together(
        self, what: str, x: Operand, y: Operand, broadcast_dimensions: Sequence[int] = ()
    ) -> tuple[Instruction, Instruction]:
        """Both operands in the one shape that implicit broadcasting gives them."""
        a, b = self.operands(what, (x, y))
        if not (a.shape.is_array and b.shape.is_array):
            return a, b  # the op's own rule says what is wrong
        if a.shape.rank < b.shape.rank:
            onto_b = _mapping(what, a.shape, b.shape, broadcast_dimensions)
            onto_a = tuple(range(b.shape.rank))
            onto_a, onto_b = onto_b, onto_a
        else:
            onto_b = _mapping(what, b.shape, a.shape, broadcast_dimensions)
            onto_a = tuple(range(a.shape.rank))
        target = _joined(what, a.shape, onto_a, b.shape, onto_b)
        return self._stretched(a, onto_a, target, b, onto_b), self._stretched(
            b, onto_b, target, a, onto_a
        )

    def _stretched(
        self,
        x: Instruction,
        onto: tuple[int, ...],
        target: tuple[int, ...],
        other: Instruction,
        other_onto: tuple[int, ...],
    ) -> Instruction:
        """x broadcast to the target; where the other is dynamic, with the other's size."""
        if onto == tuple(range(len(target))) and x.shape.dims == target:
            return x
        wide = self.stretch(x, target, onto)
        own = {d for d, size in zip(onto, x.shape.dims, strict=True) if size == target[d]}
        for at, d in enumerate(other_onto):
            if other.shape.dynamic[at] and d not in own:
                extent = self.emit("get-dimension-size", other, dimensions=at)
                flags = [f or i == d for i, f in enumerate(wide.shape.dynamic)]
                sized = wide.shape.with_dims(target, flags)
                wide = self.emit("set-dimension-size", wide, extent, dimensions=d, shape=sized)
        return wide

    def stretch(self, x: Instruction, dims: Sequence[int], onto: Sequence[int]) -> Instruction:
        """x as a part of `dims`: dimension i is dimension onto[i]; sizes of 1 are repeated."""
        kept = [i for i, d in enumerate(onto) if x.shape.dims[i] == dims[d] or x.shape.dynamic[i]]
        if len(kept) < x.shape.rank:
            flags = [x.shape.dynamic[i] for i in kept]
            x = self.emit(
                "reshape", x, shape=x.shape.with_dims([x.shape.dims[i] for i in kept], flags)
            )
        onto_dims = tuple(onto[i] for i in kept)
        if onto_dims == tuple(range(len(dims))):
            return x
        grown = [False] * len(dims)
        for i, d in enumerate(onto_dims):
            grown[d] = x.shape.dynamic[i]
        shape = x.shape.with_dims(dims, grown)
        return self.emit("broadcast", x, dimensions=onto_dims, shape=shape)

    def _ternary(
        self, opcode: str, *operands: Operand, name: str = "", **attributes: object
    ) -> Instruction:
        """clamp and select: scalars are broadcast to the dimensions of what is no scalar."""
        if len(operands) != 3:
            raise error("arity", f"{opcode}: given {len(operands)} operands, expected 3")
        split = 0 if opcode == "clamp" else 1  # a predicate's type says nothing of the others
        values = self.operands(opcode, operands[:split]) + self.operands(opcode, operands[split:])
        full = next((v for v in values if v.shape.is_array and v.shape.rank), None)
        if full is not None:
            values = tuple(
                self._stretched(v, (), full.shape.dims, full, tuple(range(full.shape.rank)))
                if v.shape.is_scalar
                else v
                for v in values
            )
        return self.emit(opcode, *values, name=name, **attributes)  # type: ignore[arg-type]  # attributes, no other option

    def compare(  # as the other binary ops
        self,
        x: Operand,
        y: Operand,
        direction: str,
        broadcast_dimensions: Sequence[int] = (),
        *,
        type: str | None = None,
        name: str = "",
    ) -> Instruction:
        """direction: EQ, NE, GE, GT, LE, LT; type: the comparison, e.g. TOTALORDER."""
        return self._binary(
            "compare", x, y, broadcast_dimensions, direction=direction, type=type, name=name
        )

    def eq(self, x: Operand, y: Operand, dims: Sequence[int] = (), name: str = "") -> Instruction:
        return self.compare(x, y, "EQ", dims, name=name)

    def ne(self, x: Operand, y: Operand, dims: Sequence[int] = (), name: str = "") -> Instruction:
        return self.compare(x, y, "NE", dims, name=name)

    def ge(self, x: Operand, y: Operand, dims: Sequence[int] = (), name: str = "") -> Instruction:
        return self.compare(x, y, "GE", dims, name=name)

    def gt(self, x: Operand, y: Operand, dims: Sequence[int] = (), name: str = "") -> Instruction:
        return self.compare(x, y, "GT", dims, name=name)

    def le(self, x: Operand, y: Operand, dims: Sequence[int] = (), name: str = "") -> Instruction:
        return self.compare(x, y, "LE", dims, name=name)

    def lt(self, x: Operand, y: Operand, dims: Sequence[int] = (), name: str = "") -> Instruction:
        return self.compare(x, y, "LT", dims, name=name)

    def convert(self, x: Operand, to: DType | str | Shape, *, name: str = "") -> Instruction:
        """Every element in another type; `to` is the type, or a whole shape."""
        return self._retyped("convert", x, to, name)

    def bitcast_convert(
        self, x: Operand, to: DType | str | Shape, *, name: str = ""
    ) -> Instruction:
        """The same bits in another type; a last dimension appears or goes where widths differ."""
        (array,) = self.operands("bitcast-convert", (x,))
        if isinstance(to, Shape) or not array.shape.is_array:
            return self._retyped("bitcast-convert", array, to, name)
        element = self.element_type("bitcast-convert", to)
        dims, flags = array.shape.dims, array.shape.dynamic
        old, new = array.shape.dtype.bits, element.bits
        if new < old:
            dims, flags = (*dims, old // new), (*flags, False)
        elif new > old:
            dims, flags = dims[:-1], flags[:-1]
        shape = Shape.array(element, dims, dynamic=flags)
        return self.emit("bitcast-convert", array, shape=shape, name=name)

    def _retyped(self, opcode: str, x: Operand, to: DType | str | Shape, name: str) -> Instruction:
        (array,) = self.operands(opcode, (x,))
        shape = to if isinstance(to, Shape) else None
        if shape is None and array.shape.is_array:
            shape = array.shape.with_dtype(self.element_type(opcode, to))  # type: ignore[arg-type]  # a type or its name
        return self.emit(opcode, array, shape=shape, name=name)

    @staticmethod
    def element_type(what: str, name: DType | str) -> DType:
        """The element type of a name; an error for what is none."""
        try:
            found = dtype(name)
        except KeyError:
            found = None
        if found not in ARRAY_TYPES:
            raise error("dtype", f"{what}: {str(name)!r} is no element type, expected f32, ...")
        return found


def _mapping(
    what: str, small: Shape, large: Shape, broadcast_dimensions: Sequence[int]
) -> tuple[int, ...]:
    """Which dimension of `large` each dimension of `small` is."""
    dims = tuple(index(d) for d in broadcast_dimensions)
    if small.rank == large.rank:
        straight = tuple(range(small.rank))
        if dims not in ((), straight):
            raise _refused(what, dims, f"none or {braces(straight)}: both ranks are {small.rank}")
        return straight
    if not dims and small.rank:
        message = f"{what}: operands are {text(small)} and {text(large)}, expected equal ranks"
        raise error("shape-mismatch", message + ", a scalar, or broadcast_dimensions")
    if len(dims) != small.rank:
        raise _refused(what, dims, f"{small.rank} entries, one per dimension of {text(small)}")
    if list(dims) != sorted(set(dims)) or any(not 0 <= d < large.rank for d in dims):
        raise _refused(what, dims, f"increasing numbers below {large.rank}")
    return dims


def _refused(what: str, dims: tuple[int, ...], expected: str) -> Exception:
    found = f"{what}: broadcast_dimensions is {braces(dims)}, expected {expected}"
    return error("attribute-value", found)


def _joined(
    what: str, a: Shape, onto_a: tuple[int, ...], b: Shape, onto_b: tuple[int, ...]
) -> tuple[int, ...]:
    """The sizes of the result: where one side is 1, the other's."""
    rank = max(a.rank, b.rank)
    target = [1] * rank
    for shape, onto in ((a, onto_a), (b, onto_b)):
        for i, d in enumerate(onto):
            size = shape.dims[i]
            if target[d] != 1 and size not in (1, target[d]):
                message = f"{what}: operands are {text(a)} and {text(b)}, expected equal sizes or 1"
                raise error("shape-mismatch", f"{message} in dimension {d}")
            target[d] = size if target[d] == 1 else target[d]
    return tuple(target)
