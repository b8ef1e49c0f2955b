"""Trace: what an expression reads, found symbolically before any code is written.

    instruction, index over loop variables --trace--> positions read, conditions met, reductions

Kernels choose their loops by it: which dimensions are one loop, which variable runs over lanes,
where to split. Does not know LLVM.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from math import prod

from msgspec import Struct, field

from hlo.analysis.fusibility import is_elementwise
from hlo.backend.loops.chains import chain_to
from hlo.backend.loops.expression import (
    Expression,
    Path,
    dims_of,
    keeps_elements,
)
from hlo.errors import HloError
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.indexing.maps import CASES, Condition, cases
from hlo.indexing.reductions import REDUCTIONS, reduction_dims, term_extents
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.ir.shape import Shape
from hlo.ops.movement import IotaAttributes
from hlo.ops.table import OPS, Trait, has_trait

MOST_OPS = 10  # The most additions that one op counts for in a loop's work.


class Read(Struct, frozen=True):
    """One array element used: its index, as a position, and the variables of the reductions around
    it. at: the index of the result of the outermost of them."""

    source: Instruction
    dtype: DType
    position: Expr
    reduced: tuple[Variable, ...] = ()
    leaf: int = -1
    index: Index = ()
    at: Index = ()


class Around(Struct, frozen=True):
    """The variables of the reductions around a value; the index of the outermost one's result."""

    variables: tuple[Variable, ...] = ()
    at: Index = ()


class Trace(Struct):
    """What is read and computed for an element of an expression.

    values: indices that are themselves values (iota, counters).
    ops: elementwise ops met, each once per index.
    heavy, heavy_at: those of them that cost more than a few cycles.
    rounded_at: those of the others that round to a narrow type.
    work: operations for every value of an index.
    carried: numbers of an element that whiles keep from trip to trip. is_open: whether nobody knows
    how many trips one has.
    drawn: where random numbers are, of which several in a row are made at once.
    """

    reads: list[Read] = field(default_factory=list)
    values: list[Expr] = field(default_factory=list)
    conditions: list[Condition] = field(default_factory=list)
    reductions: list[tuple[Instruction, Index]] = field(default_factory=list)
    ops: int = 0
    heavy: int = 0
    heavy_at: dict[Instruction, list[Index]] = field(default_factory=dict)
    rounded_at: dict[Instruction, list[Index]] = field(default_factory=dict)
    work: list[tuple[int, Index]] = field(default_factory=list)
    carried: int = 0
    is_open: bool = False
    drawn: list[Index] = field(default_factory=list)

    @property
    def weight(self) -> int:
        """What an element costs, in plain ops."""
        return self.ops + 8 * self.heavy

    def weight_along(self, variables: Collection[Variable]) -> int:
        """The same of what is computed for each value of the variables alone, as a reduction's
        terms are, and what becomes of its result is not.
        """

        def count(indices: Iterable[Index]) -> int:
            return sum(any(e.depends_on(v) for e in index for v in variables) for index in indices)

        steps = len(self.reductions)  # each is work, too, beside the ops
        ops = count(index for _, index in self.work) - steps
        return max(0, ops) + 8 * count(at for indices in self.heavy_at.values() for at in indices)

    def expressions(self) -> list[Expr]:
        """Everything whose form the loops have to suit."""
        found = [r.position for r in self.reads] + self.values
        return found + [c.index for c in self.conditions]


def trace(expression: Expression, roots: list[tuple[Instruction, Index, Path]]) -> Trace:
    """What the roots read at their indices, each expression looked at once per index."""
    tracer = _Tracer(expression)
    tracer.stack += [(instruction, index, path, Around()) for instruction, index, path in roots]
    tracer.run()
    return tracer.found


