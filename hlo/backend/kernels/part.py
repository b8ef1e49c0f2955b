"""Part: a box of a kernel's results, and the loops, units and lanes that were chosen for it."""

from __future__ import annotations

from math import prod

from msgspec import Struct, field

from hlo.backend.kernels.outputs import Output
from hlo.backend.loops.trace import Trace
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Index, Variable
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.machine import Machine

LIGHT = 60  # the weight of an expression of which code may be there several times


def is_streamed(machine: Machine, size_bytes: int) -> bool:
    """Whether an array is so large that it comes from memory, or goes there."""
    return size_bytes >= streamed_from(machine)


def streamed_from(machine: Machine) -> int:
    """Bytes of an array from which it does not stay in a cache that others need too."""
    return machine.second_cache.bytes // 8


class Squares(Struct, frozen=True):
    """Blocks of a part with a tile loop: `rows` steps of that loop by `columns` of the last."""

    rows: int
    columns: int


class Part(Struct):
    """low + [0, dims): the box. Loops: extents[:prefix] are parallel, then blocks of the last, ...

    outputs: written in the innermost loop; outer: written where their fewer dimensions are fixed.
    in_lanes: the last loop runs over lanes. blocks: units per prefix index; block: elements.
    order: the dimensions as loops run over them (None: as they are). strip: lanes run over the last
    dimension that all folds keep, whose loop is `lane_loop`; the dimensions that they fold follow.
    in_one: the lane loop has one body, whose vectors are all masked, as the last one has to be.
    tile: the loop whose steps are taken `lanes` at a time, to turn squares in registers; squares:
    how these are ordered where they are many.
    rows: how many steps of the last loop around the lanes are taken side by side.
    turned: each lane folds a short row; all of them are read end to end, and turned in registers.
    streams: folds over columns walk through memory row by row (kernels/streams.py).
    vector_bytes: of a full vector of the machine. walks: of the streams, once they are written.
    remarks: why, one for each decision, with the estimate that won.
    """

    machine: Machine
    outputs: list[Output]
    outer: list[Output]
    low: tuple[int, ...]
    dims: tuple[int, ...]
    extents: tuple[int, ...] = ()
    prefix: int = 0
    in_lanes: bool = True
    lanes: int = 1
    order: tuple[int, ...] | None = None
    strip: bool = False
    lane_loop: int = -1
    tile: int | None = None
    squares: Squares | None = None
    rows: int = 1
    block: int = 0
    copies: int = 1
    in_one: bool = False
    turned: bool = False
    streams: bool = False
    vector_bytes: int = 0
    walks: list[Walk] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    trace: Trace = field(default_factory=Trace)
    variables: list[Variable] = field(default_factory=list)

    @property
    def size(self) -> int:
        return prod(self.dims)

    @property
    def weight(self) -> int:
        """What an element costs, in plain ops."""
        return self.trace.ops + 8 * self.trace.heavy

    @property
    def in_turn(self) -> bool:
        """Whether rows that are folded side by side are stored one after the other.

        Fewer streams to memory; but what all rows read is read, and converted, for each of them.
        """
        if self.rows == 1 or not is_streamed(self.machine, self.outputs[0].array.size_bytes):
            return False
        return self.may_take_turns(self.rows)

    def may_take_turns(self, rows: int) -> bool:
        """Whether rows share nothing, and none that is computed again may lie over its operand."""
        row, lane = self.variables[self.loops - 1], self.variables[-1]
        return self.extents[self.loops - 1] % rows == 0 and not any(
            r.position.depends_on(lane) and not r.position.depends_on(row) for r in self.trace.reads
        )

    @property
    def is_light(self) -> bool:
        """Whether a few short vectors cost no more than a masked one."""
        return self.weight <= LIGHT and not self.trace.reductions

    @property
    def blocks(self) -> int:
        return -(-self.extents[self.lane_loop] // self.block) if self.block else 1

    @property
    def units(self) -> int:
        if self.squares is not None:
            return prod(self.block_extents())
        return prod(self.rounds(k) for k in range(self.prefix)) * self.blocks

    def block_extents(self) -> tuple[int, ...]:
        """Of a part of squares: its other loops, then blocks of the last one and of the tile's."""
        assert self.squares is not None
        assert self.tile is not None
        others = [n for k, n in enumerate(self.extents[:-1]) if k != self.tile]
        columns = -(-self.extents[-1] // self.squares.columns)
        return (*others, columns, -(-self.extents[self.tile] // self.squares.rows))

    @property
    def loops(self) -> int:
        """How many loops there are around the lanes."""
        return len(self.extents) - self.in_lanes

    def rounds(self, k: int) -> int:
        """How often loop k runs."""
        n = self.extents[k]
        if k == self.tile:
            return -(-n // self.lanes)
        return n if k != self.loops - 1 else -(-n // self.rows)

    def index(self, variables: list[Expr]) -> Index:
        """The result's index for values of the loop variables."""
        order = self.order or tuple(range(len(self.dims)))
        inner = affine.reshaped(tuple(variables), self.extents, [self.dims[d] for d in order])
        return self._placed(inner)

    def _placed(self, inner: Index) -> Index:
        """The result's index for positions in the box, in the loops' order."""
        order = self.order or tuple(range(len(self.dims)))
        return tuple(inner[order.index(d)] + n for d, n in enumerate(self.low))


class Walk(Struct, frozen=True):
    """How a part's folds of one shape go through memory: the extents that they fold, the rows that
    they take side by side, those of a block, whose results are joined to totals (0: there are no
    totals); surplus: whether what these lack is kept too.
    """

    folds: tuple[Instruction, ...]
    extents: tuple[int, ...]
    rows: int
    block: int
    dtypes: tuple[DType, ...]
    memories: int
    surplus: int


def fixed_by(part: Part, index: Index) -> int:
    """How many of the outer loops an index needs."""
    needed = [k for k, v in enumerate(part.variables) if any(e.depends_on(v) for e in index)]
    return max(needed, default=-1) + 1


def reduce_dims(reduce: Instruction) -> tuple[int, ...]:
    """Dimensions of the result of a reduce (of each of its results)."""
    shape = reduce.shape
    return shape.elements[0].dims if shape.is_tuple else shape.dims


def covers(place: Expr, size: int) -> bool:
    """Whether a position is each of [0, size) once, as the loop variables in it run."""
    if not all(isinstance(a, Variable) for a in place.terms) or place.low != 0:
        return False
    count = 1
    for step, atom in sorted((abs(k), a.high - a.low + 1) for a, k in place.terms.items()):
        if step != count:
            return False
        count *= atom
    return count == size


def is_within(index: Index, dims: tuple[int, ...]) -> bool:
    """Whether an index is one of an array's for all values of the loop variables."""
    return all(e.low >= 0 and e.high < n for e, n in zip(index, dims, strict=True))
