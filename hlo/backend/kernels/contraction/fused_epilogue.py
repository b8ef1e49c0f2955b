"""Fused epilogue: the expression around a dot or convolution, applied to each finished tile.

    fusion (kind=kOutput), contraction inside --Fused--> Epilogue

The expression is evaluated as that of loop kernels is (Elemental); the contraction in it stands for
the sums that are at hand.
"""

from __future__ import annotations

from collections.abc import Sequence

from hlo.analysis.bands import live_band
from hlo.analysis.fusibility import beside, gates_of, is_elementwise
from hlo.backend.emitters import random, reduction, values, windows  # noqa: F401  # as in staged
from hlo.backend.emitters.elemental import Elemental
from hlo.backend.emitters.structural import elemental_of
from hlo.backend.ir.writer import Value, Writer, vector_of
from hlo.backend.isa.target import Target
from hlo.backend.kernels.contraction.problem.axes import dot_contraction, normal
from hlo.backend.kernels.contraction.problem.buffer_numbers import fusion_number
from hlo.backend.kernels.contraction.problem.result import Epilogue, Lanes
from hlo.backend.kernels.contraction.problem.ring import ring_of
from hlo.backend.lanes import types
from hlo.backend.lanes.access import Memory
from hlo.backend.lanes.nest import Nest
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.ir.computation import Computation
from hlo.ir.instruction import Instruction


class Fused:
    """A fusion's expression around its contraction.

    parameters: numbers of the fused computation's parameters, in the order of `others`.
    """

    def __init__(self, fusion: Instruction, contraction: Instruction, target: Target) -> None:
        (callee,) = fusion.called_computations()
        self.body: Computation = callee
        self.contraction = contraction
        self.target = target
        others = beside(callee.root, contraction)
        self.read = [p for p in callee.parameters if p in others]

    def epilogue(self) -> Epilogue:
        """What is done to each sum. Of gates, parts of the contraction's columns, each element of
        the results reads all.
        """
        gates = max(1, gates_of(self.body, self.contraction))
        columns = self._columns(gates)

        def apply(w: Writer, sums: tuple[Value, ...], lanes: Lanes) -> tuple[Value, ...]:
            return self._applied(w, sums, lanes, columns, gates)

        others = tuple(fusion_number(p) for p in self.read)
        dtype, *further = (root.shape.dtype for root in self.roots)
        live = live_band(self.contraction, self.body)
        in_place, is_uniform = self._in_place(), self._is_uniform()
        return Epilogue(
            dtype, apply, others, in_place, tuple(further), gates, live, is_uniform=is_uniform
        )

    def _columns(self, gates: int) -> int:
        """How many neighbours of the result a run of lanes stays within."""
        dot = self.contraction
        if gates > 1:
            return dot.shape.dims[-1] // gates
        if dot.opcode == "dot":
            c = dot_contraction(dot)
        else:
            # Most programs with products have no convolutions, and start without these.
            from hlo.analysis.direct_convolution import direct_form
            from hlo.backend.kernels.contraction.convolutions.convolution import (
                convolution_contraction,
            )

            if (form := direct_form(dot)) is not None:
                return form.run
            c = convolution_contraction(dot)[0]
        c = normal(c, ring_of(c.out, self.target).lanes)
        return c.n if c.columns and c.columns[-1].out == 1 else 0

    @property
    def roots(self) -> tuple[Instruction, ...]:
        """What the results are."""
        root = self.body.root
        return root.operands if root.opcode == "tuple" else (root,)

    def _is_uniform(self) -> bool:
        """Whether all that the result is made of beside the contraction are scalars."""
        inner = beside(self.body.root, self.contraction) - {self.contraction}
        return all(member.operands or not member.shape.dims for member in inner)

    def _in_place(self) -> frozenset[tuple[int, int]]:
        """Operands of the result's size of which each element is read where its result goes."""
        return frozenset(
            (fusion_number(p), leaf)
            for p in self.read
            for leaf, root in enumerate(self.roots)
            if p not in self.contraction.operands
            and p.shape.dtype.item_bytes == root.shape.dtype.item_bytes
            and self._is_read_in_place(p)
        )

    def _is_read_in_place(self, parameter: Instruction) -> bool:
        """Whether nothing between it and the root moves elements."""
        dims, waiting, seen = self.roots[0].shape.dims, [parameter], {parameter}
        while waiting:
            reader = waiting.pop()
            if reader is self.body.root and reader.opcode == "tuple":
                continue
            if not reader.shape.is_array or reader.shape.dims != dims:
                return False
            if reader is not parameter and not is_elementwise(reader):
                return False
            new = [user for user in reader.users if user not in seen]
            seen.update(new)
            waiting += new
        return True

    def _applied(
        self, w: Writer, sums: tuple[Value, ...], lanes: Lanes, columns: int, gates: int
    ) -> tuple[Value, ...]:
        elemental = elemental_of(Nest(w, self.target), lanes.count)
        elemental.expression.entered.add(self.body)
        for parameter, base in zip(self.read, lanes.others, strict=True):
            shape = parameter.shape
            elemental.enter((parameter, ()), Memory(base, shape.dtype, shape.size))
        dtype, count = self.contraction.shape.dtype, len(sums) // gates
        if self.target.on_doubles:
            elemental.expression.underflows_in, elemental.expression.is_careful = self.body, True
            type = vector_of(types.compute_scalar(dtype), sums[0].lanes)
            sums = tuple(w.cast("fptrunc", total, type) for total in sums)
        given = (list(sums[first : first + count]) for first in range(0, len(sums), count))
        rounded = [types.rounded(w, self.target, types.joined(one), dtype) for one in given]
        own = _Sums(rounded, columns)
        elemental.saved[self.contraction] = own  # type: ignore[assignment]  # it answers
        index = _index(w, lanes, columns, self.roots[0].shape.dims)
        found: list[Value] = []
        for root in self.roots:
            (result,) = elemental.lanes_at(root, [index])
            wide = types.parts(elemental.splat(result, lanes.count))
            found += (types.encoded(w, self.target, v, root.shape.dtype) for v in wide)
        return tuple(found)


