"""How many lanes vectors have."""

from hlo.backend.loops.vectors import covering, fitting, narrowed, takes_rows


def test_only_powers_of_two_below_a_vector_fit() -> None:
    assert [fitting(n, 16) for n in (1, 2, 3, 4, 8, 12, 16, 32)] == [16, 2, 16, 4, 8, 16, 16, 16]


def test_divisions_of_few_columns_are_in_short_vectors() -> None:
    assert [narrowed(n, 16) for n in (1, 2, 3, 5, 8, 9, 17)] == [16, 4, 4, 8, 8, 16, 16]


def test_a_short_reduction_is_covered_by_one_short_vector() -> None:
    assert [covering(n, 16) for n in (1, 2, 3, 5, 8, 9, 17)] == [16, 2, 4, 8, 8, 16, 16]


def test_lanes_take_rows_where_that_is_half_as_many_vectors() -> None:
    assert [takes_rows(rows, 2, 16) for rows in (3, 4, 8, 16, 24)] == [False, *[True] * 4]
    assert [takes_rows(rows, 4, 16) for rows in (4, 7, 8, 17, 32)] == [False, False, *[True] * 3]
    assert not takes_rows(1000, 5, 16)


def test_rows_of_several_runs_are_a_short_vector_for_each_else() -> None:
    assert takes_rows(40, 6, 8, runs=2)
    assert not takes_rows(40, 6, 8)
    assert not takes_rows(40, 9, 8, runs=3)  # more places than are turned
    assert not takes_rows(4, 8, 16, runs=2)  # lanes would be idle


def test_lanes_take_rows_of_joined_arrays_whatever_their_number() -> None:
    assert takes_rows(1001, 3, 4, most_joined=16)
    assert takes_rows(1001, 4, 2, most_joined=16)
    assert not takes_rows(1001, 3, 4)  # as many vectors as rows
    assert takes_rows(8, 4, 16, most_joined=16)  # half of the lanes
    assert not takes_rows(3, 3, 4, most_joined=16)
