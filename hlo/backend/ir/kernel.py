"""Kernel: one loop nest as a function, keyed by its text, and the rules by which it is called.

Every kernel is `define void @NAME(ptr %buffers, i64 %begin, i64 %end)`: `buffers` points at a table
of addresses (operand leaves in order, result leaves in order, then one scratch address per thread
when scratch_bytes > 0); [begin, end) is a range of parallel units out of `units`, never an empty
one (the code of a single unit does not look at it), and any split of [0, units) into ranges gives
the same bits.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from msgspec import Struct

from hlo.backend.ir.functions import Definition, Function
from hlo.backend.ir.records import Branch


class Work(Struct, frozen=True):
    """What all units of a kernel together do, of which an estimate is made (ir/work.py).

    instructions: multiply-adds of whole vectors, or what takes as long.
    chain: of them, those of which each waits for the one before.
    tiles: products of two tiles on matrix units.
    cycles: what code takes beside these (backend/profiling/code_work.py).
    sums: vectors that are stored.
    copied: bytes that units read to pack for themselves; fetched: the same of what was asked for
    ahead; packed: instructions on vectors that this takes.
    shared, shared_packed: of what `runs` of units have packed, each before its first unit.
    moved: bytes that are read where they lie.
    again: those that a loop reads once more, and how many lie between the two times.
    streamed: that come and leave meanwhile, of results, which are read and written, and of rows
    that are asked for ahead.
    handed: bytes that are written for kernels of which each thread reads them.
    reach: all that is worked on.
    is_stream: whether what is moved comes in long runs, which processors foresee.
    """

    instructions: float = 0.0
    chain: float = 0.0
    tiles: float = 0.0
    cycles: float = 0.0
    sums: float = 0.0
    copied: float = 0.0
    fetched: float = 0.0
    packed: float = 0.0
    shared: float = 0.0
    shared_packed: float = 0.0
    runs: int = 1
    moved: float = 0.0
    again: tuple[tuple[float, int], ...] = ()
    streamed: float = 0.0
    handed: float = 0.0
    reach: int = 0
    is_stream: bool = False


class Kernel(Struct, frozen=True, dict=True):
    """A loop nest as a function, and what planning has to know of it.

    function: named @KERNEL (renamed when it is placed in a module), so that equal texts are
    equal kernels and are compiled once.

    declarations: lines that it needs beside it (`declare ...`); globals: functions and data.
    in_place: pairs (operand leaf, result leaf) that may be the same memory.
    must_alias: pairs (operand leaf, result leaf) that have to be the same memory (the kernel writes
    only part of the result, as a dynamic-update-slice does); the plan copies first if it must.
    functions: what it calls and declares: functions of any parameters, each compiled once for
    all kernels of a program, whose texts are named @KERNEL too.
    own: leaves of which units in order touch one part after the other; spread: those of which lines
    are read that lie apart, and their neighbours come along (loops/own_leaves.py).
    bytes_moved, flops: bytes read and written and arithmetic operations of the whole kernel, for
    the cost model.
    is_bounded: it is called with the bounds of what a block has of a dimension, in place of a range
    of units, and runs all of them (analysis/blocks/seen_columns.py).
    is_library: a function that follows from the machine, an element type and the like, and from no
    program: a process compiles it once.
    packed_bytes: what a range of units packs before its first one, and again for each further one
    of the `packed_runs` runs of units that share it.
    """

    function: Function
    units: int
    declarations: tuple[str, ...] = ()
    globals: tuple[Definition, ...] = ()
    scratch_bytes: int = 0
    in_place: frozenset[tuple[int, int]] = frozenset()
    must_alias: frozenset[tuple[int, int]] = frozenset()
    bytes_moved: int = 0
    flops: int = 0
    needs_middle_end: bool = False  # scalar IR that LLVM's O2 pipeline should see
    functions: tuple[Kernel, ...] = ()
    own: frozenset[int] = frozenset()
    spread: frozenset[int] = frozenset()
    is_glue: bool = False  # its inner loops are assembly or calls: plain code around them serves
    packed_bytes: int = 0
    packed_runs: int = 1
    work: Work | None = None  # what an estimate goes by; None: by bytes_moved and flops
    is_bounded: bool = False
    is_open: bool = False  # whether it may run for ever: nobody knows how often its loops run
    is_library: bool = False

    @property
    def text(self) -> str:
        """The function's text."""
        return self.function.text

    @property
    def length(self) -> int:
        """Lines of the function."""
        return self.function.length

    def __repr__(self) -> str:
        others = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__struct_fields__[1:])
        return f"Kernel(text={self.text!r}, {others})"


