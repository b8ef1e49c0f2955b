"""What operations are counted of is an op."""

from hlo.analysis.work import COUNTS
from hlo.ops import OPS


def test_every_count_is_of_an_op() -> None:
    assert COUNTS.keys() <= OPS.keys()
