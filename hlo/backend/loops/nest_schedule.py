"""NestSchedule: how the loops of one domain run, as it is chosen step by step.

    Domain --choose_*--> NestSchedule --loop_nest--> LoopNest (its text)      --lower--> code

Every choice is a function that gives a new schedule. What the shapes of kernels are called is what
their axes are: a strip has axes inside of its vector axis, a tile has lanes along another axis too,
rows side by side are the steps of the last axis around the lanes.
"""

from __future__ import annotations

from math import prod

from msgspec import Struct
from msgspec.structs import replace

from hlo.backend.isa.generic import WORD_BITS
from hlo.backend.isa.target import Target
from hlo.backend.loops.domain import Domain
from hlo.backend.loops.schedule import Axis, Role, Source, Tail, axis_name
from hlo.indexing.affine import Expr, Index, Variable
from hlo.ir.dtype import DType
from hlo.ir.instruction import Instruction
from hlo.machine import Machine, aligned

LIGHT = 60  # Expressions up to this weight may be written several times.
UNITS = 64  # Parallel units that are enough for any machine.
FEW_VECTORS = 4  # Vectors of an array that iterations of a loop may hand on in registers.
_MOST_AGAIN = 8  # Of so many vectors, one may be computed twice.


class Keep(Struct, frozen=True):
    """Memory for a value that one stage leaves for others: `size` elements.

    inner: the dimensions of the value along which they lie, of so many `sizes`. width: columns of a
    batch side by side (0: one row), `shift` before the value's own. offset: bytes from where the
    memory of all that a nest keeps begins; shares: the value that lies there at other times. over:
    elements behind the last one that a vector may write.
    """

    value: Instruction
    dtype: DType
    size: int
    inner: tuple[int, ...] = ()
    sizes: tuple[int, ...] = ()
    width: int = 0
    shift: int = 0
    over: int = 0
    offset: int = 0
    shares: Instruction | None = None

    @property
    def size_bytes(self) -> int:
        return self.size * self.dtype.item_bytes


class Streamed(Struct, frozen=True):
    """A reduction whose results a unit keeps in memory while rows pass: dtypes of what lies there,
    for so many columns. accumulators: of each: one for all rows; two, of a block of rows and of all
    blocks; three, what the latter lacks too.
    """

    reduce: Instruction
    index: Index
    dtypes: tuple[DType, ...]
    columns: int
    accumulators: int


class Walk(Struct, frozen=True):
    """Reductions of one shape that go through memory together, row by row.

    extents: the loops that they reduce; rows: side by side; block: of rows, whose results are
    joined to totals (0: there are no totals).
    """

    reductions: tuple[Streamed, ...]
    extents: tuple[int, ...]
    rows: int
    block: int


class Ahead(Struct, frozen=True):
    """Lines of the array at a table's entry, of so many bytes, that are asked for some bytes ahead:
    at a position of what is read or written, or with the elements of a source.

    name: of the array, as loops are printed. vectors: those of a square that is turned in
    registers, apart_bytes from each other. is_written: whether the array is a result.
    """

    leaf: int
    name: str
    size_bytes: int
    ahead_bytes: int
    source: Instruction | None = None
    position: Expr | None = None
    vectors: int = 1
    apart_bytes: int = 0
    is_written: bool = False


# Arrays of elements too narrow for masks that all rounds may mask: of more, a body of its own for
# the last round takes less.
_MOST_BRANCHED = 3


