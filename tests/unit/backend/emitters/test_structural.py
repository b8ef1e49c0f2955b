"""Every op of fused loops has an emitter or an index map, stated in a table."""

from hlo.backend.emitters.structural import STRUCTURAL
from hlo.backend.emitters.table import EMITTERS
from hlo.indexing.maps import CASES
from hlo.ops.table import OPS, KernelFamily


def test_ops_of_fused_loops_have_a_reading() -> None:
    """A fusion is what its computation is; the other ops have emitters, or move elements only."""
    looped = {opcode for opcode, row in OPS.items() if row.family is KernelFamily.LOOPS}
    assert looped - {"fusion"} <= EMITTERS.keys() | STRUCTURAL.keys() | CASES.keys()


def test_an_op_has_one_structural_reading() -> None:
    # A gather at counted places is a run of its table (affine_gathers.py), others are moves.
    assert STRUCTURAL.keys() & CASES.keys() == {"gather"}
    # A scalar bitcast-convert acts element by element, one between widths does not.
    assert STRUCTURAL.keys() & EMITTERS.keys() == {"bitcast-convert"}
