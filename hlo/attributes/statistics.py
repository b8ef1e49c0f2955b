"""statistics: `{visualizing_index=1,a=1e+10,b=123456}`."""

from __future__ import annotations

from msgspec import Struct

from hlo.attributes.kind import AttributeKind
from hlo.attributes.scalars import general_text
from hlo.attributes.tree import Tree, double, has, int64, key_of, subtrees, tokens
from hlo.errors import Violation


class Statistics(Struct, frozen=True):
    """Named numbers, and which of them a viewer shows first."""

    visualizing_index: int = 0
    entries: tuple[tuple[str, float], ...] = ()

    @property
    def is_shown(self) -> bool:
        return bool(self.entries)


def _statistics(tree: Tree) -> Statistics:
    """The first pair is the index, whatever its name."""
    pairs = subtrees(tree, "statistic")
    if not pairs:
        return Statistics()
    if not has(pairs[0], "INT"):
        raise Violation("attribute-value", "", key_of(pairs[0]), "an integer index first")
    (index,) = tokens(pairs[0], "INT")
    numbers = [(key_of(p), double(tokens(p, "INT", "DECIMAL")[0])) for p in pairs[1:]]
    return Statistics(int64(index), tuple(numbers))


def statistics_text(statistics: Statistics, *, reads_back: bool = True) -> str:
    """The index first, then the numbers with six digits.

    reads_back: with more where six do not read as the same number.
    """
    pairs = [f"{key}={general_text(n, exact=reads_back)}" for key, n in statistics.entries]
    return "{" + ",".join([f"visualizing_index={statistics.visualizing_index}", *pairs]) + "}"


STATISTICS = AttributeKind("STATISTICS", "kind_statistics", _statistics, statistics_text)