class NestSchedule(Struct, frozen=True, eq=False):
    """How the loops of a domain run: their axes, the outermost first, and what goes with them.

    lanes: of a full vector here. axes: a loop that is split has several.
    source: how lanes read what they reduce.
    keeps: what a stage leaves for others.
    stages: what each of several loops over the innermost axis leaves; the last one stores.
    walks: reductions that go through memory row by row.
    reductions: with their indices, in order, as each is made where its index is known.
    ahead: what the stage that stores asks for. fetched: what the last reduction asks for.
    remarks: why, one for each decision.
    is_small: whether little code is worth more than fast code.
    has_masks: whether loads and stores take some lanes alone.
    masks_all: not where they do, but none of elements as narrow as many that are read or stored:
    each is behind a branch then.
    masks_words: whether all elements that are stored are words or more, and a mask a bit for each.
    apart: leaves over which no result may lie (in_place.py).
    """

    machine: Machine
    domain: Domain
    lanes: int
    axes: tuple[Axis, ...]
    source: Source = Source.DIRECT
    keeps: tuple[Keep, ...] = ()
    stages: tuple[tuple[Instruction, ...], ...] = ()
    walks: tuple[Walk, ...] = ()
    reductions: tuple[tuple[Instruction, Index], ...] = ()
    ahead: tuple[Ahead, ...] = ()
    fetched: tuple[Ahead, ...] = ()
    remarks: tuple[str, ...] = ()
    is_small: bool = False
    has_masks: bool = True
    masks_all: bool = True
    masks_words: bool = True
    apart: frozenset[int] = frozenset()

    # -- what the axes are -------------------------------------------------------------------

    @property
    def vector(self) -> Axis | None:
        """The axis over lanes."""
        for axis in reversed(self.axes):
            if axis.role is Role.VECTOR:
                return axis
        return None

    @property
    def lane(self) -> Variable:
        """The variable that lanes run over, or the last one."""
        vector = self.vector
        return self.domain.variables[vector.loop if vector is not None else -1]

    @property
    def loops(self) -> int:
        """How many loops there are around the lanes."""
        vector = self.vector
        return len(self.domain.extents) if vector is None else vector.loop

    @property
    def inner(self) -> tuple[Axis, ...]:
        """The axes inside of that over lanes."""
        vector = self.vector
        return () if vector is None else self.axes[self.axes.index(vector) + 1 :]

    @property
    def tile(self) -> Axis | None:
        """The axis that is read as vectors too, in squares that are turned in registers."""
        return next((a for a in self.axes if a.lanes > 1 and a.role is not Role.VECTOR), None)

    @property
    def is_blocked(self) -> bool:
        """Whether a unit is a block of squares."""
        tile = self.tile
        return tile is not None and any(a.loop == tile.loop and a is not tile for a in self.axes)

    @property
    def block(self) -> int:
        """Elements of the loop over lanes that a unit takes, 0: all."""
        vector, split = self.vector, self.parallel[-1:]
        if vector is None or not split or split[0].loop != vector.loop or self.is_blocked:
            return 0
        return split[0].step

    @property
    def parallel(self) -> tuple[Axis, ...]:
        return tuple(a for a in self.axes if a.role is Role.PARALLEL)

    @property
    def prefix(self) -> int:
        """How many of the loops around the lanes are split over units."""
        return len(self.parallel) - (self.block > 0)

    @property
    def units(self) -> int:
        return prod(a.rounds for a in self.parallel)

    def outer(self, loop: int) -> Axis:
        """The first axis of a loop."""
        return next(a for a in self.axes if a.loop == loop)

    @property
    def rows(self) -> int:
        """How many steps of the last loop around the lanes are taken side by side."""
        if not self.loops or self.inner or self.is_blocked:
            return 1
        last = self.outer(self.loops - 1)
        return last.step if last.lanes == 1 else 1

    @property
    def turn(self) -> Axis | None:
        """The axis of rows that are reduced side by side and stored one after the other: a second
        one of their loop.
        """
        turns = (a for a in self.axes if a.role is Role.UNROLLED and a is not self.outer(a.loop))
        return next((a for a in turns if a.loop == self.loops - 1), None)

    @property
    def is_light(self) -> bool:
        """Whether a few short vectors cost no more than a masked one."""
        return self.domain.weight <= LIGHT and not self.domain.trace.reductions

    def may_run_again(self, unroll: int) -> bool:
        """Whether the last elements may be computed and stored twice, in rounds of so many vectors:
        they rest on nothing that a result may lie over, and are few. Few vectors in all stay what
        they are, which a loop may hand on in registers.
        """
        domain, vector = self.domain, self.vector
        assert vector is not None, "there are lanes"
        length = domain.extents[vector.loop]
        vectors = -(-length // vector.lanes)
        if vectors <= FEW_VECTORS or _MOST_AGAIN * (-vectors % unroll) > vectors:
            return False
        if unroll * vector.lanes > length:
            return False
        is_apart = all(o.alias is None for o in domain.outputs) and not domain.outer
        return is_apart and all(read.leaf in self.apart for read in domain.trace.reads)

    @property
    def kept_bytes(self) -> int:
        """Of what a strip keeps, in one piece of memory: the end of the last value, in lines."""
        return max((k.offset + aligned(k.size_bytes) for k in self.keeps), default=0)

    # -- changes -----------------------------------------------------------------------------

    def because(self, *remarks: str) -> NestSchedule:
        """The schedule with reasons."""
        return replace(self, remarks=(*self.remarks, *remarks))

    def with_axis(self, loop: int, **changes: object) -> NestSchedule:
        """The schedule with the last axis of a loop changed."""
        return self._with(max(n for n, a in enumerate(self.axes) if a.loop == loop), changes)

    def with_first(self, loop: int, **changes: object) -> NestSchedule:
        """The schedule with the first axis of a loop changed."""
        return self._with(min(n for n, a in enumerate(self.axes) if a.loop == loop), changes)

    def _with(self, place: int, changes: dict[str, object]) -> NestSchedule:
        axes = list(self.axes)
        axes[place] = replace(axes[place], **changes)
        return replace(self, axes=tuple(axes))

    def split(self, block: int) -> NestSchedule:
        """Units take blocks of the loop over lanes; 0: they do not."""
        vector = self.vector
        assert vector is not None, "there are lanes"
        axes = [a for a in self.axes if a.loop != vector.loop or a is vector]
        place, length = axes.index(vector), self.domain.extents[vector.loop]
        if block:
            tail = Tail.SHORT if length % block else Tail.NONE
            axes[place] = replace(vector, extent=block, of=length)
            units = Axis(vector.name, length, Role.PARALLEL, block, tail=tail, loop=vector.loop)
            axes.insert(place, units)
        else:
            axes[place] = replace(vector, extent=length, of=0)
        return replace(self, axes=tuple(axes))


def serial(target: Target, domain: Domain, lanes: int) -> NestSchedule:
    """A loop for each of the domain's, one inside of the other."""
    axes = (
        Axis(axis_name(k), extent, Role.SERIAL, loop=k) for k, extent in enumerate(domain.extents)
    )
    machine, is_small = target.machine, target.is_small
    return NestSchedule(
        machine, domain, lanes, tuple(axes), remarks=domain.remarks, is_small=is_small,
        has_masks=target.isa.masks_loads, masks_all=_masks_all(target, domain),
        masks_words=target.isa.masks_loads_of(8)
        and all(output.array.dtype.bits >= WORD_BITS for output in domain.outputs),
    )  # fmt: skip


def _masks_all(target: Target, domain: Domain) -> bool:
    """Whether masks serve what lanes read and store side by side, but for a few narrow elements."""
    isa, lane = target.isa, domain.variables[-1:]
    reads = [r.dtype for r in domain.trace.reads if lane and r.position.coefficient(lane[0]) == 1]
    types = (*reads, *(output.array.dtype for output in domain.outputs))
    narrow = sum(not isa.masks_loads_of(8 * dtype.item_bytes) for dtype in types)
    return narrow <= _MOST_BRANCHED or not isa.masks_loads


def is_streamed(machine: Machine, size_bytes: int) -> bool:
    """Whether an array is so large that it comes from memory, or goes there."""
    return size_bytes >= streamed_from(machine)


def streamed_from(machine: Machine) -> int:
    """Bytes of an array from which it does not stay in a cache that others need too."""
    return machine.second_cache.bytes // 8
