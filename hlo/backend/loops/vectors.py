"""Vectors: how many lanes those of a loop have.

elements of the loop, lanes of a full vector --fitting, narrowed, covering--> lanes
"""

from __future__ import annotations

_FEWEST = 4  # The fewest lanes of a vector that has a register of its own kind.
MOST_SHORT = 3  # The most short vectors that take the place of a masked one.
MOST_INTERLEAVED = 4  # The most vectors whose lanes are stored turn by turn.
MOST_TURNS = 8  # The most vectors of a row's places that are turned and stored as rows.
MOST_JOINED = 16  # Places of a row that are written out where arrays are joined along them.
MOST_APART = 32  # The same where each is another array's.
MOST_LANES = 16  # The most lanes that each load a row of their own.


def takes_rows(
    rows: int,
    length: int,
    lanes: int,
    *,
    most_joined: int = 0,
    is_shared: bool = False,
    runs: int = 1,
) -> bool:
    """Whether lanes take a row of a few elements each, a vector for each place in a row: that is
    half as many vectors, at most, as there are rows, each of which would be a short one else.

    most_joined: how many places may be of several arrays, which have vectors of their own in any
    case.
    is_shared: what most of the work is for serves all places of a row. runs: of a row, each a short
    vector else.
    """
    if is_shared and 2 <= length <= MOST_INTERLEAVED:
        return rows >= lanes
    if 2 <= length <= most_joined and rows >= lanes:
        return True
    vectors = length * -(-rows // lanes)
    most = MOST_INTERLEAVED if runs == 1 else MOST_TURNS
    return 2 <= length <= most and 2 * vectors <= rows * runs


def fitting(length: int, lanes: int) -> int:
    """The lanes of a loop's vectors: fewer than full ones where a short one is all there is.

    It needs no mask, so that LLVM may keep what a loop hands on in a register.
    """
    return length if 1 < length < lanes and length.bit_count() == 1 else lanes


def narrowed(length: int, lanes: int) -> int:
    """The fewest lanes, a power of two, that take a whole loop in one vector: divisions and roots
    take as long as their vectors are wide."""
    return min(lanes, max(_FEWEST, 1 << (length - 1).bit_length())) if length > 1 else lanes


def covering(length: int, lanes: int) -> int:
    """The lanes of a reduction's vectors: as few as hold a short one."""
    return min(lanes, 1 << (length - 1).bit_length()) if length > 1 else lanes
