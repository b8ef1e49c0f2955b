"""Which elements are read by rows and turned in registers: decided without a writer."""

from collections.abc import Iterable, Sequence

import pytest

from hlo.backend.isa.target import Target
from hlo.backend.lanes.transposed import are_rows, is_square, turned_parts
from hlo.indexing import affine
from hlo.indexing.affine import Expr, Opaque, Variable
from hlo.ir import dtype as dt
from hlo.ir.dtype import DType
from hlo.machine import NAMED


def columns(count: int, step: int, lanes: int = 16, mask: object = None) -> list[Expr]:
    """Neighbouring columns of an array whose rows are so many elements long, lanes over rows."""
    row = affine.of(Variable("i", 0, 1 << 20, 1, lanes, mask=mask))
    return [row * step + k for k in range(count)]


# (type, columns, elements of a row, lanes) -> on a machine that moves single bytes, on one of AVX2
ROWS: dict[tuple[DType, int, int, int], tuple[bool, bool]] = {
    (dt.F32, 8, 8, 16): (True, True),
    (dt.F32, 8, 8, 8): (False, True),  # four long vectors hold all rows
    (dt.F32, 8, 8, 4): (False, False),  # few lanes
    (dt.F32, 3, 8, 16): (False, False),  # few columns
    (dt.F32, 8, 1, 16): (False, False),  # neighbours for the lanes
    (dt.F32, 4, 2, 16): (False, False),  # a few vectors hold all rows
    (dt.BF16, 8, 8, 16): (True, True),
    (dt.BF16, 8, 2, 16): (False, False),
    (dt.BF16, 4, 9, 16): (False, True),  # bytes are moved from vector to vector
    (dt.F32, 8, 8, 32): (False, False),  # more lanes than rows are loaded for
}


@pytest.mark.parametrize("asked", ROWS, ids=str)
def test_neighbours_in_memory_are_read_by_rows(asked: tuple[DType, int, int, int]) -> None:
    dtype, count, step, lanes = asked
    positions = columns(count, step, lanes)
    targets = (Target(NAMED["sapphirerapids"]), Target(NAMED["x86-64-v3"]))
    assert tuple(are_rows(target, dtype, positions) for target in targets) == ROWS[asked]


def test_lanes_that_are_masked_or_of_several_lengths_are_no_rows() -> None:
    target = Target(NAMED["sapphirerapids"])
    assert not are_rows(target, dt.F32, columns(8, 8, mask="m"))
    assert not are_rows(target, dt.F32, [*columns(4, 8), *columns(4, 8, 8)])


def test_a_square_is_as_many_neighbours_as_lanes() -> None:
    assert is_square(columns(16, 40))
    assert is_square(columns(4, 40, 4))
    assert not is_square(columns(2, 40, 2))
    assert not is_square(columns(8, 40))
    assert not is_square(columns(16, 1))
    assert not is_square(columns(16, 40)[::-1])
    assert not is_square(columns(16, 40, mask="known at run time only"))


def test_lanes_of_a_square_may_be_where_run_time_values_say() -> None:
    start = affine.of(Opaque("start", 0, 99, (), lanes=8))
    assert is_square([start * 40 + k for k in range(8)])
    assert not is_square([start * 40 + k for k in range(7)])
    assert not is_square([start * 40 + 2 * k for k in range(8)])


class Row(list[tuple[int, int]]):
    """Lanes of a vector, each the row and the lane that it came from."""

    def __init__(self, lanes: Iterable[tuple[int, int]], scalar_type: str) -> None:
        super().__init__(lanes)
        self.scalar_type = scalar_type
        self.lanes = len(self)


class Shuffles:
    """A writer of shuffles alone, which moves lanes; in_parts: whether each stays within 128 bits,
    or moves runs of them.
    """

    def __init__(self, part: int) -> None:
        self.part, self.in_parts = part, True

    def shuffle(self, a: Row, b: Row, order: Sequence[int]) -> Row:
        self.in_parts &= self._moves_runs(order) or self._stays(order, len(a))
        return Row([[*a, *b][k] for k in order], a.scalar_type)

    def _moves_runs(self, order: Sequence[int]) -> bool:
        runs = [order[k : k + self.part] for k in range(0, len(order), self.part)]
        return all(list(run) == list(range(run[0], run[0] + self.part)) for run in runs)

    def _stays(self, order: Sequence[int], lanes: int) -> bool:
        return all(k // self.part == at % lanes // self.part for k, at in enumerate(order))


@pytest.mark.parametrize("squares", [1, 2, 4])
@pytest.mark.parametrize("n", [2, 4, 8, 16, 32])
@pytest.mark.parametrize(
    ("scalar", "part"),
    [("float", 4), ("double", 2), ("half", 8), ("bfloat", 8), ("i8", 16), ("i16", 8), ("i64", 2)],
)
def test_squares_are_turned_by_parts_of_128_bits(
    scalar: str, part: int, n: int, squares: int
) -> None:
    writer = Shuffles(min(n, part))
    rows = [Row([(k, lane) for lane in range(n * squares)], scalar) for k in range(n)]
    turned = turned_parts(writer, rows)  # type: ignore[arg-type]  # rows are values to it
    for k, row in enumerate(turned):
        assert row == [(i % n, i // n * n + k) for i in range(n * squares)]  # type: ignore[comparison-overlap]
    assert writer.in_parts