def _index(w: Writer, lanes: Lanes, columns: int, dims: tuple[int, ...]) -> Index:
    """The lanes' index: a row that they share, and columns that run with them."""
    leading = len(dims)
    inner = 1
    while leading and inner < columns:
        leading -= 1
        inner *= dims[leading]
    outer = 1
    for size in dims[:leading]:
        outer *= size
    if inner != columns or lanes.stride != 1:
        first = affine.of(Variable("first", 0, outer * inner - 1, value=lanes.index))
        step = Variable("lane", 0, lanes.count - 1, lanes=lanes.count, value=w.int(0),
                        mask=lanes.mask)  # fmt: skip
        position = first + (Expr({step: 1}, 0) * lanes.stride if lanes.count > 1 else 0)
        return affine.delinearized(position, dims)
    row, column = lanes.index, lanes.index
    if outer > 1:
        row = w.binary("udiv", lanes.index, w.int(inner))
        column = w.binary("sub", lanes.index, w.binary("mul", row, w.int(inner)))
    return (
        *affine.delinearized(affine.of(Variable("row", 0, outer - 1, value=row)), dims[:leading]),
        *affine.delinearized(_consecutive(lanes, column, inner), dims[leading:]),
    )


def _consecutive(lanes: Lanes, first: Value, size: int) -> Expr:
    """first, first + 1, ... in the lanes."""
    if lanes.count == 1:
        return affine.of(Variable("column", 0, size - 1, value=first))
    column = Variable("column", 0, size - 1, lanes=lanes.count, value=first, mask=lanes.mask)
    return Expr({column: 1}, 0)


class _Sums:
    """The contraction's value at the lanes that are being finished, whatever their index is; of
    several gates, in so many columns each, at the one that the index is in.
    """

    def __init__(self, gates: list[types.Lanes], columns: int) -> None:
        self.gates, self.columns = gates, columns

    def lanes_at(
        self, _: Elemental, __: Instruction, indices: Sequence[Index]
    ) -> list[types.Lanes]:
        if len(self.gates) == 1:
            return self.gates * len(indices)
        return [self.gates[index[-1].low // self.columns] for index in indices]