class _Tracer:
    """The walk through an expression that a trace comes from.

    stack: expressions still to be looked at, with the reductions around them.
    """

    def __init__(self, expression: Expression) -> None:
        self.expression = expression
        self.found = Trace()
        self.stack: list[tuple[Instruction, Index, Path, Around]] = []
        self.reductions: set[tuple[Instruction, Index]] = set()
        self.loops: set[tuple[Instruction, Index]] = set()

    def run(self) -> None:
        seen: set[tuple[Instruction, Path, Index]] = set()
        while self.stack:
            instruction, index, path, reduced = self.stack.pop()
            instruction, path = self.expression.source(instruction, path)
            if (instruction, path, index) in seen:
                continue
            seen.add((instruction, path, index))
            leaf = self.expression.leaves.get((instruction, path))
            if leaf is not None:
                position = affine.linear(index, dims_of(instruction, path))
                read = Read(
                    instruction, leaf.dtype, position, reduced.variables, leaf.number, index,
                    reduced.at,
                )  # fmt: skip
                self.found.reads.append(read)
            elif is_elementwise(instruction):
                self._elementwise(instruction, index, reduced)
            elif instruction.opcode in CASES and keeps_elements(instruction):
                self._moved(instruction, index, reduced)
            else:
                self._special(instruction, index, reduced)

    def _elementwise(self, instruction: Instruction, index: Index, reduced: Around) -> None:
        self.found.ops += 1
        chain = chain_to(self.expression, instruction)
        cost = OPS[instruction.opcode].cost
        is_heavy = chain is not None or cost.is_high
        self.found.work.append((MOST_OPS if chain else min(cost.operations, MOST_OPS), index))
        if is_heavy:
            self.found.heavy += 1
            self.found.heavy_at.setdefault(instruction, []).append(index)
        elif instruction.shape.dtype.is_narrow_float and not has_trait(instruction, Trait.EXACT):
            self.found.rounded_at.setdefault(instruction, []).append(index)
        if chain is not None:
            self.stack.append((chain.source[0], index, chain.source[1], reduced))
            return
        for operand in instruction.operands:
            self.stack.append((operand, index if operand.shape.dims else (), (), reduced))

    def _moved(self, instruction: Instruction, index: Index, reduced: Around) -> None:
        operands = instruction.operands
        starts = self.expression.starts(instruction)

        def start(number: int, at: Index, low: int, high: int) -> Expr:
            self.stack.append((operands[number], at, (), reduced))
            return starts(number, at, low, high)

        for case in cases(instruction, index, start):
            self.found.conditions += case.conditions
            self.stack.append((operands[case.operand], case.index, (), reduced))

    def _special(self, instruction: Instruction, index: Index, reduced: Around) -> None:
        """Ops with code of their own."""
        operands = instruction.operands
        match instruction.opcode:
            case "iota":
                d = IotaAttributes.of(instruction.attributes).iota_dimension
                self.found.values.append(index[d])
            case "constant":
                if index:
                    self.found.values.append(affine.linear(index, instruction.shape.dims))
            case "reduce":
                if (instruction, index) in self.reductions:
                    return  # another result of the same reduction
                self.reductions.add((instruction, index))
                self.found.reductions.append((instruction, index))
                inner, variables = reduced_index(instruction, index)
                count = len(operands) // 2
                self.found.work.append((_step_ops(instruction), inner))
                at = reduced.at if reduced.variables else index
                around = Around((*reduced.variables, *variables), at)
                for operand in operands[:count]:
                    self.stack.append((operand, inner, (), around))
                self.stack += [(o, (), (), reduced) for o in operands[count:]]
            case "while":
                self._while(instruction, index, reduced)
            case "rng-bit-generator":
                self.found.values += index
                self.found.work.append((MOST_OPS, index))
                self.found.drawn.append(index)
                self.stack.append((operands[0], _anywhere(operands[0].shape), (), reduced))
            case _:
                # Every index counts by itself; operands may be read anywhere.
                self.found.values += index
                steps = term_extents(instruction) if instruction.opcode in REDUCTIONS else ()
                self.found.work.append((prod(steps), index))
                for operand in operands:
                    if operand.shape.is_array:
                        self.stack.append((operand, _anywhere(operand.shape), (), reduced))

    def _while(self, loop: Instruction, index: Index, reduced: Around) -> None:
        """All results are made at once, of all elements of the state at the index."""
        from hlo.analysis.while_loops.lane_loops import (  # of loops alone
            elementwise_members,
            is_asked_in_lanes,
            lane_loop,
            row_loop,
        )
        from hlo.analysis.while_loops.loop_state import ASSUMED_TRIPS, counter

        if (loop, index) in self.loops:
            return
        self.loops.add((loop, index))
        found = lane_loop(loop)
        if not (is_asked_in_lanes(loop, found) if found else row_loop(loop)):
            raise HloError("unsupported", f"{loop.name}: a loop whose lanes are not its results'")
        known, members = counter(loop), elementwise_members(loop)
        trips = ASSUMED_TRIPS if known is None else known.iterations
        ops = sum(min(OPS[m.opcode].cost.operations, MOST_OPS) for m in members)
        self.found.work.append((trips * ops, index))
        self.found.ops += len(members)
        self.found.heavy += sum(OPS[m.opcode].cost.is_high for m in members)
        self.found.is_open |= known is None
        arrays = [s for s in loop.shape.elements if s.dims]
        self.found.carried += sum(1 + s.dtype.is_complex for s in arrays)
        (operand,) = loop.operands
        tables = found.tables if found else ()
        for k, shape in enumerate(loop.shape.elements):
            own = index if shape.dims else ()
            self.stack.append((operand, _anywhere(shape) if k in tables else own, (k,), reduced))


def _anywhere(shape: Shape) -> Index:
    """The index of any element."""
    return tuple(affine.of(Variable("any", 0, max(n - 1, 0))) for n in shape.dims)


def _step_ops(reduce: Instruction) -> int:
    """What a step of a reduction computes, for all its results together."""
    (callee,) = reduce.called_computations()
    return max(1, sum(map(is_elementwise, callee.instructions)))


def reduced_index(reduce: Instruction, index: Index) -> tuple[Index, tuple[Variable, ...]]:
    """The operands' index for a result's index, with new variables for the reduced dimensions."""
    own = reduction_dims(reduce)
    loops = zip(own.reduced, own.extents, strict=True)
    variables = tuple(Variable(f"r{d}", 0, max(size - 1, 0)) for d, size in loops)
    return own.index(index, tuple(map(affine.of, variables))), variables
