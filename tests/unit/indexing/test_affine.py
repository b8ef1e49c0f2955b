"""Index maps: simplification by ranges, reshapes that vanish, values that stay right."""

from __future__ import annotations

import itertools
import random
from math import prod

from hlo.indexing.affine import DivMod, Expr, Variable, linear, of, reshaped


def value(e: Expr, env: dict[Variable, int]) -> int:
    total = e.constant
    for atom, k in e.terms.items():
        if isinstance(atom, DivMod):
            inner = value(atom.inner, env)
            v = inner // atom.divisor if atom.is_quotient else inner % atom.divisor
        else:
            v = env[atom]
        assert atom.low <= v <= atom.high
        total += k * v
    assert e.low <= total <= e.high
    return total


def test_quotient_and_remainder_of_a_row_major_position_are_its_index() -> None:
    i, j = Variable("i", 0, 7), Variable("j", 0, 4)
    position = of(i) * 5 + of(j)
    assert position // 5 == of(i)
    assert position % 5 == of(j)


def test_a_quotient_and_a_remainder_that_meet_are_the_index() -> None:
    k = of(Variable("k", 0, 99))
    assert (k // 8) * 8 + k % 8 == k
    assert (k // 8 % 3) * 8 + k % 8 == k % 24


def test_reshapes_in_a_row_come_back_to_the_same_position() -> None:
    random.seed(1)
    shapes = [(24,), (2, 12), (4, 6), (3, 8), (2, 3, 4), (6, 1, 4), (2, 2, 2, 3)]
    for chain in itertools.permutations(shapes, 3):
        variables = [Variable(f"v{k}", 0, n - 1) for k, n in enumerate(chain[0])]
        index = tuple(of(v) for v in variables)
        start = linear(index, chain[0])
        for source, target in itertools.pairwise(chain):
            index = reshaped(index, source, target)
        assert linear(index, chain[-1]) == start


def test_random_maps_keep_their_value_and_range() -> None:
    random.seed(2)
    i, j = Variable("i", 0, 7), Variable("j", 0, 4)
    for _ in range(500):
        a, b, c = (random.randint(-6, 6) for _ in range(3))
        d, e = random.randint(1, 7), random.randint(1, 9)
        base = of(i) * a + of(j) * b + c
        mapped = ((base // d) * 3 + 1) % e + base % d
        for x, y in ((0, 0), (7, 4), (3, 2)):
            env = {i: x, j: y}
            want = ((a * x + b * y + c) // d * 3 + 1) % e + (a * x + b * y + c) % d
            assert value(mapped, env) == want


def test_a_position_is_what_its_sums_one_by_one_are() -> None:
    k = of(Variable("k", 0, 95))
    j = of(Variable("j", 0, 3))
    for index, dims in [
        ((k // 8, k % 8, j), (12, 8, 4)),
        ((k // 16, k // 8 % 2, k % 8, j), (6, 2, 8, 4)),
        ((j, k // 8 + 1, k % 8), (4, 14, 8)),
        ((k % 8, k // 8, j * 2 + 1), (8, 12, 9)),
        ((j, j), (4, 4)),
    ]:
        one_by_one = of(Variable("z", 0, 0))
        for e, size in zip(index, dims, strict=True):
            one_by_one = one_by_one * size + e
        assert linear(index, dims) == one_by_one
    assert linear((k // 8, k % 8, j), (12, 8, 4)) == k * 4 + j


def test_a_remainder_knows_its_quotient_once() -> None:
    k = of(Variable("k", 0, 95))
    (remainder,) = (k % 8).terms
    assert isinstance(remainder, DivMod)
    assert remainder.quotient == k // 8
    assert remainder.quotient is remainder.quotient


def test_reshape_of_an_empty_array_has_an_index() -> None:
    index = tuple(of(Variable("v", 0, max(n - 1, 0))) for n in (0, 3))
    assert len(reshaped(index, (0, 3), (3, 0))) == 2
    assert prod((0, 3)) == 0


def test_variables_are_replaced_inside_quotients_and_remainders() -> None:
    i, j = Variable("i", 0, 99), Variable("j", 0, 24)
    position = of(i) // 8 * 3 + of(i) % 8 + 5
    moved = position.substituted({i: of(j) * 4 + 3})
    assert all(value(moved, {j: k}) == value(position, {i: 4 * k + 3}) for k in range(25))


def test_what_an_index_is_made_of_counts_inside_quotients() -> None:
    i, j = Variable("i", 0, 99), Variable("j", 0, 24)
    assert (of(i) // 8 + 1).is_made_of([i])
    assert not ((of(i) + of(j)) // 8).is_made_of([i])