# Lines of a kernel without a loop that are worth no more than plain code: each runs once in a call,
# and takes LLVM four times as long at its level for kernels.
STRAIGHT_LINES = 80


def is_straight(kernel: Kernel) -> bool:
    """Whether a kernel is a few lines that run once: plain code of them serves."""
    if kernel.units != 1 or kernel.needs_middle_end or kernel.length > STRAIGHT_LINES:
        return False
    if kernel.functions or any(isinstance(x, Function) for x in kernel.globals):
        return False
    return not any(isinstance(record, Branch) for record in kernel.function.records)


class KernelCall(Struct, frozen=True):
    """One kernel of a sequence. buffers: its address table, as indices into operand leaves, then
    result leaves, then the sequence's temporaries (counted through, in this order). when: the one
    of them whose first byte says whether the kernel runs (0: not), if one does; that is rare.
    is_early: it writes temporaries, and reads of operands kept ones alone: it may run once before
    the loop around."""

    kernel: Kernel
    buffers: tuple[int, ...]
    when: int | None = None
    is_early: bool = False


class Sums(Struct, frozen=True):
    """How a contraction's sums come about: by which plan, and the most additions that a term goes
    through: a sum of x is off by at most chain * eps / 2 * (the sum of abs(x)).
    """

    plan: str
    chain: int


class KnownLeaves(Struct, frozen=True):
    """The operand leaves of an instruction whose bytes the module holds, and those of them that
    have subnormal numbers of bf16, which some instructions read as zero. kept: those that no
    iteration of the loop around changes, where there is one; what the module holds is among them.
    finite: of a padded convolution, those that the module holds without infinities and NaN.
    """

    leaves: frozenset[int] = frozenset()
    subnormal: frozenset[int] = frozenset()
    kept: frozenset[int] = frozenset()
    finite: frozenset[int] = frozenset()

    def without(self, leaves: frozenset[int]) -> KnownLeaves:
        """What is known of the others."""
        return KnownLeaves(
            self.leaves - leaves, self.subnormal - leaves, self.kept - leaves, self.finite - leaves
        )


NONE_KNOWN = KnownLeaves()
Preparing = Callable[[np.ndarray], np.ndarray]  # bytes from bytes; equal and hashed by value


class Prepared(Struct, frozen=True):
    """A temporary that is made of a known operand leaf alone, by these functions one after the
    other, when the program is compiled: a constant of its own.
    """

    temporary: int
    leaf: int
    steps: tuple[Preparing, ...]


class KernelSequence(Struct, frozen=True):
    """Kernels that run one after the other for one instruction.

    temporaries: their sizes in bytes; they live only while the sequence runs, 64-aligned, and those
    of early calls, which stand before all that read them, as long as the loop does.
    prepared: those of them that no kernel writes. is_bounded: whether all that adds up, or is
    added, keeps to the bounds of a block.
    in_place, must_alias: as a Kernel's, between operand and result leaves of the instruction (the
    same pairs in the parts are ignored). sums: of a contraction.
    """

    calls: tuple[KernelCall, ...]
    temporaries: tuple[int, ...] = ()
    in_place: frozenset[tuple[int, int]] = frozenset()
    must_alias: frozenset[tuple[int, int]] = frozenset()
    sums: Sums | None = None
    prepared: tuple[Prepared, ...] = ()
    is_bounded: bool = False

    @property
    def pairs(self) -> frozenset[tuple[int, int]]:
        """Operand and result leaves that may or must be the same memory."""
        return self.in_place | self.must_alias
