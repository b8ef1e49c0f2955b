"""LoopSchedule: a kernel's loops as data: which axes, in which order, what is kept where.

    kernel = nests that share its units;  nest = a tree of axes, caches, reductions and stores

The words are those of Halide and TVM: an axis is split, reordered, vectorised or unrolled; a value
is computed at an axis and cached; a reduction has accumulators and blocks. A schedule says what
changes trip counts, the order of arithmetic, storage or stores; values without loops or memory are
evaluated where they are asked for. Does not know: instructions, how code is written.
"""

from __future__ import annotations

from enum import Enum

from msgspec import Struct


def axis_name(number: int, first: str = "i") -> str:
    """i, j, k, .. for the loops over results; r, s, t, .. for those that are reduced."""
    last = "q" if first == "i" else "z"
    name = chr(ord(first) + number)
    return name if name <= last else f"{first}{number}"


class Role(Enum):
    """What the steps of an axis are for each other."""

    PARALLEL = "parallel"  # Split over threads.
    SERIAL = "serial"
    VECTOR = "vector"  # Steps are lanes.
    UNROLLED = "unrolled"  # Written without a loop.
    REDUCED = "reduced"
    SCANNED = "scanned"  # Each step needs the one before.


class Tail(Enum):
    """How the steps of an axis end where a round does not divide its extent."""

    NONE = "no tail"
    MASKED = "masked tail"  # code of its own, the lanes past the end masked
    PREDICATED = "every round masked"  # one body
    OVERLAPPING = "overlapping tail"  # the last round ends where the axis does
    SHORT = "short tail"  # code of its own for fewer steps, no masks


class Storage(Enum):
    """Where a cache lies."""

    REGISTERS = "in registers"
    STACK = "on the stack"
    SCRATCH = "in scratch"


class Hint(Enum):
    """How a store reaches memory."""

    NON_TEMPORAL = "non-temporal"
    VERSIONED = "versioned by alignment"  # code of its own for memory that is not aligned
    FENCED = "fenced"


class Tree(Enum):
    """In which order the terms of a reduction meet."""

    IN_ORDER = "in order"
    PAIRS = "by pairs"
    BLOCKS = "in blocks"  # chains of bounded length, whose results are joined in the same way


class Source(Enum):
    """How the elements of a reduction are read."""

    DIRECT = "direct"
    TURNED = "rows turned in registers"


class Join(Enum):
    """How the lanes of a reduction's vectors meet, so that one is left of each result."""

    NONE = "as they are"  # there are no such vectors, or they have one lane
    HALVED = "halved"  # the lower half with the upper one, again and again
    TOGETHER = "halved together"  # in the same order, those of results side by side in one vector
    TESTED = "tested at once"  # truths, by one comparison of all their bits


class Direction(Enum):
    """From which end an axis is walked."""

    FORWARD = "forward"
    REVERSE = "from the end"


class Axis(Struct, frozen=True):
    """A loop: `step` elements a round, so many of which are lanes of one vector.

    loop: of the domain's loops, -1 where it is none of them. lanes of another axis than a vector's:
    the elements along it that are read as vectors, to be turned in registers.
    tail_step: elements of a round after the last full one, where these have a loop of their own.
    of: the extent of the whole, of which this axis runs over the part between two bounds known at
    run time (0: over all of it). blocks: steps whose sums are added apart, the largest first;
    apart: so is that of each step, over the axes inside of it. is_bounded: only the rounds run that
    meet what a mask leaves, between two bounds known at run time.
    """

    name: str
    extent: int
    role: Role
    step: int = 1
    lanes: int = 1
    tail: Tail = Tail.NONE
    tail_step: int = 0
    of: int = 0
    parts: int = 0
    blocks: tuple[int, ...] = ()
    apart: bool = False
    is_bounded: bool = False
    direction: Direction = Direction.FORWARD
    loop: int = -1

    @property
    def vectors(self) -> int:
        """Vectors of a round."""
        return self.step // self.lanes

    @property
    def rounds(self) -> int:
        return self.parts or -(-self.extent // self.step)


class Cache(Struct, frozen=True):
    """Memory for a value at the axis that it stands in."""

    value: str
    dims: tuple[int, ...]
    dtype: str
    size_bytes: int
    storage: Storage
    shares: str = ""  # the value that lies there at other times


class Fill(Struct, frozen=True):
    """A value computed into its cache."""

    value: str
    text: str = ""


class Reduction(Struct, frozen=True):
    """A reduction: value = form over axes. results: indices reduced side by side; accumulators:
    vectors of each; lanes: those of its results, each of which reduces for itself. fills: kept
    values that it computes first.
    """

    value: str
    form: str
    axes: tuple[Axis, ...]
    lanes: int = 1
    results: int = 1
    accumulators: int = 1
    tree: Tree = Tree.IN_ORDER
    source: Source = Source.DIRECT
    join: Join = Join.NONE
    reads: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    body: tuple[Node, ...] = ()


class Prefetch(Struct, frozen=True):
    """Lines of an operand that are asked for so many bytes ahead."""

    value: str
    ahead_bytes: int


class Store(Struct, frozen=True):
    """result[index] = value. leaf: its entry in the kernel's table. start: where its window begins,
    if at run time; over: the operand whose memory the result has to be.
    """

    result: str
    leaf: int
    index: tuple[str, ...]
    value: str
    start: str = ""
    over: str = ""
    hints: tuple[Hint, ...] = ()
    reads: tuple[str, ...] = ()


class Loop(Struct, frozen=True):
    """An axis around what it runs."""

    axis: Axis
    body: tuple[Node, ...]


Node = Loop | Reduction | Cache | Fill | Prefetch | Store


class LoopNest(Struct, frozen=True):
    """The loops of one box of index space: low + [0, dims).

    units: what it can be split into; of the kernel's, those in [first, first + count). entry: what
    every thread computes before its first unit. remarks: the reasons, one for each decision.
    """

    low: tuple[int, ...]
    dims: tuple[int, ...]
    units: int
    first: int
    count: int
    body: tuple[Node, ...]
    entry: tuple[Node, ...] = ()
    remarks: tuple[str, ...] = ()


class Table(Struct, frozen=True):
    """Results of a chain of ops for every code of what it starts from, which are looked up."""

    value: str
    source: str
    entries: int
    dtype: str


class LoopSchedule(Struct, frozen=True):
    """The loops of one kernel: nests that run one after the other over a range of its units."""

    units: int
    scratch_bytes: int
    nests: tuple[LoopNest, ...]
    tables: tuple[Table, ...] = ()


class Plan(Struct, frozen=True):
    """A kernel that is no nest of these loops: the lines that say how it works."""

    lines: tuple[str, ...]
